//! State of a journal: which bytes it keeps, and where.

use std::{collections::VecDeque, fs::File, io, os::unix::fs::FileExt, sync::Arc, time::Instant};

use bytes::Bytes;
use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use tracing::{debug, warn};

use crate::{limits, output::memory::Share, scratch};

#[derive(Debug)]
pub(super) struct State {
    /// The newest bytes.
    pub(super) window: VecDeque<Block>,
    /// Their share of the memory of all journals.
    pub(super) share: Share,
    /// Older ones.
    pub(super) disk: Option<Disk>,
    /// When the disk, which took nothing when it was asked last, is asked again.
    pub(super) disk_full: Option<Instant>,
    /// Bytes that are kept for those that come again, as far as the disk has them to spare.
    pub(super) replay: u64,
    /// The file system cannot punch holes; only whole files can be freed.
    pub(super) no_holes: bool,
    /// The oldest of the window are being written to disk: nothing of them may go meanwhile.
    pub(super) writing: bool,
    /// The first byte that is kept. An event begins here if anything is kept for replay.
    pub(super) start: u64,
    /// End offset.
    pub(super) end: u64,
    /// Places where an event begins, oldest first.
    pub(super) marks: VecDeque<Mark>,
    /// Number of the last event.
    pub(super) last: u64,
    pub(super) readers: Vec<Position>,
    pub(super) next_reader: u64,
    pub(super) finished: bool,
}

/// Bytes at an offset.
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

/// Each byte lies at its own offset; those before `freed` were given back.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) file: Arc<File>,
    pub(super) freed: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) offset: u64,
    pub(super) seq: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Position {
    pub(super) reader: u64,
    pub(super) at: u64,
}

/// The oldest of a window, on its way to disk.
pub(super) struct Oldest {
    pub(super) file: Arc<File>,
    pub(super) blocks: Vec<Block>,
    pub(super) end: u64,
}

impl Oldest {
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

/// The bytes of blocks from an offset on; of several small ones enough for one write.
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

    pub(super) fn place(&mut self, reader: u64) -> Option<&mut Position> {
        self.readers.iter_mut().find(|place| place.reader == reader)
    }

    /// Drops bytes that every reader has seen, if they are older than the part kept for
    /// reconnecting clients.
    pub(super) fn trim(&mut self, replay: u64, window: u64) {
        if self.writing {
            return;
        }
        let unread = self.readers.iter().map(|place| place.at).min();
        // What cannot be moved to disk, or not be freed there, is kept no longer than it must be.
        let exact = replay == 0 || self.disk_full.is_some() || self.no_holes;
        let recent = match (exact, unread) {
            (true, Some(_)) => self.end,
            (true, None) if replay > 0 => self.end.saturating_sub(window / 2),
            _ => self.end.saturating_sub(replay),
        };
        let needed = recent.min(unread.unwrap_or(u64::MAX));
        let passed = self.marks.partition_point(|mark| mark.offset <= needed);
        if exact {
            // No reader can begin between two marks.
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
        let window = self.window_start();
        match &mut self.disk {
            Some(_) if self.start >= window => self.disk = None,
            Some(disk) if self.start - disk.freed >= limits::JOURNAL_FREE && !self.no_holes => {
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                match fallocate(&disk.file, flags, disk.freed, self.start - disk.freed) {
                    Ok(()) => disk.freed = self.start,
                    Err(error) => {
                        debug!(%error, "old output is freed only with its file");
                        self.no_holes = true;
                    }
                }
            }
            _ => {}
        }
        self.count_disk();
    }

    /// Updates the disk use of all journals with this one's.
    pub(super) fn count_disk(&mut self) {
        let start = self.window_start();
        let disk = self.disk.as_ref();
        self.share
            .on_disk(disk.map_or(0, |disk| start.saturating_sub(disk.freed)));
    }

    /// The oldest of a window that takes more than so many bytes.
    pub(super) fn too_much(&mut self, window: u64) -> Option<Oldest> {
        if self.share.taken() <= window || self.writing {
            return None;
        }
        if self.disk_full.is_some_and(|again| Instant::now() < again) {
            return None;
        }
        if self.disk.is_none() {
            match scratch::file() {
                Ok(file) => {
                    self.replay = self.replay.min(to_spare(&file));
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

    pub(super) fn refused(&mut self, error: &io::Error) {
        if self.disk_full.is_none() {
            warn!(%error, "output does not fit on the disk");
        }
        self.disk_full = Some(Instant::now() + limits::DISK_FULL);
    }

    /// Merges many small pieces into one: they cost more, and most journals stay that short.
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

/// Bytes of a file system available for events that may never be read again.
pub(super) fn to_spare(file: &File) -> u64 {
    fstatvfs(file).map_or(0, |place| {
        place.f_bavail.saturating_mul(place.f_frsize) / limits::REPLAY_PART
    })
}
