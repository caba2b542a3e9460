//! The time at which bytes last moved.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, sleep_until},
};

/// The time at which bytes last moved through any of the streams that share it.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Timestamps>);

#[derive(Debug)]
struct Timestamps {
    started: Instant,
    last_after_millis: AtomicU64,
}

impl Activity {
    pub(crate) fn now() -> Self {
        Self(Arc::new(Timestamps {
            started: Instant::now(),
            last_after_millis: AtomicU64::new(0),
        }))
    }

    /// Returns once nothing has moved for this long; never without a limit.
    pub(crate) async fn silence(&self, limit: Option<Duration>) {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        loop {
            let until = self.last() + limit;
            if until <= Instant::now() {
                return;
            }
            sleep_until(until).await;
        }
    }

    fn last(&self) -> Instant {
        let millis = self.0.last_after_millis.load(Ordering::Relaxed);
        self.0.started + Duration::from_millis(millis)
    }

    fn note(&self) {
        let millis = self.0.started.elapsed().as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        self.0.last_after_millis.store(millis, Ordering::Relaxed);
    }
}

/// A stream that records when its bytes move.
pub(crate) struct Watched<T> {
    pub(crate) stream: T,
    pub(crate) activity: Activity,
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.activity.note();
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(1..)) = written {
            self.activity.note();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
