//! State of a journal: the bytes that it keeps, in memory and on disk.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt, sync::Arc, time::Instant};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use tracing::{debug, warn};

use crate::{limits, output::memory::MemoryShare, scratch};

#[derive(Debug)]
pub(super) struct State {
    /// Newest bytes, in memory.
    pub(super) window: VecDeque<Block>,
    /// Use of the memory that all journals share.
    pub(super) share: MemoryShare,
    /// Older bytes, on disk.
    pub(super) disk: Option<Disk>,
    /// After the disk rejected data: the time of the next attempt.
    pub(super) disk_full: Option<Instant>,
    /// Bytes kept for reconnecting clients, limited by the free space of the disk.
    pub(super) replay: u64,
    /// The file system cannot punch holes, so only the whole file can be freed.
    pub(super) no_holes: bool,
    /// A part of the window is being written to disk, and must not be removed meanwhile.
    pub(super) writing: bool,
    /// Offset of the oldest byte kept. An event begins here if events are kept for replay.
    pub(super) start: u64,
    /// Offset after the newest byte.
    pub(super) end: u64,
    /// Offsets at which an event begins, oldest first.
    pub(super) marks: VecDeque<Mark>,
    /// Number of the newest event.
    pub(super) last: u64,
    pub(super) readers: Vec<ReaderPosition>,
    pub(super) next_reader: u64,
    pub(super) finished: bool,
}

/// Piece of the window at an offset.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) at: u64,
    pub(super) bytes: Bytes,
}

impl Block {
    pub(super) fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    pub(super) fn cost(&self) -> u64 {
        self.bytes.len() as u64 + limits::BLOCK_COST
    }
}

/// File in which each byte has the same offset as in the journal. The bytes before `freed` have
/// been freed.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) file: Arc<File>,
    pub(super) freed: u64,
}

/// Offset at which the event `seq` begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) offset: u64,
    pub(super) seq: u64,
}

/// Offset up to which a reader has read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReaderPosition {
    pub(super) reader: u64,
    pub(super) at: u64,
}

/// Oldest part of a window, on its way to disk.
pub(super) struct SpillBatch {
    pub(super) file: Arc<File>,
    pub(super) blocks: Vec<Block>,
    pub(super) end: u64,
}

impl SpillBatch {
    pub(super) fn write(self) -> io::Result<()> {
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

/// Bytes of the first block from an offset on. Small blocks are joined for one write.
pub(super) fn joined<'a>(mut blocks: impl Iterator<Item = &'a Block>, from: u64) -> Bytes {
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
    pub(super) fn window_start(&self) -> u64 {
        self.window.front().map_or(self.end, |block| block.at)
    }

    pub(super) fn push(&mut self, bytes: Bytes, last: u64) {
        let block = Block {
            at: self.end,
            bytes,
        };
        self.last = last;
        self.end = block.end();
        self.share.take(block.cost());
        self.window.push_back(block);
    }

    pub(super) fn forget_oldest(&mut self) {
        if let Some(block) = self.window.pop_front() {
            self.share.give(block.cost());
        }
    }

    /// Drops all bytes.
    pub(super) fn clear(&mut self) {
        if self.writing {
            return;
        }
        self.start = self.end;
        self.marks.clear();
        self.disk = None;
        self.count_disk();
        while !self.window.is_empty() {
            self.forget_oldest();
        }
        self.window = VecDeque::new();
    }

    pub(super) fn position_mut(&mut self, reader: u64) -> Option<&mut ReaderPosition> {
        self.readers.iter_mut().find(|place| place.reader == reader)
    }

    /// Drops bytes that every reader has read, except those kept for reconnecting clients.
    pub(super) fn trim(&mut self, replay: u64, window: u64) {
        if self.writing {
            return;
        }
        let unread = self.readers.iter().map(|position| position.at).min();
        // Bytes that cannot move to disk, or cannot be freed there, are dropped as soon as
        // possible.
        let exact = replay == 0 || self.disk_full.is_some() || self.no_holes;
        let recent = match (exact, unread) {
            (true, Some(_)) => self.end,
            (true, None) if replay > 0 => self.end.saturating_sub(window / 2),
            _ => self.end.saturating_sub(replay),
        };
        let needed = recent.min(unread.unwrap_or(u64::MAX));
        let passed = self.marks.partition_point(|mark| mark.offset <= needed);
        if exact {
            // New readers begin only at marks.
            let behind = self.marks.partition_point(|mark| mark.offset < needed);
            self.marks.drain(..behind);
            self.start = self.start.max(needed);
        } else if let Some(first) = passed.checked_sub(1) {
            self.marks.drain(..first);
            self.start = self.start.max(self.marks[0].offset);
        }
        while self
            .window
            .front()
            .is_some_and(|block| block.end() <= self.start)
        {
            self.forget_oldest();
        }
        let window_start = self.window_start();
        match &mut self.disk {
            Some(_) if self.start >= window_start => self.disk = None,
            Some(disk) if self.start - disk.freed >= limits::JOURNAL_FREE && !self.no_holes => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(&disk.file, flags, disk.freed, self.start - disk.freed) {
                    Ok(()) => disk.freed = self.start,
                    Err(error) => {
                        debug!(%error, "old output cannot be freed before its file");
                        self.no_holes = true;
                    }
                }
            }
            _ => {}
        }
        self.count_disk();
    }

    /// Updates this journal's part of the disk use of all journals.
    pub(super) fn count_disk(&mut self) {
        let start = self.window_start();
        let disk = self.disk.as_ref();
        self.share
            .on_disk(disk.map_or(0, |disk| start.saturating_sub(disk.freed)));
    }

    /// Takes the oldest part of a window larger than `window` bytes, to be written to disk.
    pub(super) fn take_excess(&mut self, window: u64) -> Option<SpillBatch> {
        if self.share.taken() <= window || self.writing {
            return None;
        }
        if self.disk_full.is_some_and(|again| Instant::now() < again) {
            return None;
        }
        if self.disk.is_none() {
            match scratch::file() {
                Ok(file) => {
                    self.replay = self.replay.min(spare_bytes(&file));
                    self.disk = Some(Disk {
                        file: Arc::new(file),
                        freed: self.window_start(),
                    });
                }
                Err(error) => self.note_disk_error(&error),
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
        Some(SpillBatch { file, blocks, end })
    }

    pub(super) fn note_disk_error(&mut self, error: &io::Error) {
        if self.disk_full.is_none() {
            warn!(%error, "the disk rejected output");
        }
        self.disk_full = Some(Instant::now() + limits::DISK_FULL);
    }

    /// Merges the blocks of a short journal into one, which needs less memory. Most journals are
    /// short.
    pub(super) fn compact(&mut self) {
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

/// Free bytes of a file's file system that may hold events for reconnecting clients.
pub(super) fn spare_bytes(file: &File) -> u64 {
    fstatvfs(file).map_or(0, |place| {
        place.f_bavail.saturating_mul(place.f_frsize) / limits::REPLAY_PART
    })
}
