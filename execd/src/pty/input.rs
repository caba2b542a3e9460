//! Queue of input from a client to the process.

use std::{collections::VecDeque, future::pending, io};

use bytes::{Buf, Bytes};

use super::process::{AsyncDescriptor, write};
use crate::limits;

/// Input that the process has not read yet. While the queue is full, execd reads no message from
/// the client, which blocks as it would at a terminal.
#[derive(Debug, Default)]
pub(super) struct Input {
    queue: VecDeque<Bytes>,
    len: usize,
}

impl Input {
    pub(super) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.len += bytes.len();
            self.queue.push_back(bytes);
        }
    }

    /// Whether the client must wait. The queue may exceed its limit by one message.
    pub(super) fn is_full(&self) -> bool {
        self.len >= limits::PTY_INPUT || self.queue.len() >= limits::PTY_INPUT_FRAMES
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes a part of the queue. Never completes while it is empty. Safe to cancel.
    ///
    /// # Errors
    /// When the process reads no more input.
    pub(super) async fn write(&mut self, end: &AsyncDescriptor) -> io::Result<()> {
        let Some(front) = self.queue.front_mut() else {
            return pending().await;
        };
        let written = write(end, front).await?;
        front.advance(written);
        self.len -= written;
        if front.is_empty() {
            self.queue.pop_front();
        }
        Ok(())
    }

    /// Writes the rest of the queue.
    ///
    /// # Errors
    /// When the process reads no more input.
    pub(super) async fn finish(&mut self, end: &AsyncDescriptor) -> io::Result<()> {
        while !self.queue.is_empty() {
            self.write(end).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_limited_in_bytes_and_frames() {
        let mut input = Input::default();
        input.push(Bytes::new());
        assert!(input.queue.is_empty());
        input.push(Bytes::from(vec![0; limits::PTY_INPUT - 1]));
        assert!(!input.is_full());
        input.push(Bytes::from_static(b"x"));
        assert!(input.is_full());
        input.clear();
        for _ in 0..limits::PTY_INPUT_FRAMES {
            assert!(!input.is_full());
            input.push(Bytes::from_static(b"x"));
        }
        assert!(input.is_full());
    }
}
