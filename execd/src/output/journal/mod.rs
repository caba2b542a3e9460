//! Journal of one run: its events as bytes, written once, for any number of readers at any
//! position.
//!
//! ```text
//!   oldest kept                                       newest
//!   [ on disk, an unlinked file      ][ window in memory   ] ◀── append
//!   ▲                             ▲                  ▲
//!   mark (offset, seq)          reader             reader
//! ```
//!
//! Unread events are kept up to a large limit. Above it, or when the disk is full, new events are
//! dropped. Events that all readers have read are kept for reconnecting clients, up to a smaller
//! limit. At the large limit, the slowest reader is dropped if another one keeps up.

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

use self::state::{Disk, Mark, ReaderPosition, SpillBatch, State, joined};
use super::memory::{Memory, MemoryShare};
use crate::limits;

/// Limits of one journal in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalLimits {
    /// Bytes in memory.
    pub(super) window: u64,
    /// Bytes that every reader has read, kept for reconnecting clients.
    pub(super) replay: u64,
    /// Bytes that some reader has not read.
    pub(super) unread: u64,
}

/// Events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    changed: Notify,
    /// Cancelled when the last reader is dropped.
    left: CancellationToken,
    keep: JournalLimits,
    memory: Arc<Memory>,
}

/// Reason why a journal cannot be read after a given event number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// The next events are no longer kept. `first` is the oldest event kept.
    Forgotten { first: u64 },
    /// No event has this number yet. `last` is the newest event.
    Ahead { last: u64 },
}

impl Journal {
    /// Creates an empty journal, and a reader of all its events.
    pub(super) fn new(keep: JournalLimits, memory: &Arc<Memory>) -> (Arc<Self>, EventReader) {
        let state = State {
            window: VecDeque::new(),
            share: MemoryShare::of(memory),
            disk: None,
            disk_full: None,
            replay: keep.replay,
            no_holes: false,
            writing: false,
            start: 0,
            end: 0,
            marks: VecDeque::new(),
            last: 0,
            readers: vec![ReaderPosition { reader: 0, at: 0 }],
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

    /// Adds a reader of the events after number `since`.
    ///
    /// # Errors
    /// When some of them are no longer kept, or event `since` does not exist.
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
        state.readers.push(ReaderPosition { reader: id, at });
        Ok(EventReader {
            journal: Arc::clone(self),
            id,
            skip: 2 * (since + 1 - mark.seq),
        })
    }

    /// Token that is cancelled when the last reader is dropped, even if it has read everything.
    pub(crate) fn left(&self) -> CancellationToken {
        self.left.clone()
    }

    /// Resource use of the journal.
    pub(crate) fn usage(&self) -> OutputUsage {
        let state = self.state();
        let on_disk = |disk: &Disk| state.window_start().saturating_sub(disk.freed);
        OutputUsage {
            memory: state.share.taken(),
            disk: state.disk.as_ref().map_or(0, on_disk),
            files: usize::from(state.disk.is_some()),
        }
    }

    /// Whether new output may be appended. The rest of an event under way and the final event may
    /// always be appended.
    pub(super) fn has_room(&self) -> bool {
        let mut state = self.state();
        if self.is_unwanted(&state) {
            return true;
        }
        self.trim(&mut state);
        if self.room(&state) {
            return true;
        }
        // A slow reader must not cost a reader that keeps up its events.
        let slowest = state.readers.iter().map(|position| position.at).min();
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

    /// Whether even an event under way must be cut short: the disk rejects data, and the window has
    /// twice its size.
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

    /// Appends the first events of a run, or the last of a run without output. They are few and
    /// stay in memory.
    pub(super) fn extend(&self, bytes: Bytes, last: u64) {
        let mut state = self.state();
        if state.marks.is_empty() {
            state.marks.push_back(Mark { offset: 0, seq: 1 });
        }
        state.push(bytes, last);
    }

    /// Appends events, or pieces of one. Callers must not overlap. Waits at most for the disk,
    /// never for a reader.
    pub(super) async fn append(&self, bytes: Bytes, events: EventNumbers) {
        if let Some(oldest) = self.admit(bytes, events) {
            self.move_to_disk(oldest).await;
        }
    }

    /// Moves a long journal to disk once it is complete, because no client may read it for a day.
    pub(crate) async fn move_complete_to_disk(&self) {
        let oldest = {
            let mut state = self.state();
            let is_long = state.finished && state.share.taken() > limits::JOURNAL_COMPACT;
            is_long.then(|| state.take_excess(0)).flatten()
        };
        if let Some(oldest) = oldest {
            self.move_to_disk(oldest).await;
        }
    }

    async fn move_to_disk(&self, oldest: SpillBatch) {
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
            Err(error) => state.note_disk_error(&error),
        }
        if self.is_unwanted(&state) {
            state.clear()
        } else {
            self.trim(&mut state)
        }
    }

    /// Adds bytes to the window. Returns the part of the window that must move to disk.
    fn admit(&self, bytes: Bytes, events: EventNumbers) -> Option<SpillBatch> {
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
        let oldest = state.take_excess(window);
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

    fn try_read(&self, reader: u64) -> ReadAttempt {
        let mut state = self.state();
        let state = &mut *state;
        let Some(at) = state.position_mut(reader).map(|position| position.at) else {
            // The reader was dropped because it was too slow.
            return ReadAttempt::End;
        };
        if at == state.end {
            return if state.finished {
                ReadAttempt::End
            } else {
                ReadAttempt::Later
            };
        }
        let index = state.window.partition_point(|block| block.end() <= at);
        match state.window.get(index) {
            Some(block) if block.at <= at => {
                let bytes = joined(state.window.range(index..), at);
                self.advance(state, reader, bytes.len() as u64);
                ReadAttempt::Now(bytes)
            }
            _ => match &state.disk {
                Some(disk) => ReadAttempt::OnDisk {
                    file: Arc::clone(&disk.file),
                    from: at,
                    to: state.window_start(),
                },
                None => ReadAttempt::End,
            },
        }
    }

    /// Advances a reader by a number of bytes. Returns false if the reader was dropped because it
    /// was too slow: then the bytes may have been freed before they were read.
    fn advance(&self, state: &mut State, reader: u64, bytes: u64) -> bool {
        let Some(position) = state.position_mut(reader) else {
            return false;
        };
        position.at += bytes;
        if state.end - state.start > state.replay + limits::JOURNAL_FREE || state.replay == 0 {
            self.trim(state);
        }
        true
    }

    fn leave(&self, reader: u64) {
        let mut state = self.state();
        state.readers.retain(|place| place.reader != reader);
        // Freed at once, because child processes may hold the command's pipe, and with it this
        // journal, for an unlimited time.
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

/// Resource use of output.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OutputUsage {
    /// Bytes in memory.
    pub(crate) memory: u64,
    /// Bytes on disk.
    pub(crate) disk: u64,
    /// Open files.
    pub(crate) files: usize,
}

impl std::ops::Add for OutputUsage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            memory: self.memory + other.memory,
            disk: self.disk + other.disk,
            files: self.files + other.files,
        }
    }
}

impl std::ops::AddAssign for OutputUsage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl std::ops::SubAssign for OutputUsage {
    fn sub_assign(&mut self, other: Self) {
        self.memory -= other.memory;
        self.disk -= other.disk;
        self.files -= other.files;
    }
}

/// Numbers of the events in a piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventNumbers {
    /// Event that the piece begins with; absent if it begins inside an event.
    pub(super) first: Option<u64>,
    /// Last event of which the piece has bytes.
    pub(super) last: u64,
}

/// Result of a reader's attempt to read.
enum ReadAttempt {
    Now(Bytes),
    OnDisk { file: Arc<File>, from: u64, to: u64 },
    Later,
    End,
}

/// Reader of a journal. Its unread events are kept while it exists.
#[derive(Debug)]
pub(crate) struct EventReader {
    journal: Arc<Journal>,
    id: u64,
    /// Newlines to skip. Two end an event, and an event contains none.
    skip: u64,
}

impl EventReader {
    /// Waits for the next bytes. `None` at the end. Safe to cancel.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let bytes = {
                // Registered before the attempt, so that no change after it is missed.
                let changed = self.journal.changed.notified();
                match self.journal.try_read(self.id) {
                    ReadAttempt::Now(bytes) => bytes,
                    ReadAttempt::OnDisk { file, from, to } => {
                        let read = tokio::task::spawn_blocking(move || read(&file, from, to));
                        match read.await.unwrap_or_else(|error| Err(error.into())) {
                            Ok(bytes) => {
                                let len = bytes.len() as u64;
                                let mut state = self.journal.state();
                                if !self.journal.advance(&mut state, self.id, len) {
                                    return None;
                                }
                                bytes
                            }
                            Err(error) => {
                                warn!(%error, "reading output from disk failed");
                                return None;
                            }
                        }
                    }
                    ReadAttempt::End => return None,
                    ReadAttempt::Later => {
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

    /// Rest of the bytes after the events that the reader skips.
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
