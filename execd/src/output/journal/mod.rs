//! Journal: the events of one run, written once as bytes, for any number of readers at any
//! position.
//!
//! ```text
//!   oldest kept                                       newest
//!   [ on disk, a file without a name ][ a window in memory ] ◀── append
//!   ▲                             ▲                  ▲
//!   mark (offset, seq)          reader             reader
//! ```
//!
//! Unread events are kept, up to a large limit. Above it, and when the disk is full, new events
//! have no room. Events that all readers have seen are kept for reconnecting clients, up to a
//! smaller limit. A slow reader that takes the room of one that keeps up is dropped.

mod state;
#[cfg(test)]
mod tests;

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard},
    time::Instant,
};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::state::{Disk, Mark, Oldest, Position, State, joined};
use super::memory::{Memory, Share};
use crate::limits;

/// How many bytes one journal keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keep {
    /// In memory.
    pub(super) window: u64,
    /// That every reader has seen.
    pub(super) replay: u64,
    /// That some reader has not seen.
    pub(super) unread: u64,
}

/// Events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    changed: Notify,
    /// Cancelled when the last reader went away.
    left: CancellationToken,
    keep: Keep,
    memory: Arc<Memory>,
}

/// Reason why events after a number are unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// They are no longer kept. `first` is the oldest that is.
    Forgotten { first: u64 },
    /// The number does not exist yet. `last` is the newest.
    Ahead { last: u64 },
}

impl Journal {
    /// An empty journal, and the reader that gets everything.
    pub(super) fn new(keep: Keep, memory: &Arc<Memory>) -> (Arc<Self>, EventReader) {
        let state = State {
            window: VecDeque::new(),
            share: Share::of(memory),
            disk: None,
            disk_full: None,
            replay: keep.replay,
            no_holes: false,
            writing: false,
            start: 0,
            end: 0,
            marks: VecDeque::new(),
            last: 0,
            readers: vec![Position { reader: 0, at: 0 }],
            next_reader: 1,
            finished: false,
        };
        let journal = Arc::new(Self {
            state: Mutex::new(state),
            changed: Notify::new(),
            left: CancellationToken::new(),
            keep,
            memory: Arc::clone(memory),
        });
        let reader = EventReader {
            journal: Arc::clone(&journal),
            id: 0,
            skip: 0,
        };
        (journal, reader)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// A reader of everything after the event with that number.
    ///
    /// # Errors
    /// When some of it is no longer kept, or there was no such event.
    pub(crate) fn reader(self: &Arc<Self>, since: u64) -> Result<EventReader, Unavailable> {
        let mut state = self.state();
        let last = state.last;
        if since > last {
            return Err(Unavailable::Ahead { last });
        }
        let known = state.marks.partition_point(|mark| mark.seq <= since + 1);
        let Some(mark) = known.checked_sub(1).map(|index| state.marks[index]) else {
            let first = state.marks.front().map_or(last + 1, |mark| mark.seq);
            return Err(Unavailable::Forgotten { first });
        };
        let id = state.next_reader;
        state.next_reader += 1;
        let at = mark.offset;
        state.readers.push(Position { reader: id, at });
        Ok(EventReader {
            journal: Arc::clone(self),
            id,
            skip: 2 * (since + 1 - mark.seq),
        })
    }

    /// Cancelled when the last reader went away, whether or not it had read everything.
    pub(crate) fn left(&self) -> CancellationToken {
        self.left.clone()
    }

    /// Resources that the journal uses.
    pub(crate) fn held(&self) -> Held {
        let state = self.state();
        let on_disk = |disk: &Disk| state.window_start().saturating_sub(disk.freed);
        Held {
            memory: state.share.taken(),
            disk: state.disk.as_ref().map_or(0, on_disk),
            files: usize::from(state.disk.is_some()),
        }
    }

    /// Whether it takes more output. What ends an event that has begun, and the end, it takes
    /// always.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.state();
        if self.is_unwanted(&state) {
            return true;
        }
        self.trim(&mut state);
        if self.room(&state) {
            return true;
        }
        // A slow reader must not make one that keeps up lose events.
        let slowest = state.readers.iter().map(|place| place.at).min();
        let near = state.end.saturating_sub(self.keep.window);
        if state.readers.iter().any(|place| place.at >= near) {
            state
                .readers
                .retain(|place| Some(place.at) != slowest || place.at >= near);
            self.trim(&mut state);
            self.changed.notify_waiters();
        }
        self.room(&state)
    }

    fn room(&self, state: &State) -> bool {
        let taken = state.share.taken();
        match state.disk_full {
            Some(again) => {
                let asks = Instant::now() >= again && taken < 2 * self.keep.window;
                taken < self.keep.window || asks
            }
            None => {
                let freed = state.disk.as_ref().map_or(state.start, |disk| disk.freed);
                let first = if state.no_holes { freed } else { state.start };
                state.end - first.min(state.start) < self.keep.unread
            }
        }
    }

    /// Whether even an event that has begun must be cut: the disk takes nothing, and memory has
    /// twice what it should.
    pub(super) fn is_overfull(&self) -> bool {
        let state = self.state();
        state.disk_full.is_some() && state.share.taken() >= 2 * self.keep.window
    }

    /// Drops bytes that no reader needs.
    fn trim(&self, state: &mut State) {
        let replay = if self.memory.disk_is_short() {
            state.replay.min(limits::REPLAY_SHORT)
        } else {
            state.replay
        };
        state.trim(replay, self.keep.window);
    }

    /// Whether no reader exists, and none can come.
    fn is_unwanted(&self, state: &State) -> bool {
        state.readers.is_empty() && self.keep.replay == 0
    }

    /// Takes the first events of a run, or the last of one without output: they are few, and stay in
    /// memory.
    pub(super) fn extend(&self, bytes: Bytes, last: u64) {
        let mut state = self.state();
        if state.marks.is_empty() {
            state.marks.push_back(Mark { offset: 0, seq: 1 });
        }
        state.push(bytes, last);
    }

    /// Appends events, or pieces of one. One caller at a time. Waits at most for the disk, never
    /// for a reader.
    pub(super) async fn append(&self, bytes: Bytes, events: Numbers) {
        if let Some(oldest) = self.admit(bytes, events) {
            self.move_to_disk(oldest).await;
        }
    }

    /// Moves what is long to disk, once nothing comes any more: it may lie there for a day without a
    /// reader.
    pub(crate) async fn settle(&self) {
        let oldest = {
            let mut state = self.state();
            let is_long = state.finished && state.share.taken() > limits::JOURNAL_COMPACT;
            is_long.then(|| state.too_much(0)).flatten()
        };
        if let Some(oldest) = oldest {
            self.move_to_disk(oldest).await;
        }
    }

    async fn move_to_disk(&self, oldest: Oldest) {
        let end = oldest.end;
        let write = tokio::task::spawn_blocking(move || oldest.write());
        let written = write.await.unwrap_or_else(|error| Err(error.into()));
        let mut state = self.state();
        state.writing = false;
        match written {
            Ok(()) => {
                state.disk_full = None;
                while state.window.front().is_some_and(|block| block.end() <= end) {
                    state.forget_oldest();
                }
            }
            Err(error) => state.refused(&error),
        }
        if self.is_unwanted(&state) {
            state.clear()
        } else {
            self.trim(&mut state)
        }
    }

    /// Takes the bytes into the window, and gives what of it belongs on disk.
    fn admit(&self, bytes: Bytes, events: Numbers) -> Option<Oldest> {
        let mut state = self.state();
        if self.is_unwanted(&state) {
            return None;
        }
        let at = state.end;
        if let Some(seq) = events.first {
            let far = |mark: &Mark| at - mark.offset >= limits::JOURNAL_MARK;
            if self.keep.replay > 0 && state.marks.back().is_none_or(far) {
                state.marks.push_back(Mark { offset: at, seq });
            }
        }
        state.push(bytes, events.last);
        self.trim(&mut state);
        let window = if self.memory.is_short() {
            0
        } else {
            self.keep.window
        };
        let oldest = state.too_much(window);
        drop(state);
        self.changed.notify_waiters();
        oldest
    }

    /// Marks the journal as complete.
    pub(super) fn finish(&self) {
        let mut state = self.state();
        state.finished = true;
        self.trim(&mut state);
        state.compact();
        drop(state);
        self.changed.notify_waiters();
    }

    fn ready(&self, reader: u64) -> Ready {
        let mut state = self.state();
        let state = &mut *state;
        let Some(at) = state.place(reader).map(|place| place.at) else {
            // Forgotten, because it was too far behind.
            return Ready::End;
        };
        if at == state.end {
            return if state.finished {
                Ready::End
            } else {
                Ready::Later
            };
        }
        let index = state.window.partition_point(|block| block.end() <= at);
        match state.window.get(index) {
            Some(block) if block.at <= at => {
                let bytes = joined(state.window.range(index..), at);
                self.passed(state, reader, bytes.len() as u64);
                Ready::Now(bytes)
            }
            _ => match &state.disk {
                Some(disk) => Ready::OnDisk {
                    file: Arc::clone(&disk.file),
                    from: at,
                    to: state.window_start(),
                },
                None => Ready::End,
            },
        }
    }

    /// Advances a reader by a number of bytes.
    fn passed(&self, state: &mut State, reader: u64, bytes: u64) {
        if let Some(place) = state.place(reader) {
            place.at += bytes;
        }
        if state.end - state.start > state.replay + limits::JOURNAL_FREE || state.replay == 0 {
            self.trim(state);
        }
    }

    fn leave(&self, reader: u64) {
        let mut state = self.state();
        state.readers.retain(|place| place.reader != reader);
        // At once: children of the command may hold its pipe, and with it this, for as long as
        // they like.
        if self.is_unwanted(&state) {
            state.clear()
        } else {
            self.trim(&mut state)
        }
        let last = state.readers.is_empty();
        drop(state);
        if last {
            self.left.cancel();
        }
    }
}

/// Resources that output uses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Held {
    /// Bytes in memory.
    pub(crate) memory: u64,
    /// Bytes on disk.
    pub(crate) disk: u64,
    /// Open files.
    pub(crate) files: usize,
}

impl std::ops::Add for Held {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
            files: self.files + other.files,
        }
    }
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::SubAssign for Held {
    fn sub_assign(&mut self, other: Self) {
        self.memory -= other.memory;
        self.disk -= other.disk;
        self.files -= other.files;
    }
}

/// Which events bytes belong to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    /// The one that the bytes begin with; absent inside an event.
    pub(super) first: Option<u64>,
    /// The last of which there is something.
    pub(super) last: u64,
}

enum Ready {
    Now(Bytes),
    OnDisk { file: Arc<File>, from: u64, to: u64 },
    Later,
    End,
}

/// Reader of a journal. While it exists, its unread events are kept.
#[derive(Debug)]
pub(crate) struct EventReader {
    journal: Arc<Journal>,
    id: u64,
    /// Newlines that it passes over. Two end an event, and there are none inside.
    skip: u64,
}

impl EventReader {
    /// The next bytes, or none at the end. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let bytes = {
                // Before the look: what changes from here on is heard.
                let changed = self.journal.changed.notified();
                match self.journal.ready(self.id) {
                    Ready::Now(bytes) => bytes,
                    Ready::OnDisk { file, from, to } => {
                        let read = tokio::task::spawn_blocking(move || read(&file, from, to));
                        match read.await.unwrap_or_else(|error| Err(error.into())) {
                            Ok(bytes) => {
                                self.journal.passed(
                                    &mut self.journal.state(),
                                    self.id,
                                    bytes.len() as u64,
                                );
                                bytes
                            }
                            Err(error) => {
                                warn!(%error, "output on disk lost");
                                return None;
                            }
                        }
                    }
                    Ready::End => return None,
                    Ready::Later => {
                        changed.await;
                        continue;
                    }
                }
            };
            let bytes = self.after_skipped(bytes);
            if !bytes.is_empty() {
                return Some(bytes);
            }
        }
    }

    /// Rest of the bytes after the events to skip.
    fn after_skipped(&mut self, bytes: Bytes) -> Bytes {
        if self.skip == 0 {
            return bytes;
        }
        for at in memchr::memchr_iter(b'\n', &bytes) {
            self.skip -= 1;
            if self.skip == 0 {
                return bytes.slice(at + 1..);
            }
        }
        Bytes::new()
    }
}

impl Drop for EventReader {
    fn drop(&mut self) {
        self.journal.leave(self.id);
    }
}

fn read(file: &File, from: u64, to: u64) -> io::Result<Bytes> {
    let len = (to - from).min(limits::SPILL_READ as u64);
    let mut buffer = vec![0; usize::try_from(len).expect("bounded above")];
    file.read_exact_at(&mut buffer, from)?;
    Ok(Bytes::from(buffer))
}
