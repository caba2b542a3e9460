//! Request bodies on their way through: streamed frame by frame, with a record of their progress.

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
use tokio::time::Instant;

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
