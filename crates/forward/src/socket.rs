//! The socket of a connection to a backend.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

/// A socket that may end with a reset. The side that closes a connection in the usual way occupies its
/// port for another minute, so that a proxy which closes hundreds a second would run out of ports.
pub(crate) struct Socket {
    stream: TcpStream,
    resets: Arc<AtomicBool>,
}

/// Lets a socket end with a reset.
pub(crate) struct Resetting(Arc<AtomicBool>);

impl Resetting {
    /// Resets the connection when its socket is dropped. What was not sent or read by then is lost.
    pub(crate) fn at_drop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Socket {
    pub(crate) fn new(stream: TcpStream) -> (Self, Resetting) {
        let resets = Arc::<AtomicBool>::default();
        let resetting = Resetting(Arc::clone(&resets));
        (Self { stream, resets }, resetting)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.resets.load(Ordering::Relaxed) {
            // Otherwise it is closed in the usual way.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
