//! The time at which bytes last moved.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Instant, sleep_until},
};

use crate::{Lease, patience::next_look, websocket::Frames};

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

    /// Returns once nothing has moved for this long although it could; never without a limit.
    pub(crate) async fn silence(&self, limit: Option<Duration>, lease: Option<&Lease>) {
        let Some(limit) = limit else {
            return std::future::pending().await;
        };
        let mut until = self.last() + limit;
        loop {
            sleep_until(until).await;
            match next_look(Some(self.last()), limit, lease) {
                Some(next) => until = next,
                None => return,
            }
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

/// A stream that records when its bytes move. If what is read from it are WebSocket frames that do not
/// end with a close frame, it adds one.
pub(crate) struct Watched<T> {
    pub(crate) stream: T,
    pub(crate) activity: Activity,
    /// What was read from it.
    pub(crate) frames: Option<Frames>,
    /// What was written to it.
    pub(crate) written: Option<Frames>,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Watched<T> {
    /// Closes a WebSocket that is cut, if its frames allow it, and waits until the other end closes.
    pub(crate) async fn part(&mut self) -> io::Result<()> {
        let Some(close) = self.written.as_mut().and_then(Frames::cut) else {
            return Ok(());
        };
        self.stream.write_all(&close).await?;
        self.stream.shutdown().await?;
        // Unread input would reset the connection before the frame arrives.
        tokio::io::copy(&mut self.stream, &mut tokio::io::sink()).await?;
        Ok(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buf));
        let new = &buf.filled()[before..];
        if !new.is_empty() {
            self.activity.note();
        }
        let Some(frames) = &mut self.frames else {
            return Poll::Ready(read);
        };
        if !new.is_empty() {
            frames.pass(new);
            return Poll::Ready(read);
        }
        match frames.end() {
            // A buffer of this size is there: it is the tunnel's own.
            Some(close) if buf.remaining() >= close.len() => {
                buf.put_slice(&close);
                Poll::Ready(Ok(()))
            }
            _ => Poll::Ready(read),
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(passed @ 1..)) = written {
            self.activity.note();
            if let Some(frames) = &mut self.written {
                frames.pass(&bytes[..passed]);
            }
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
