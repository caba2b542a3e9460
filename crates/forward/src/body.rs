//! Response bodies on their way through: streamed frame by frame, watched for silence.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use crate::{
    Lease,
    patience::next_look,
    pool::{Connection, Pool},
    request_body::Progress,
};

/// Why a response body broke off after its head was sent. The client sees a cut connection.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The backend hung up or sent invalid HTTP.
    #[error("the backend broke off its response")]
    Backend(#[source] hyper::Error),
    /// The backend was silent for that long.
    #[error("the backend was silent for {0:?}")]
    Idle(Duration),
    /// The client may no longer have it.
    #[error("the client may no longer have the response")]
    Withdrawn,
}

/// A response body that ends with an error when the backend is silent for too long.
///
/// The clock runs only while the client wants more: a slow reader is not a silent backend.
pub(crate) struct ResponseBody {
    inner: Incoming,
    idle: Option<Duration>,
    /// Absent once the body is complete: the next request may use it.
    connection: Option<Connection>,
    pool: Pool,
    /// When to look whether the backend is silent for too long. Set at the first silence, so that short
    /// responses never touch the timer.
    deadline: Option<Instant>,
    request: Option<Arc<Progress>>,
    lease: Option<Lease>,
    /// Waits for the lease to be withdrawn. Made at the first silence, too.
    withdrawal: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
}

impl ResponseBody {
    pub(crate) fn new(
        inner: Incoming,
        connection: Connection,
        pool: Pool,
        request: Option<Arc<Progress>>,
        lease: Option<Lease>,
    ) -> Self {
        let idle = pool.limits().idle;
        let mut body = Self {
            inner,
            idle,
            connection: Some(connection),
            pool,
            deadline: None,
            request,
            lease,
            withdrawal: None,
        };
        if body.inner.is_end_stream() {
            body.release();
        }
        body
    }

    /// Gives the connection back once the response is complete.
    fn release(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.pool.put(connection);
        }
    }

    /// Ready once the client may no longer have the body; else wakes the task then.
    fn poll_withdrawn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(withdrawn) = self.lease.as_ref().and_then(Lease::withdrawn) else {
            return Poll::Pending;
        };
        let wait = || Box::pin(withdrawn.clone().cancelled_owned());
        self.withdrawal.get_or_insert_with(wait).as_mut().poll(cx)
    }

    fn is_withdrawn(&self) -> bool {
        let withdrawn = self.lease.as_ref().and_then(Lease::withdrawn);
        withdrawn.is_some_and(CancellationToken::is_cancelled)
    }

    fn poll_silence(&mut self, idle: Duration, cx: &mut Context<'_>) -> Poll<BodyError> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        let mut at = *self.deadline.get_or_insert_with(|| Instant::now() + idle);
        loop {
            ready!(connection.poll_until(at, cx));
            let sent = self.request.as_ref().map(|sent| sent.last_moved());
            match next_look(sent, idle, self.lease.as_ref()) {
                Some(next) => at = *self.deadline.insert(next),
                None => return Poll::Ready(BodyError::Idle(idle)),
            }
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = &mut *self;
        let mut inner = Pin::new(&mut this.inner);
        let polled = match &mut this.connection {
            Some(connection) => connection.poll_reader(cx, |cx| inner.as_mut().poll_frame(cx)),
            None => inner.poll_frame(cx),
        };
        let broken = match polled {
            Poll::Ready(Some(Ok(_))) if this.is_withdrawn() => BodyError::Withdrawn,
            Poll::Ready(Some(Err(error))) => BodyError::Backend(error),
            Poll::Ready(frame) => {
                this.deadline = None;
                if frame.is_none() || this.inner.is_end_stream() {
                    this.release();
                }
                return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Backend)));
            }
            Poll::Pending if this.poll_withdrawn(cx).is_ready() => BodyError::Withdrawn,
            Poll::Pending => match this.idle {
                Some(idle) => ready!(this.poll_silence(idle, cx)),
                None => return Poll::Pending,
            },
        };
        this.connection = None;
        tracing::debug!(
            error = &broken as &dyn std::error::Error,
            "proxied response broke off"
        );
        Poll::Ready(Some(Err(broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
