//! Input on its way from a client to the process.

use std::{collections::VecDeque, future::pending, io};

use bytes::{Buf, Bytes};

use super::process::{End, write};
use crate::limits;

/// Input that waits for the process to read. While it is full its client is not read from: it waits
/// too, as it would at a terminal.
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

    /// Whether the client has to wait. One message more may be there than the limit says.
    pub(super) fn is_full(&self) -> bool {
        self.len >= limits::PTY_INPUT || self.queue.len() >= limits::PTY_INPUT_FRAMES
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Writes some of it; without any, forever pending. Safe to cancel.
    ///
    /// # Errors
    /// When no process reads the input any more.
    pub(super) async fn write(&mut self, end: &End) -> io::Result<()> {
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

    /// Writes what is left.
    ///
    /// # Errors
    /// When no process reads the input any more.
    pub(super) async fn finish(&mut self, end: &End) -> io::Result<()> {
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
    fn it_is_full_by_bytes_and_by_frames() {
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
