//! Pipes between a process and the daemon.

use std::{io, os::fd::OwnedFd};

use bytes::{Bytes, BytesMut};
use rustix::{
    io::retry_on_intr,
    pipe::{PipeFlags, pipe_with},
};
use tokio::net::unix::pipe::Receiver;
use tracing::warn;

use super::Source;
use crate::limits;

/// Daemon's end of a pipe.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(super) source: Source,
    receiver: Option<Receiver>,
    buffer: BytesMut,
}

impl Pipe {
    fn new(source: Source, receiver: Receiver) -> Self {
        Self {
            source,
            receiver: Some(receiver),
            buffer: BytesMut::new(),
        }
    }

    /// Reads available output without waiting. Empty when there is none yet, `None` at the end.
    fn read_now(&mut self) -> Option<Bytes> {
        let receiver = self.receiver.as_ref()?;
        if self.buffer.capacity() - self.buffer.len() < limits::READ_CHUNK / 16 {
            self.buffer.reserve(limits::READ_CHUNK);
        }
        match receiver.try_read_buf(&mut self.buffer) {
            Ok(0) => {}
            Ok(_) => return Some(self.buffer.split().freeze()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Some(Bytes::new());
            }
            Err(error) => warn!(%error, "reading a command's output failed"),
        }
        self.receiver = None;
        None
    }

    /// Waits for the next output. `None` at the end; never completes after that. Safe to cancel.
    pub(super) async fn read(&mut self) -> Option<Bytes> {
        let Some(receiver) = &self.receiver else {
            return std::future::pending().await;
        };
        match receiver.readable().await {
            Ok(()) => self.read_now(),
            Err(error) => {
                warn!(%error, "waiting for a command's output failed");
                self.receiver = None;
                None
            }
        }
    }

    /// Number of unread bytes in the pipe.
    pub(super) fn waiting(&self) -> u64 {
        let receiver = self.receiver.as_ref();
        receiver
            .and_then(|receiver| rustix::io::ioctl_fionread(receiver).ok())
            .unwrap_or(0)
    }

    /// Reads up to `most` bytes without waiting. Bypasses tokio's readiness, which may be older
    /// than the exit of the process and then reports an empty pipe.
    pub(super) fn take_waiting(&self, most: u64) -> Option<Bytes> {
        let receiver = self.receiver.as_ref()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut piece = vec![0; most.min(limits::READ_CHUNK)];
        let len = retry_on_intr(|| rustix::io::read(receiver, piece.as_mut_slice())).ok()?;
        piece.truncate(len);
        (len > 0).then(|| Bytes::from(piece))
    }

    /// Creates a pipe whose output has ended.
    pub(super) fn closed() -> Self {
        Self {
            source: Source::Stderr,
            receiver: None,
            buffer: BytesMut::new(),
        }
    }

    /// Whether more output may come.
    pub(super) fn is_open(&self) -> bool {
        self.receiver.is_some()
    }
}

/// Child's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    /// Creates a pipe per stream, or one for both if `merged`.
    ///
    /// # Errors
    /// The system's error, for example when no descriptor is free.
    pub(crate) fn new(merged: bool) -> io::Result<(Vec<Pipe>, Self)> {
        let pipe = |source| -> io::Result<(Pipe, OwnedFd)> {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&ours, true)?;
            let ours = Receiver::from_owned_fd(ours)?;
            Ok((Pipe::new(source, ours), theirs))
        };
        let (out, stdout) = pipe(Source::Stdout)?;
        if merged {
            let stderr = stdout.try_clone()?;
            return Ok((vec![out], Self { stdout, stderr }));
        }
        let (err, stderr) = pipe(Source::Stderr)?;
        Ok((vec![out, err], Self { stdout, stderr }))
    }
}
