//! Bodies whose client stopped reading.
//!
//! On an HTTP/1 connection that shows as a write that does not end ([`super::connections`]). On
//! HTTP/2 each stream has a window of its own, and a body whose window is full is not polled again:
//! only a clock beside it can tell.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};
use osb_service::Supervisor;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The client took nothing for too long.
#[derive(Debug, thiserror::Error)]
#[error("the client took nothing of the response for too long")]
struct Stalled;

#[derive(Debug)]
struct Shared {
    body: Mutex<Option<Body>>,
    started: Instant,
    /// When the last frame was taken, in milliseconds after `started`.
    taken_after: AtomicU64,
    /// Whether the client waits for the next frame: then it is the sandbox that is silent, which has a
    /// limit of its own.
    awaited: AtomicBool,
}

/// A body that is given up, with all that it holds, when nothing of it is taken for this long.
pub(super) fn unless_stalled(body: Body, limit: Duration, tasks: &Supervisor) -> Body {
    let shared = Arc::new(Shared {
        body: Mutex::new(Some(body)),
        started: Instant::now(),
        taken_after: AtomicU64::new(0),
        awaited: AtomicBool::new(false),
    });
    let over = CancellationToken::new();
    let (watched, ended) = (Arc::clone(&shared), over.clone());
    tasks.spawn_abortable("proxied body", async move {
        let stalled = async {
            loop {
                let now = Instant::now();
                let until = match watched.awaited.load(Ordering::Relaxed) {
                    true => now + limit,
                    false => watched.taken() + limit,
                };
                if until <= now {
                    return;
                }
                sleep_until(until).await;
            }
        };
        tokio::select! {
            () = ended.cancelled() => {}
            () = stalled => drop(watched.body().take()),
        }
    });
    Body::new(Guarded {
        shared,
        _over: over.drop_guard(),
    })
}

impl Shared {
    fn body(&self) -> MutexGuard<'_, Option<Body>> {
        // A body that panicked is not polled again.
        self.body.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn taken(&self) -> Instant {
        self.started + Duration::from_millis(self.taken_after.load(Ordering::Relaxed))
    }
}

struct Guarded {
    shared: Arc<Shared>,
    _over: DropGuard,
}

impl HttpBody for Guarded {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = match &mut *self.shared.body() {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(Some(Err(axum::Error::new(Stalled)))),
        };
        self.shared
            .awaited
            .store(frame.is_pending(), Ordering::Relaxed);
        let frame = ready!(frame);
        let millis = self.shared.started.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.shared.taken_after.store(millis, Ordering::Relaxed);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        let body = self.shared.body();
        body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.shared.body();
        body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::BodyExt;
    use tokio::{
        sync::oneshot,
        time::{advance, sleep},
    };

    use super::*;

    const LIMIT: Duration = Duration::from_secs(180);

    /// A body without end, and word of when it is dropped.
    fn endless() -> (Body, oneshot::Receiver<()>) {
        let (held, dropped) = oneshot::channel::<()>();
        let frames = stream::repeat_with(move || {
            let _held = &held;
            Ok::<_, std::io::Error>("frame")
        });
        (Body::from_stream(frames), dropped)
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_is_not_read_is_given_up() {
        let tasks = Supervisor::new();
        let (body, mut dropped) = endless();
        let mut body = unless_stalled(body, LIMIT, &tasks);
        for _ in 0..5 {
            advance(LIMIT / 2).await;
            assert!(body.frame().await.unwrap().is_ok());
        }
        sleep(LIMIT / 2).await;
        assert_eq!(dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(dropped.await.is_err(), "dropped, nothing was sent");
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_its_sandbox_holds_back_is_not_given_up() {
        let tasks = Supervisor::new();
        let late = stream::once(async {
            sleep(LIMIT * 3).await;
            Ok::<_, std::io::Error>("late")
        });
        let mut body = unless_stalled(Body::from_stream(late), LIMIT, &tasks);
        let frame = body.frame().await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), "late");
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_what_was_read() {
        let tasks = Supervisor::new();
        drop(unless_stalled(Body::empty(), LIMIT, &tasks));
        tasks.drain(LIMIT).await;
        assert_eq!(tasks.running(), 0);
    }
}
