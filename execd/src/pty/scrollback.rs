//! Recent output of a terminal session, addressed by byte offset.

use std::{collections::VecDeque, sync::Mutex, time::Duration};

use tokio::sync::watch;

use crate::limits;

/// Output stream. A terminal has only [`Stream::Stdout`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Slice {
    /// Offset of the first byte.
    pub(super) from: u64,
    pub(super) stream: Stream,
    pub(super) bytes: Vec<u8>,
}

/// How far the holder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HolderPosition {
    /// Offset up to which it has read.
    pub(super) offset: u64,
    /// Bytes that it may be behind before the process waits; `None`: half of the ring.
    pub(super) slack: Option<u64>,
}

/// Ring buffer of the most recent output. It grows up to its capacity.
#[derive(Debug)]
pub(super) struct Scrollback {
    state: Mutex<State>,
    /// Number of bytes ever added. A change wakes the readers.
    total: watch::Sender<u64>,
    /// How far the holder is; `None` without a holder.
    held: watch::Sender<Option<HolderPosition>>,
    capacity: usize,
}

#[derive(Debug, Default)]
struct State {
    ring: VecDeque<u8>,
    total: u64,
    /// End offset and stream of each run of bytes of one stream, oldest first. The last run grows.
    runs: VecDeque<(u64, Stream)>,
}

impl Default for Scrollback {
    fn default() -> Self {
        Self::with_capacity(limits::PTY_RING)
    }
}

impl Scrollback {
    fn with_capacity(capacity: usize) -> Self {
        Self {
            state: Mutex::default(),
            total: watch::Sender::new(0),
            held: watch::Sender::new(None),
            capacity,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Number of bytes ever added.
    pub(super) fn total(&self) -> u64 {
        *self.total.borrow()
    }

    /// Adds output.
    pub(super) fn push(&self, stream: Stream, bytes: &[u8]) {
        let total = {
            let mut state = self.state();
            state.push(stream, bytes, self.capacity);
            state.total
        };
        self.total.send_replace(total);
    }

    /// Gives the holder time to catch up before further output evicts bytes that it has not read.
    pub(super) async fn make_room(&self, patience: Duration) {
        let total = self.total();
        let half = (self.capacity / 2) as u64;
        let keeps_up = |held: &Option<HolderPosition>| {
            held.is_none_or(|held| total.saturating_sub(held.offset) <= held.slack.unwrap_or(half))
        };
        let mut held = self.held.subscribe();
        let _late = tokio::time::timeout(patience, held.wait_for(keeps_up)).await;
    }

    /// Sets how far the holder is; `None` without a holder.
    pub(super) fn set_holder(&self, position: Option<HolderPosition>) {
        self.held.send_replace(position);
    }

    /// Waits until there is output after an offset.
    pub(super) async fn wait_beyond(&self, offset: u64) {
        let mut total = self.total.subscribe();
        // The sender lives as long as `self`, so the channel never closes.
        let _closed = total.wait_for(|total| *total > offset).await;
    }

    /// Reads up to `max` bytes of one stream, from an offset or from the oldest byte kept.
    pub(super) fn read(&self, offset: u64, max: usize) -> Option<Slice> {
        self.state().read(offset, max, true)
    }

    /// Reads up to `max` bytes of both streams, for replay frames.
    pub(super) fn replay(&self, offset: u64, max: usize) -> Option<Slice> {
        self.state().read(offset, max, false)
    }
}

impl State {
    fn push(&mut self, stream: Stream, bytes: &[u8], capacity: usize) {
        self.total += bytes.len() as u64;
        match self.runs.back_mut() {
            Some((end, last)) if *last == stream => *end = self.total,
            _ => self.runs.push_back((self.total, stream)),
        }
        let kept = &bytes[bytes.len().saturating_sub(capacity)..];
        let excess = (self.ring.len() + kept.len()).saturating_sub(capacity);
        self.ring.drain(..excess);
        self.ring.extend(kept);
        let oldest = self.oldest();
        while self.runs.len() > 1 && self.runs.front().is_some_and(|(end, _)| *end <= oldest) {
            self.runs.pop_front();
        }
    }

    /// Offset of the oldest byte kept.
    fn oldest(&self) -> u64 {
        self.total - self.ring.len() as u64
    }

    fn read(&self, offset: u64, max: usize, one_stream: bool) -> Option<Slice> {
        let from = offset.max(self.oldest());
        if from >= self.total {
            return None;
        }
        // Programs may make many runs of a byte each.
        let run = self.runs.partition_point(|(end, _)| *end <= from);
        let (run_end, stream) = self.runs[run];
        let end = if one_stream { run_end } else { self.total };
        let index = |offset: u64| usize::try_from(offset - self.oldest()).expect("in the ring");
        let start = index(from);
        let end = index(end).min(start + max);
        let (front, back) = self.ring.as_slices();
        let mut bytes = Vec::with_capacity(end - start);
        let cut = front.len();
        bytes.extend_from_slice(&front[start.min(cut)..end.min(cut)]);
        bytes.extend_from_slice(&back[start.max(cut) - cut..end.max(cut) - cut]);
        Some(Slice {
            from,
            stream,
            bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn old_bytes_are_evicted_and_offsets_stay_valid() {
        let scrollback = Scrollback::with_capacity(8);
        let all = |offset| {
            scrollback
                .replay(offset, 100)
                .map(|slice| (slice.from, slice.bytes))
        };
        assert_eq!(all(0), None);
        scrollback.push(Stream::Stdout, b"abcde");
        assert_eq!(all(0), Some((0, b"abcde".to_vec())));
        assert_eq!(all(3), Some((3, b"de".to_vec())));
        assert_eq!((all(5), all(99)), (None, None));
        scrollback.push(Stream::Stdout, b"fghij");
        assert_eq!(all(0), Some((2, b"cdefghij".to_vec())));
        scrollback.push(Stream::Stdout, b"0123456789ABCDEF");
        assert_eq!(all(0), Some((18, b"89ABCDEF".to_vec())));
        assert_eq!(scrollback.total(), 26);
    }

    #[test]
    fn a_read_returns_one_stream() {
        let scrollback = Scrollback::with_capacity(100);
        scrollback.push(Stream::Stdout, b"ab");
        scrollback.push(Stream::Stdout, b"c");
        scrollback.push(Stream::Stderr, b"XY");
        scrollback.push(Stream::Stdout, b"d");
        let read = |offset, max| {
            scrollback
                .read(offset, max)
                .map(|slice| (slice.stream, slice.bytes))
        };
        assert_eq!(read(0, 9), Some((Stream::Stdout, b"abc".to_vec())));
        assert_eq!(read(0, 2), Some((Stream::Stdout, b"ab".to_vec())));
        assert_eq!(read(3, 9), Some((Stream::Stderr, b"XY".to_vec())));
        assert_eq!(read(5, 9), Some((Stream::Stdout, b"d".to_vec())));
    }

    #[tokio::test(start_paused = true)]
    async fn output_waits_for_the_holder_with_a_limit() {
        let scrollback = Scrollback::with_capacity(8);
        scrollback.push(Stream::Stdout, b"0123456789");
        let patience = Duration::from_secs(1);
        scrollback.make_room(patience).await;
        let start = tokio::time::Instant::now();
        let hold = |offset, slack| scrollback.set_holder(Some(HolderPosition { offset, slack }));
        hold(2, None);
        scrollback.make_room(patience).await;
        assert_eq!(start.elapsed(), patience, "late");
        hold(9, None);
        scrollback.make_room(patience).await;
        assert_eq!(start.elapsed(), patience, "near enough");
        hold(9, Some(1));
        scrollback.make_room(patience).await;
        assert_eq!(start.elapsed(), patience, "within its window");
        hold(9, Some(0));
        scrollback.make_room(patience).await;
        assert_eq!(start.elapsed(), 2 * patience, "beyond its window");
    }

    proptest! {
        #[test]
        fn the_ring_holds_the_newest_bytes(pieces in proptest::collection::vec("[a-z]{0,12}", 0..8), offset in 0u64..80) {
            let scrollback = Scrollback::with_capacity(16);
            for piece in &pieces {
                scrollback.push(Stream::Stdout, piece.as_bytes());
            }
            let whole = pieces.concat().into_bytes();
            let from = (offset as usize).max(whole.len().saturating_sub(16));
            let want = whole.get(from..).filter(|tail| !tail.is_empty()).map(<[u8]>::to_vec);
            prop_assert_eq!(scrollback.replay(offset, 100).map(|slice| slice.bytes), want);
        }
    }
}
