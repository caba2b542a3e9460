//! Output on its way from a process to one reader: a queue that never makes the process wait and
//! never takes more than its window of memory.
//!
//! ```text
//!   push ─▶ [ window in memory ] ─▶ next        as long as the reader keeps up
//!   push ─▶ [ file ] ─▶ [ window ] ─▶ next      from the first full window until the file is empty
//! ```
//! Order is kept because nothing enters the window while the file holds something.

use std::{collections::VecDeque, fs::File, os::unix::fs::FileExt, sync::Arc, sync::Mutex};

use bytes::Bytes;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::Outcome;
use crate::{limits, scratch};

/// Which output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
}

impl Source {
    /// Name of its events.
    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) source: Source,
    /// Unix milliseconds when it was read.
    pub(crate) at: i64,
    pub(crate) bytes: Bytes,
}

impl Chunk {
    fn cost(&self) -> usize {
        self.bytes.len() + limits::CHUNK_COST
    }
}

/// What the reader gets.
#[derive(Debug)]
pub(crate) enum Next {
    /// Some output, in order.
    Chunks(VecDeque<Chunk>),
    /// The end. That many bytes were dropped because the disk had no room.
    End { outcome: Outcome, dropped: u64 },
}

#[derive(Debug, Default)]
pub(crate) struct Spool {
    state: Mutex<State>,
    changed: Notify,
    /// Cancelled when the reader went away.
    left: CancellationToken,
    window: usize,
    spill: u64,
}

#[derive(Debug, Default)]
struct State {
    window: VecDeque<Chunk>,
    cost: usize,
    spill: Option<Spill>,
    outcome: Option<Outcome>,
    abandoned: bool,
    dropped: u64,
}

/// The part on disk. Only the pump appends, only the reader consumes.
#[derive(Debug)]
struct Spill {
    file: Arc<File>,
    written: u64,
    read: u64,
    writing: bool,
}

impl Spill {
    fn is_empty(&self) -> bool {
        self.written == self.read && !self.writing
    }
}

impl Spool {
    pub(crate) fn new() -> Self {
        Self::with_limits(limits::WINDOW, limits::SPILL)
    }

    fn with_limits(window: usize, spill: u64) -> Self {
        Self {
            window,
            spill,
            ..Self::default()
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Takes a chunk. Waits at most for the disk, never for the reader.
    pub(crate) async fn push(&self, chunk: Chunk) {
        let Some((file, offset)) = self.admit(&chunk) else {
            return;
        };
        let record = encode(&chunk);
        let len = record.len() as u64;
        let write = tokio::task::spawn_blocking(move || file.write_all_at(&record, offset));
        let written = write.await.unwrap_or_else(|error| Err(error.into()));
        let mut state = self.state();
        // Gone with the reader.
        let Some(spill) = state.spill.as_mut() else {
            return;
        };
        spill.writing = false;
        match written {
            Ok(()) => spill.written += len,
            Err(error) => {
                warn!(%error, "output dropped");
                state.dropped += chunk.bytes.len() as u64;
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Takes the chunk into the window, drops it, or says where in which file it belongs.
    fn admit(&self, chunk: &Chunk) -> Option<(Arc<File>, u64)> {
        let mut state = self.state();
        if state.abandoned {
            return None;
        }
        let cost = chunk.cost();
        let file_empty = state.spill.as_ref().is_none_or(Spill::is_empty);
        if file_empty && (state.window.is_empty() || state.cost + cost <= self.window) {
            state.cost += cost;
            state.window.push_back(chunk.clone());
            drop(state);
            self.changed.notify_one();
            return None;
        }
        if state.spill.is_none() {
            match scratch::file() {
                Ok(file) => {
                    state.spill = Some(Spill {
                        file: Arc::new(file),
                        written: 0,
                        read: 0,
                        writing: false,
                    });
                }
                Err(error) => warn!(%error, "no room for output on disk"),
            }
        }
        let end = self.spill.saturating_sub(cost as u64);
        match &mut state.spill {
            Some(spill) if spill.written <= end => {
                spill.writing = true;
                Some((Arc::clone(&spill.file), spill.written))
            }
            _ => {
                state.dropped += chunk.bytes.len() as u64;
                None
            }
        }
    }

    /// Says how it ended. Nothing is pushed afterwards.
    pub(crate) fn finish(&self, outcome: Outcome) {
        self.state().outcome = Some(outcome);
        self.changed.notify_one();
    }

    /// The reader went away: what is here and what comes is dropped, at once, because children of
    /// the command may hold its pipe, and with it this, for as long as they like.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        state.window = VecDeque::new();
        state.cost = 0;
        state.spill = None;
        drop(state);
        self.left.cancel();
    }

    /// Waits until the reader went away, whether or not it had read everything.
    pub(crate) async fn left(&self) {
        self.left.cancelled().await;
    }

    /// The next output, or the end. Safe to cancel.
    pub(crate) async fn next(&self) -> Next {
        loop {
            match self.ready() {
                Ready::Now(next) => return next,
                Ready::OnDisk { file, from, to } => {
                    let read = tokio::task::spawn_blocking(move || decode(&file, from, to));
                    let (chunks, read) = read.await.unwrap_or_else(|error| {
                        warn!(%error, "output on disk lost");
                        (VecDeque::new(), to)
                    });
                    self.consumed(read);
                    if !chunks.is_empty() {
                        return Next::Chunks(chunks);
                    }
                }
                Ready::Later => self.changed.notified().await,
            }
        }
    }

    fn ready(&self) -> Ready {
        let mut state = self.state();
        if !state.window.is_empty() {
            state.cost = 0;
            return Ready::Now(Next::Chunks(std::mem::take(&mut state.window)));
        }
        if let Some(spill) = state
            .spill
            .as_ref()
            .filter(|spill| spill.read < spill.written)
        {
            return Ready::OnDisk {
                file: Arc::clone(&spill.file),
                from: spill.read,
                to: spill.written,
            };
        }
        match (&state.outcome, &state.spill) {
            (_, Some(spill)) if spill.writing => Ready::Later,
            (Some(outcome), _) => Ready::Now(Next::End {
                outcome: outcome.clone(),
                dropped: state.dropped,
            }),
            (None, _) => Ready::Later,
        }
    }

    /// Everything before this place in the file was read. An empty file starts over, so that a
    /// reader that keeps up never lets it grow.
    fn consumed(&self, read: u64) {
        let mut state = self.state();
        let Some(spill) = &mut state.spill else {
            return;
        };
        spill.read = read;
        if spill.is_empty() {
            (spill.read, spill.written) = (0, 0);
            if let Err(error) = spill.file.set_len(0) {
                warn!(%error, "output on disk not freed");
            }
        }
    }
}

enum Ready {
    Now(Next),
    OnDisk { file: Arc<File>, from: u64, to: u64 },
    Later,
}

/// Source, time and length in front of the bytes.
const HEADER: usize = 13;

fn encode(chunk: &Chunk) -> Vec<u8> {
    let len = u32::try_from(chunk.bytes.len()).expect("chunks are small");
    let mut record = Vec::with_capacity(HEADER + chunk.bytes.len());
    record.push(chunk.source as u8);
    record.extend_from_slice(&chunk.at.to_le_bytes());
    record.extend_from_slice(&len.to_le_bytes());
    record.extend_from_slice(&chunk.bytes);
    record
}

/// Reads whole records between two places, and says up to where. What cannot be read is passed over.
fn decode(file: &File, from: u64, to: u64) -> (VecDeque<Chunk>, u64) {
    let most = (limits::SPILL_READ + limits::READ_CHUNK) as u64;
    let wanted = usize::try_from((to - from).min(most)).expect("bounded above");
    let mut buffer = vec![0; wanted];
    if let Err(error) = file.read_exact_at(&mut buffer, from) {
        warn!(%error, "output on disk lost");
        return (VecDeque::new(), to);
    }
    let buffer = Bytes::from(buffer);
    let mut chunks = VecDeque::new();
    let mut at = 0;
    while let Some(header) = buffer.get(at..at + HEADER) {
        let (source, rest) = header.split_at(1);
        let (time, len) = rest.split_at(8);
        let len = u32::from_le_bytes(len.try_into().expect("four bytes")) as usize;
        let start = at + HEADER;
        if start + len > buffer.len() {
            break;
        }
        chunks.push_back(Chunk {
            source: match source[0] {
                0 => Source::Stdout,
                _ => Source::Stderr,
            },
            at: i64::from_le_bytes(time.try_into().expect("eight bytes")),
            bytes: buffer.slice(start..start + len),
        });
        at = start + len;
    }
    (chunks, from + at as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Exit;

    fn chunk(index: u32) -> Chunk {
        Chunk {
            source: if index.is_multiple_of(3) {
                Source::Stderr
            } else {
                Source::Stdout
            },
            at: i64::from(index),
            bytes: Bytes::from(vec![index as u8; 1000]),
        }
    }

    fn outcome() -> Outcome {
        Outcome::ended(Exit::Code(0), None)
    }

    #[tokio::test]
    async fn what_does_not_fit_waits_on_disk_in_order() {
        let spool = Spool::with_limits(5000, 1 << 20);
        let mut got = Vec::new();
        // The reader falls behind twice; in between the file is drained and starts over.
        for round in 0..2 {
            for index in 0..300 {
                spool.push(chunk(round * 300 + index)).await;
            }
            while got.len() < (round as usize + 1) * 300 {
                match spool.next().await {
                    Next::Chunks(chunks) => got.extend(chunks),
                    Next::End { .. } => panic!("ended early"),
                }
            }
        }
        spool.finish(outcome());
        assert_eq!(got, (0..600).map(chunk).collect::<Vec<_>>());
        assert!(matches!(spool.next().await, Next::End { dropped: 0, .. }));
        let state = spool.state();
        assert_eq!(
            state.spill.as_ref().unwrap().file.metadata().unwrap().len(),
            0
        );
    }

    #[tokio::test]
    async fn a_full_disk_drops_and_tells() {
        let spool = Spool::with_limits(5000, 10_000);
        for index in 0..100 {
            spool.push(chunk(index)).await;
        }
        spool.finish(outcome());
        let (mut bytes, mut lost) = (0, None);
        while lost.is_none() {
            match spool.next().await {
                Next::Chunks(chunks) => {
                    bytes += chunks
                        .iter()
                        .map(|chunk| chunk.bytes.len() as u64)
                        .sum::<u64>()
                }
                Next::End { dropped, .. } => lost = Some(dropped),
            }
        }
        assert!(bytes >= 10_000, "{bytes}");
        assert_eq!(bytes + lost.unwrap(), 100_000);
    }

    #[tokio::test]
    async fn nothing_is_kept_for_a_reader_that_left() {
        let spool = Spool::with_limits(5000, 1 << 20);
        for index in 0..100 {
            spool.push(chunk(index)).await;
        }
        let file = spool
            .state()
            .spill
            .as_ref()
            .map(|spill| Arc::downgrade(&spill.file));
        spool.abandon();
        assert!(file.unwrap().upgrade().is_none(), "the file is closed");
        for index in 0..100 {
            spool.push(chunk(index)).await;
        }
        let state = spool.state();
        assert!(state.window.is_empty() && state.spill.is_none());
    }
}
