//! Whether the answer to a create reached its client.
//!
//! An answer counts as written when the kernel took its last byte. A client that closes its
//! connection before that is distinguished from one that only sends no more (a half-close of HTTP/1.1):
//! both look the same until something is sent to them, and then only the one that is gone answers
//! with a reset. So the end of a connection is kept from hyper, which would give up the request, as
//! long as a create is under way on it.

use std::{
    io,
    mem::MaybeUninit,
    os::fd::AsFd,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use axum::extract::FromRequestParts;
use bytes::Bytes;
use http::{Version, request::Parts};
use http_body::{Body, Frame, SizeHint};
use osb_service::{Supervisor, linger::LingeringStream};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, Interest, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tracing::debug;

use super::connections::Slot;
use crate::sandbox::Unanswered;

/// Longest wait for the reset of a client that may be gone: longer than a packet takes round the
/// world, also when it is lost once or twice.
const RESET_WAIT: Duration = Duration::from_secs(5);

/// What becomes of the answers on a connection.
#[derive(Clone, Debug)]
pub(super) struct Delivery(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    tasks: Supervisor,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Creates of HTTP/1.1 under way, which keep the end of the connection from hyper.
    held: usize,
    /// The client sends no more.
    has_ended: bool,
    /// Who reads, while the end is kept from it.
    reader: Option<Waker>,
    /// Answers that hyper has, but the kernel not yet.
    handed: Vec<Answer>,
    /// The connection is gone.
    is_closed: bool,
}

/// An answer on its way. Dropped before it arrived, it takes the sandbox with it.
#[derive(Debug)]
struct Answer {
    unanswered: Unanswered,
    _hold: Option<Arc<Hold>>,
}

/// Keeps the end of the connection from hyper.
#[derive(Debug)]
pub(super) struct Hold(Arc<Shared>);

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.locked();
        state.held -= 1;
        if state.held == 0
            && let Some(reader) = state.reader.take()
        {
            reader.wake();
        }
    }
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, State> {
        // Counters and a list: whole after every operation.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Delivery {
    /// A connection whose stream notices what becomes of its answers.
    pub(super) fn over(tcp: LingeringStream<Slot>, tasks: &Supervisor) -> (Self, Stream) {
        let shared = Arc::new(Shared {
            tasks: tasks.clone(),
            state: Mutex::default(),
        });
        let stream = Stream {
            tcp,
            shared: Arc::clone(&shared),
        };
        (Self(shared), stream)
    }

    fn hold(&self) -> Arc<Hold> {
        self.0.locked().held += 1;
        Arc::new(Hold(Arc::clone(&self.0)))
    }

    /// hyper has the whole answer.
    fn hand_over(&self, answer: Answer) {
        let mut state = self.0.locked();
        if state.is_closed {
            // Dropping takes the lock again.
            drop(state);
            return drop(answer);
        }
        state.handed.push(answer);
    }
}

/// The client of a request, as far as answers reach it.
#[derive(Debug)]
pub(super) struct Recipient {
    /// `None` in tests without a connection.
    connection: Option<Delivery>,
    hold: Option<Arc<Hold>>,
    is_http2: bool,
}

impl<S: Send + Sync> FromRequestParts<S> for Recipient {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let connection = parts.extensions.get::<Delivery>().cloned();
        let is_http2 = parts.version == Version::HTTP_2;
        // A connection of HTTP/2 that ends is of no use to any of its requests.
        let held = connection.as_ref().filter(|_| !is_http2);
        Ok(Self {
            hold: held.map(Delivery::hold),
            connection,
            is_http2,
        })
    }
}

impl Recipient {
    /// Keeps a half-closed connection open until the response that this is put in is written.
    pub(super) fn hold(&self) -> Option<Arc<Hold>> {
        self.hold.clone()
    }

    /// The body of the answer that carries the sandbox's id.
    pub(super) fn answer(self, data: Bytes, unanswered: Unanswered) -> AnswerBody {
        AnswerBody {
            data: Some(data),
            answer: Some(Answer {
                unanswered,
                _hold: self.hold,
            }),
            connection: self.connection,
            is_http2: self.is_http2,
        }
    }
}

/// A body that knows what becomes of it.
#[derive(Debug)]
pub(super) struct AnswerBody {
    data: Option<Bytes>,
    answer: Option<Answer>,
    connection: Option<Delivery>,
    is_http2: bool,
}

impl AnswerBody {
    fn hand_over(&mut self) {
        let Some(answer) = self.answer.take() else {
            return;
        };
        match &self.connection {
            Some(connection) => connection.hand_over(answer),
            None => answer.unanswered.answered(),
        }
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if let Some(data) = self.data.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        // With HTTP/2 the library asks for the end once the client's window has room for the data.
        self.hand_over();
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_none() && self.answer.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.data.as_ref().map_or(0, |data| data.len() as u64))
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        // HTTP/1.1 has a length and does not ask for the end. HTTP/2 does, unless the stream is reset.
        if self.data.is_none() && !self.is_http2 {
            self.hand_over();
        }
    }
}

/// The socket under hyper.
#[derive(Debug)]
pub(super) struct Stream {
    tcp: LingeringStream<Slot>,
    shared: Arc<Shared>,
}

impl Stream {
    /// The kernel has all that hyper wrote.
    fn flushed(&self) {
        let handed = std::mem::take(&mut self.shared.locked().handed);
        if handed.is_empty() {
            return;
        }
        if !self.may_be_gone() {
            for answer in handed {
                answer.unanswered.answered();
            }
            return;
        }
        match self.duplicate() {
            Ok(socket) => {
                let tasks = &self.shared.tasks;
                let stop = tasks.stopping().clone();
                tasks.spawn("answer", async move {
                    let is_reset = tokio::select! {
                        is_reset = is_reset(&socket) => is_reset,
                        () = stop.cancelled() => false,
                    };
                    if !is_reset {
                        for answer in handed {
                            answer.unanswered.answered();
                        }
                    }
                });
            }
            // Removing what a client may know is worse than keeping what no client knows.
            Err(error) => {
                debug!(%error, "whether a client is gone cannot be seen");
                for answer in handed {
                    answer.unanswered.answered();
                }
            }
        }
    }

    /// Waits for the first byte of the client, and leaves it there.
    pub(super) async fn first_byte(&self) -> io::Result<u8> {
        let mut byte = [0];
        match self.tcp.peek(&mut byte).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(byte[0]),
        }
    }

    /// Whether the client has ended its side, which may be all of it.
    fn may_be_gone(&self) -> bool {
        if self.shared.locked().has_ended {
            return true;
        }
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&self.tcp).peek(&mut byte) {
            Ok(read) => read == 0,
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// The same socket, for when hyper is done with it.
    fn duplicate(&self) -> io::Result<TcpStream> {
        let socket = self.tcp.as_fd().try_clone_to_owned()?;
        TcpStream::from_std(socket.into())
    }
}

/// Whether the other side refuses what was sent to it.
async fn is_reset(socket: &TcpStream) -> bool {
    timeout(RESET_WAIT, socket.ready(Interest::ERROR))
        .await
        .is_ok()
}

impl Drop for Stream {
    fn drop(&mut self) {
        let mut state = self.shared.locked();
        state.is_closed = true;
        let lost = std::mem::take(&mut state.handed);
        drop(state);
        drop(lost);
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (before, room) = (buf.filled().len(), buf.remaining());
        ready!(Pin::new(&mut self.tcp).poll_read(cx, buf))?;
        if room > 0 && buf.filled().len() == before {
            let mut state = self.shared.locked();
            state.has_ended = true;
            if state.held > 0 {
                state.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.tcp).poll_flush(cx))?;
        self.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }
}
