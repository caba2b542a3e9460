//! Bodies on their way through: streamed frame by frame, watched for silence.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::Lease;

/// Why a response body broke off after its head was sent. The client sees a cut connection.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The backend hung up or sent invalid HTTP.
    #[error("the backend broke off its response")]
    Backend(#[source] hyper::Error),
    /// The backend was silent for that long.
    #[error("the backend was silent for {0:?}")]
    Idle(Duration),
}

/// Progress of a request body. A long upload is not silence, so the wait for the backend checks it
/// before giving up.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    moved_after_millis: AtomicU64,
    stage: AtomicU8,
}

const SENDING: u8 = 0;
const SENT: u8 = 1;
const FAILED: u8 = 2;

impl Progress {
    fn new() -> Self {
        Self {
            started: Instant::now(),
            moved_after_millis: AtomicU64::new(0),
            stage: AtomicU8::new(SENDING),
        }
    }

    /// When a frame last went out.
    pub(crate) fn last_moved(&self) -> Instant {
        self.started + Duration::from_millis(self.moved_after_millis.load(Ordering::Relaxed))
    }

    pub(crate) fn sending(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == SENDING
    }

    pub(crate) fn failed(&self) -> bool {
        self.stage.load(Ordering::Relaxed) == FAILED
    }

    fn moved(&self, stage: u8) {
        let millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_after_millis.store(millis, Ordering::Relaxed);
        self.stage.store(stage, Ordering::Relaxed);
    }
}

/// A request body that reports its progress.
pub(crate) struct RequestBody {
    inner: Body,
    /// Absent without a body, which is never polled.
    progress: Option<Arc<Progress>>,
}

impl RequestBody {
    pub(crate) fn new(inner: Body) -> Self {
        let progress = (!inner.is_end_stream()).then(|| Arc::new(Progress::new()));
        Self { inner, progress }
    }

    pub(crate) fn progress(&self) -> Option<Arc<Progress>> {
        self.progress.clone()
    }
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(progress) = &self.progress {
            progress.moved(match &frame {
                Some(Err(_)) => FAILED,
                Some(Ok(_)) if !self.inner.is_end_stream() => SENDING,
                Some(Ok(_)) | None => SENT,
            });
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// A response body that ends with an error when the backend is silent for too long.
///
/// The clock runs only while the client wants more: a slow reader is not a silent backend.
pub(crate) struct ResponseBody {
    inner: Incoming,
    idle: Option<Duration>,
    /// Made at the first silence, so that short responses never touch the timer.
    deadline: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    request: Option<Arc<Progress>>,
    _lease: Option<Lease>,
}

impl ResponseBody {
    pub(crate) fn new(
        inner: Incoming,
        idle: Option<Duration>,
        request: Option<Arc<Progress>>,
        lease: Option<Lease>,
    ) -> Self {
        Self {
            inner,
            idle,
            deadline: None,
            waiting: false,
            request,
            _lease: lease,
        }
    }

    fn poll_silence(&mut self, idle: Duration, cx: &mut Context<'_>) -> Poll<BodyError> {
        let fresh = Instant::now() + idle;
        let deadline = self
            .deadline
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(fresh)));
        if !self.waiting {
            deadline.as_mut().reset(fresh);
            self.waiting = true;
        }
        loop {
            ready!(deadline.as_mut().poll(cx));
            match self.request.as_ref().map(|sent| sent.last_moved() + idle) {
                Some(next) if next > Instant::now() => deadline.as_mut().reset(next),
                _ => return Poll::Ready(BodyError::Idle(idle)),
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
        let broken = match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(Some(Err(error))) => BodyError::Backend(error),
            Poll::Ready(frame) => {
                self.waiting = false;
                return Poll::Ready(frame.map(|frame| frame.map_err(BodyError::Backend)));
            }
            Poll::Pending => match self.idle {
                Some(idle) => ready!(self.poll_silence(idle, cx)),
                None => return Poll::Pending,
            },
        };
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
