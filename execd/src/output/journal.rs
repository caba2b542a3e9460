//! The events of one run, written once as bytes, for any number of readers at any place.
//!
//! ```text
//!   oldest kept                                       newest
//!   [ on disk, a file without a name ][ a window in memory ] ◀── append
//!   ▲                             ▲                  ▲
//!   mark (offset, seq)          reader             reader
//! ```
//!
//! What a reader has still to see is kept, up to a large number of bytes; beyond it, and when the
//! disk takes no more, there is no room for new events. What all have seen is kept for those that
//! come again, up to a smaller number.

use std::{
    collections::VecDeque,
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::memory::{Memory, Share};
use crate::{limits, scratch};

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

/// The events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    state: Mutex<State>,
    changed: Notify,
    /// Cancelled when the last reader went away.
    left: CancellationToken,
    keep: Keep,
    memory: Arc<Memory>,
}

#[derive(Debug)]
struct State {
    /// The newest bytes.
    window: VecDeque<Block>,
    /// What they take of the memory of all journals.
    share: Share,
    /// Older ones.
    disk: Option<Disk>,
    /// The disk took nothing when it was asked last.
    disk_full: bool,
    /// The oldest of the window are being written to disk: nothing of them may go meanwhile.
    writing: bool,
    /// The first byte that is kept. An event begins here if anything is kept for replay.
    start: u64,
    /// Behind the last byte.
    end: u64,
    /// Places where an event begins, oldest first.
    marks: VecDeque<Mark>,
    /// Number of the last event.
    last: u64,
    readers: Vec<Position>,
    next_reader: u64,
    finished: bool,
}

/// Bytes at an offset.
#[derive(Clone, Debug)]
struct Block {
    at: u64,
    bytes: Bytes,
}

impl Block {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    fn cost(&self) -> u64 {
        self.bytes.len() as u64 + limits::BLOCK_COST
    }
}

/// Each byte lies at its own offset; those before `freed` were given back.
#[derive(Debug)]
struct Disk {
    file: Arc<File>,
    freed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Mark {
    offset: u64,
    seq: u64,
}

#[derive(Clone, Copy, Debug)]
struct Position {
    reader: u64,
    at: u64,
}

/// Why events after some number cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// They are no longer kept. The first that is.
    Forgotten { first: u64 },
    /// There was no such number. The last there was.
    Ahead { last: u64 },
}

impl Journal {
    /// An empty journal, and the reader that gets everything.
    pub(super) fn new(keep: Keep, memory: &Arc<Memory>) -> (Arc<Self>, EventReader) {
        let state = State {
            window: VecDeque::new(),
            share: Share::of(memory),
            disk: None,
            disk_full: false,
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

    /// What it holds.
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
        state.trim(self.keep.replay);
        match state.disk_full {
            true => state.share.taken() < self.keep.window,
            false => state.end - state.start < self.keep.unread,
        }
    }

    /// Nobody reads, and nobody will.
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
        let Some(oldest) = self.admit(bytes, events) else {
            return;
        };
        let end = oldest.end;
        let write = tokio::task::spawn_blocking(move || oldest.write());
        let written = write.await.unwrap_or_else(|error| Err(error.into()));
        let mut state = self.state();
        state.writing = false;
        match written {
            Ok(()) => {
                state.disk_full = false;
                while state.window.front().is_some_and(|block| block.end() <= end) {
                    state.forget_oldest();
                }
            }
            Err(error) => state.refused(&error),
        }
        if self.is_unwanted(&state) {
            state.clear();
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
        state.trim(self.keep.replay);
        let window = match self.memory.is_short() {
            true => 0,
            false => self.keep.window,
        };
        let oldest = state.too_much(window);
        drop(state);
        self.changed.notify_waiters();
        oldest
    }

    /// Nothing comes any more.
    pub(super) fn finish(&self) {
        let mut state = self.state();
        state.finished = true;
        state.compact();
        drop(state);
        self.changed.notify_waiters();
    }

    fn ready(&self, reader: u64) -> Ready {
        let mut state = self.state();
        let state = &mut *state;
        let place = state
            .readers
            .iter_mut()
            .find(|place| place.reader == reader);
        let place = place.expect("a reader is known until it is dropped");
        let at = place.at;
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
                place.at += bytes.len() as u64;
                if self.keep.replay == 0 {
                    state.trim(0);
                }
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

    /// What was read from disk has been read.
    fn advance(&self, reader: u64, by: u64) {
        let mut state = self.state();
        if let Some(place) = state
            .readers
            .iter_mut()
            .find(|place| place.reader == reader)
        {
            place.at += by;
        }
        if self.keep.replay == 0 {
            state.trim(0);
        }
    }

    fn leave(&self, reader: u64) {
        let mut state = self.state();
        state.readers.retain(|place| place.reader != reader);
        // At once: children of the command may hold its pipe, and with it this, for as long as
        // they like.
        if self.is_unwanted(&state) {
            state.clear();
        }
        let last = state.readers.is_empty();
        drop(state);
        if last {
            self.left.cancel();
        }
    }
}

/// What output takes.
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

/// The oldest of a window, on its way to disk.
struct Oldest {
    file: Arc<File>,
    blocks: Vec<Block>,
    end: u64,
}

impl Oldest {
    fn write(self) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut blocks = self.blocks.iter().peekable();
        while let Some(block) = blocks.next() {
            if buffer.is_empty() && block.bytes.len() >= limits::SPILL_READ {
                self.file.write_all_at(&block.bytes, block.at)?;
                continue;
            }
            buffer.extend_from_slice(&block.bytes);
            if buffer.len() >= limits::SPILL_READ || blocks.peek().is_none() {
                let at = block.end() - buffer.len() as u64;
                self.file.write_all_at(&buffer, at)?;
                buffer.clear();
            }
        }
        Ok(())
    }
}

enum Ready {
    Now(Bytes),
    OnDisk { file: Arc<File>, from: u64, to: u64 },
    Later,
    End,
}

/// The bytes of blocks from an offset on; of several small ones enough for one write.
fn joined<'a>(mut blocks: impl Iterator<Item = &'a Block>, from: u64) -> Bytes {
    let Some(first) = blocks.next() else {
        return Bytes::new();
    };
    let skip = usize::try_from(from - first.at).expect("inside a block");
    let bytes = first.bytes.slice(skip..);
    let mut rest = blocks.peekable();
    if bytes.len() >= limits::JOIN || rest.peek().is_none() {
        return bytes;
    }
    let mut whole = bytes.to_vec();
    for block in rest {
        if whole.len() + block.bytes.len() > limits::STREAM_WRITE {
            break;
        }
        whole.extend_from_slice(&block.bytes);
    }
    Bytes::from(whole)
}

impl State {
    fn window_start(&self) -> u64 {
        self.window.front().map_or(self.end, |block| block.at)
    }

    fn push(&mut self, bytes: Bytes, last: u64) {
        let block = Block {
            at: self.end,
            bytes,
        };
        self.last = last;
        self.end = block.end();
        self.share.take(block.cost());
        self.window.push_back(block);
    }

    fn forget_oldest(&mut self) {
        if let Some(block) = self.window.pop_front() {
            self.share.give(block.cost());
        }
    }

    /// Forgets everything.
    fn clear(&mut self) {
        if self.writing {
            return;
        }
        self.start = self.end;
        self.marks.clear();
        self.disk = None;
        while !self.window.is_empty() {
            self.forget_oldest();
        }
        self.window = VecDeque::new();
    }

    /// Forgets what nobody needs: what every reader has seen, and is older than what is kept for
    /// those that come again.
    fn trim(&mut self, replay: u64) {
        if self.writing {
            return;
        }
        let unread = self.readers.iter().map(|place| place.at).min();
        // A full disk leaves only the window.
        let recent = match self.disk_full && unread.is_some() {
            true => self.end,
            false => self.end.saturating_sub(replay),
        };
        let needed = recent.min(unread.unwrap_or(u64::MAX));
        if replay == 0 {
            self.start = needed;
        } else {
            let passed = self.marks.partition_point(|mark| mark.offset <= needed);
            if let Some(first) = passed.checked_sub(1) {
                self.marks.drain(..first);
                self.start = self.marks[0].offset;
            }
        }
        while self
            .window
            .front()
            .is_some_and(|block| block.end() <= self.start)
        {
            self.forget_oldest();
        }
        let window = self.window_start();
        match &mut self.disk {
            Some(_) if self.start >= window => self.disk = None,
            Some(disk) if self.start - disk.freed >= limits::JOURNAL_FREE => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(&disk.file, flags, disk.freed, self.start - disk.freed) {
                    Ok(()) => disk.freed = self.start,
                    // It is freed with the file.
                    Err(error) => debug!(%error, "old output stays on disk"),
                }
            }
            _ => {}
        }
    }

    /// The oldest of a window that takes more than so many bytes.
    fn too_much(&mut self, window: u64) -> Option<Oldest> {
        if self.share.taken() <= window || self.writing {
            return None;
        }
        if self.disk.is_none() {
            match scratch::file() {
                Ok(file) => {
                    self.disk = Some(Disk {
                        file: Arc::new(file),
                        freed: self.window_start(),
                    });
                }
                Err(error) => self.refused(&error),
            }
        }
        let file = Arc::clone(&self.disk.as_ref()?.file);
        let mut excess = self.share.taken() - window / 2;
        let mut blocks = Vec::new();
        for block in &self.window {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(block.cost());
            blocks.push(block.clone());
        }
        let end = blocks.last()?.end();
        self.writing = true;
        Some(Oldest { file, blocks, end })
    }

    fn refused(&mut self, error: &io::Error) {
        if !self.disk_full {
            warn!(%error, "output does not fit on the disk");
        }
        self.disk_full = true;
    }

    /// Makes one piece of many small ones: they cost more, and most journals stay as short as when
    /// they end.
    fn compact(&mut self) {
        let len = self.end - self.window_start();
        if self.writing || self.window.len() < 2 || len > limits::JOURNAL_COMPACT {
            return;
        }
        let at = self.window_start();
        let mut whole = Vec::with_capacity(usize::try_from(len).unwrap_or(0));
        while let Some(block) = self.window.front() {
            whole.extend_from_slice(&block.bytes);
            self.forget_oldest();
        }
        let bytes = Bytes::from(whole);
        let block = Block { at, bytes };
        self.share.take(block.cost());
        self.window = VecDeque::from([block]);
    }
}

/// Reads a journal; while there is one, what it has still to read is kept.
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
                                self.journal.advance(self.id, bytes.len() as u64);
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

    /// What is left of bytes behind the events to be passed over.
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

#[cfg(test)]
mod tests {
    use std::ops::RangeInclusive;

    use super::*;

    const KEEP: Keep = Keep {
        window: 20_000,
        replay: 0,
        unread: 1 << 30,
    };

    fn journal(keep: Keep) -> (Arc<Journal>, EventReader) {
        let memory = Arc::new(Memory::new(None));
        let (journal, reader) = Journal::new(keep, &memory);
        journal.extend(event(1), 1);
        (journal, reader)
    }

    fn event(seq: u64) -> Bytes {
        Bytes::from(format!("{seq}{}\n\n", "x".repeat(990)))
    }

    async fn append(journal: &Journal, events: RangeInclusive<u64>) {
        for seq in events {
            let numbers = Numbers {
                first: Some(seq),
                last: seq,
            };
            journal.append(event(seq), numbers).await;
        }
    }

    /// Numbers of the events that are there.
    async fn read(reader: &mut EventReader, last: u64) -> Vec<u64> {
        let (mut text, mut numbers) = (Vec::new(), Vec::new());
        while numbers.last() != Some(&last) {
            text.extend_from_slice(&reader.next().await.expect("more to come"));
            numbers = String::from_utf8_lossy(&text)
                .split_terminator("\n\n")
                .map(|event| event.trim_end_matches('x').parse().unwrap())
                .collect();
        }
        numbers
    }

    fn all(range: RangeInclusive<u64>) -> Vec<u64> {
        range.collect()
    }

    #[tokio::test]
    async fn what_does_not_fit_waits_on_disk_in_order() {
        let (journal, mut reader) = journal(KEEP);
        // The reader falls behind twice; in between everything was read.
        append(&journal, 2..=300).await;
        assert!(journal.held().disk > 200_000 && journal.held().memory <= 2 * KEEP.window);
        assert_eq!(read(&mut reader, 300).await, all(1..=300));
        assert_eq!((journal.held().memory, journal.held().files), (0, 0));
        append(&journal, 301..=600).await;
        journal.finish();
        assert_eq!(read(&mut reader, 600).await, all(301..=600));
        assert!(reader.next().await.is_none());
        assert_eq!((journal.held().memory, journal.held().files), (0, 0));
    }

    #[tokio::test]
    async fn readers_begin_anywhere_and_each_gets_everything() {
        let keep = Keep {
            replay: 1 << 30,
            ..KEEP
        };
        let (journal, mut first) = journal(keep);
        append(&journal, 2..=1000).await;
        for since in [0, 1, 261, 262, 263, 264, 265, 999] {
            let mut reader = journal.reader(since).unwrap();
            assert_eq!(read(&mut reader, 1000).await, all(since + 1..=1000));
        }
        let mut at_end = journal.reader(1000).unwrap();
        assert_eq!(
            journal.reader(1001).unwrap_err(),
            Unavailable::Ahead { last: 1000 }
        );
        let (next, ()) = tokio::join!(read(&mut at_end, 1001), append(&journal, 1001..=1001));
        assert_eq!(next, [1001]);
        assert_eq!(read(&mut first, 1001).await, all(1..=1001));
        journal.finish();
        assert!(first.next().await.is_none());
        assert!(journal.reader(1001).unwrap().next().await.is_none());
    }

    #[tokio::test]
    async fn what_all_have_seen_is_kept_up_to_a_limit() {
        let keep = Keep {
            replay: 1_000_000,
            ..KEEP
        };
        let (journal, mut reader) = journal(keep);
        append(&journal, 2..=6000).await;
        // Nobody has read: everything is there.
        assert_eq!(read(&mut reader, 6000).await, all(1..=6000));
        append(&journal, 6001..=6001).await;
        let Err(Unavailable::Forgotten { first }) = journal.reader(0) else {
            panic!("everything is kept");
        };
        assert!((4700..=5000).contains(&first), "{first}");
        let mut again = journal.reader(first - 1).unwrap();
        assert_eq!(read(&mut again, 6001).await, all(first..=6001));
        // What was given back is told so, and what a reader needs is not given back.
        assert!(journal.held().disk < 1_400_000 + limits::JOURNAL_FREE);
        let mut slow = journal.reader(6000).unwrap();
        append(&journal, 6002..=9000).await;
        assert_eq!(read(&mut slow, 9000).await, all(6001..=9000));
    }

    #[tokio::test]
    async fn too_much_that_is_unread_leaves_no_room() {
        let keep = Keep {
            unread: 100_000,
            ..KEEP
        };
        let (journal, mut reader) = journal(keep);
        let mut last = 1;
        while journal.has_room() {
            last += 1;
            append(&journal, last..=last).await;
        }
        assert!((90..=110).contains(&last), "{last}");
        assert_eq!(read(&mut reader, last).await, all(1..=last));
        assert!(journal.has_room());
    }

    #[tokio::test]
    async fn nothing_is_kept_for_readers_that_left() {
        let (journal, reader) = journal(KEEP);
        append(&journal, 2..=300).await;
        let left = journal.left();
        assert!(!left.is_cancelled());
        drop(reader);
        assert!(left.is_cancelled());
        append(&journal, 301..=600).await;
        assert!(journal.has_room());
        assert_eq!((journal.held().memory, journal.held().files), (0, 0));
    }

    #[tokio::test]
    async fn a_short_journal_is_one_piece_at_its_end() {
        let keep = Keep {
            replay: 1 << 30,
            ..KEEP
        };
        let (journal, mut reader) = journal(keep);
        append(&journal, 2..=5).await;
        journal.finish();
        assert_eq!(journal.state().window.len(), 1);
        assert_eq!(read(&mut reader, 5).await, all(1..=5));
        assert!(reader.next().await.is_none());
    }
}
