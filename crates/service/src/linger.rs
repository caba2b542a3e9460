//! Closing a connection on which the client may still be sending.
//!
//! The kernel resets a connection that is closed with bytes unread, and a reset discards what the
//! client has not read yet: an early answer to an upload, the close frame of a WebSocket. So only
//! the sending side is closed at first, and what still comes is read and thrown away until the
//! client closes too (RFC 9112 §9.6), within bounds.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
    runtime::Handle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::Supervisor;

/// How long a client may take to close its side after ours.
const LINGER: Duration = Duration::from_secs(10);
/// How long it may be silent meanwhile.
const SILENCE: Duration = Duration::from_secs(2);
/// One read of what is thrown away. Small: each connection that lingers has a buffer of it.
const READ: usize = 4 << 10;

/// A connection that lingers, in a task of its own, when it is dropped before the client closed it.
/// `H` is kept until the end, for example a slot among the connections.
#[derive(Debug)]
pub struct LingeringStream<H: Send + 'static> {
    /// Absent once it is dropped.
    open: Option<(TcpStream, H)>,
    /// Nothing more can be received or sent.
    over: bool,
    /// Ends the lingering early.
    cut: CancellationToken,
    tasks: Supervisor,
}

impl<H: Send + 'static> LingeringStream<H> {
    /// Wraps a connection. Its lingering is a task of `tasks`.
    pub fn new(stream: TcpStream, held: H, tasks: &Supervisor) -> Self {
        Self {
            open: Some((stream, held)),
            over: false,
            cut: CancellationToken::new(),
            tasks: tasks.clone(),
        }
    }

    /// Ends the lingering when the token is cancelled, or prevents it.
    #[must_use]
    pub fn cut_by(mut self, cut: CancellationToken) -> Self {
        self.cut = cut;
        self
    }

    /// Waits for data, and leaves it there.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let (stream, _) = self.open.as_ref().expect("it is taken by drop only");
        stream.peek(buffer).await
    }

    fn stream(&mut self) -> Pin<&mut TcpStream> {
        let (stream, _) = self.open.as_mut().expect("it is taken by drop only");
        Pin::new(stream)
    }

    fn note<T>(&mut self, result: io::Result<T>) -> Poll<io::Result<T>> {
        self.over |= result.is_err();
        Poll::Ready(result)
    }
}

impl<H: Send + Unpin + 'static> AsyncRead for LingeringStream<H> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.remaining();
        let read = ready!(self.stream().poll_read(cx, buffer));
        self.over |= before > 0 && buffer.remaining() == before;
        self.note(read)
    }
}

impl<H: Send + Unpin + 'static> AsyncWrite for LingeringStream<H> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream().poll_write(cx, bytes));
        self.note(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(self.stream().poll_write_vectored(cx, slices));
        self.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.open
            .as_ref()
            .is_some_and(|(stream, _)| stream.is_write_vectored())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

impl<H: Send + 'static> AsFd for LingeringStream<H> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let (stream, _) = self.open.as_ref().expect("it is taken by drop only");
        stream.as_fd()
    }
}

impl<H: Send + 'static> Drop for LingeringStream<H> {
    fn drop(&mut self) {
        let Some((stream, held)) = self.open.take() else {
            return;
        };
        // Without a runtime, at the end of the process, it closes at once.
        if self.over || self.cut.is_cancelled() || Handle::try_current().is_err() {
            return;
        }
        let cut = self.cut.clone();
        self.tasks
            .spawn_abortable("lingering connection", async move {
                tokio::select! {
                    _late = timeout(LINGER, linger(stream)) => {}
                    () = cut.cancelled() => {}
                }
                drop(held);
            });
    }
}

/// Closes the sending side and reads until the client closes the other, or is silent.
async fn linger(mut stream: TcpStream) {
    // It may be closed already.
    let _closed = stream.shutdown().await;
    let mut waste = vec![0; READ];
    while let Ok(Ok(read)) = timeout(SILENCE, stream.read(&mut waste)).await
        && read > 0
    {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        net::TcpListener,
        sync::{OwnedSemaphorePermit, Semaphore},
    };

    use super::*;

    /// Guards against hanging.
    const LONG: Duration = Duration::from_secs(60);

    async fn pair(
        tasks: &Supervisor,
        slots: &Arc<Semaphore>,
    ) -> (LingeringStream<OwnedSemaphorePermit>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let slot = Arc::clone(slots).try_acquire_owned().unwrap();
        let server = LingeringStream::new(accepted.unwrap().0, slot, tasks);
        (server, client.unwrap())
    }

    #[tokio::test]
    async fn an_early_answer_reaches_a_client_that_still_sends() {
        let (tasks, slots) = (Supervisor::new(), Arc::new(Semaphore::new(1)));
        let (mut server, mut client) = pair(&tasks, &slots).await;
        server.write_all(b"enough").await.unwrap();
        drop(server);
        assert_eq!(slots.available_permits(), 0, "it counts until its end");
        // More than the sockets hold, so that the peer has to read it.
        client.write_all(&vec![0; 16 << 20]).await.unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "enough");
        drop(client);
        let slot = timeout(LONG, slots.acquire()).await;
        assert!(slot.is_ok(), "the client closed");
    }

    #[tokio::test]
    async fn nothing_lingers_after_the_client_closed() {
        let (tasks, slots) = (Supervisor::new(), Arc::new(Semaphore::new(1)));
        let (mut server, client) = pair(&tasks, &slots).await;
        drop(client);
        assert_eq!(server.read(&mut [0; 8]).await.unwrap(), 0);
        drop(server);
        assert_eq!((slots.available_permits(), tasks.running()), (1, 0));
    }

    #[tokio::test]
    async fn a_cut_ends_or_prevents_it() {
        let (tasks, slots) = (Supervisor::new(), Arc::new(Semaphore::new(1)));
        let cut = CancellationToken::new();
        let (server, _client) = pair(&tasks, &slots).await;
        drop(server.cut_by(cut.clone()));
        assert_eq!(slots.available_permits(), 0, "it lingers");
        cut.cancel();
        let slot = timeout(LINGER / 2, slots.acquire()).await;
        drop(slot.expect("it is cut").unwrap());
        let (server, _client) = pair(&tasks, &slots).await;
        drop(server.cut_by(cut));
        assert_eq!(slots.available_permits(), 1, "it does not linger");
    }

    #[tokio::test]
    async fn a_stop_ends_it() {
        let (tasks, slots) = (Supervisor::new(), Arc::new(Semaphore::new(1)));
        let (server, _client) = pair(&tasks, &slots).await;
        drop(server);
        assert_eq!(tasks.drain(LONG).await, crate::Drained::Gracefully);
    }
}
