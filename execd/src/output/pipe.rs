//! The pipes between a process and the daemon.

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

/// The daemon's end of a pipe.
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

    /// Available output, or an empty piece if there is none; `None` after the last. Never waits.
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

    /// The next output; `None` at the end, and from then on forever pending. Safe to cancel.
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

    /// Bytes in the pipe right now.
    pub(super) fn waiting(&self) -> u64 {
        let receiver = self.receiver.as_ref();
        receiver
            .and_then(|receiver| rustix::io::ioctl_fionread(receiver).ok())
            .unwrap_or(0)
    }

    /// Up to `most` bytes of what is in the pipe. Asks the kernel: what the runtime knows of the
    /// pipe may be older than the end of the process, and would say that nothing is there.
    pub(super) fn take_waiting(&self, most: u64) -> Option<Bytes> {
        let receiver = self.receiver.as_ref()?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let mut piece = vec![0; most.min(limits::READ_CHUNK)];
        let len = retry_on_intr(|| rustix::io::read(receiver, piece.as_mut_slice())).ok()?;
        piece.truncate(len);
        (len > 0).then(|| Bytes::from(piece))
    }

    /// A pipe without output.
    pub(super) fn closed() -> Self {
        Self {
            source: Source::Stderr,
            receiver: None,
            buffer: BytesMut::new(),
        }
    }

    /// Whether a process may still write.
    pub(super) fn is_open(&self) -> bool {
        self.receiver.is_some()
    }
}

/// The child's ends of the pipes.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) stdout: OwnedFd,
    pub(crate) stderr: OwnedFd,
}

impl Pipes {
    /// Two pipes, or one for both streams.
    ///
    /// # Errors
    /// When descriptors are short.
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
