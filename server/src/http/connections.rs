//! The connections that are open, and which of them has to go when there is no room for another.
//!
//! A connection may wait for its client's next request, or for the rest of one, until another client
//! needs its place. Those with an exchange that was let in (see [`super::overload`]) are never closed:
//! the bounds on exchanges leave enough others.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::Notify,
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::measure::Measured;

/// Part of all connections that is closed at once when there is no room.
const EVICTED_PART: usize = 64;
/// Longest time that a client may take nothing of what is sent to it.
const WRITE_STALL: Duration = Duration::from_secs(180);

/// The open connections of a server. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct Connections(Arc<Table>);

#[derive(Debug)]
struct Table {
    most: usize,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    closed: Notify,
}

/// A connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    opened: Instant,
    /// When the last exchange began or ended, in nanoseconds after `opened`.
    active_after: AtomicU64,
    /// Exchanges that go on, let in or not.
    exchanges: AtomicUsize,
    /// Exchanges that were let in.
    held: AtomicUsize,
    /// Whether a request on it had a key.
    keyed: AtomicBool,
    evicted: CancellationToken,
}

impl Connections {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Table {
            most,
            open: Mutex::default(),
            next: AtomicU64::new(0),
            closed: Notify::new(),
        }))
    }

    /// Waits for room, and makes it if need be.
    pub(super) async fn room(&self) -> Slot {
        loop {
            let closed = self.0.closed.notified();
            if let Some(slot) = self.slot() {
                return slot;
            }
            self.evict();
            closed.await;
        }
    }

    fn slot(&self) -> Option<Slot> {
        let mut open = self.open();
        if open.len() >= self.0.most {
            return None;
        }
        let connection = Arc::new(Connection {
            opened: Instant::now(),
            active_after: AtomicU64::new(0),
            exchanges: AtomicUsize::new(0),
            held: AtomicUsize::new(0),
            keyed: AtomicBool::new(false),
            evicted: CancellationToken::new(),
        });
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, Arc::clone(&connection));
        drop(open);
        Some(Slot {
            connections: self.clone(),
            number,
            connection,
        })
    }

    /// Closes some that wait: first those that never brought a key, and of them those
    /// that were idle for longest.
    pub(super) fn evict(&self) {
        let open = self.open();
        let mut idle: Vec<(bool, Instant, &Arc<Connection>)> = open
            .values()
            .filter(|it| it.held.load(Ordering::Acquire) == 0 && !it.evicted.is_cancelled())
            .map(|it| (it.keyed.load(Ordering::Relaxed), it.active(), it))
            .collect();
        let part = (open.len() / EVICTED_PART).max(1).min(idle.len());
        if part == 0 {
            return;
        }
        idle.select_nth_unstable_by_key(part - 1, |(keyed, active, _)| (*keyed, *active));
        for (_, _, connection) in &idle[..part] {
            connection.evicted.cancel();
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connection {
    /// Returns when its place is needed.
    pub(super) async fn evicted(&self) {
        self.evicted.cancelled().await;
    }

    /// Returns the token that is cancelled when its place is needed.
    pub(super) fn eviction(&self) -> CancellationToken {
        self.evicted.clone()
    }

    /// Returns once it had no exchange for this long.
    pub(super) async fn idle(&self, limit: Duration) {
        loop {
            let until = self.active() + limit;
            if self.exchanges.load(Ordering::Acquire) > 0 {
                sleep(limit).await;
            } else if until > Instant::now() {
                sleep_until(until).await;
            } else {
                return;
            }
        }
    }

    fn active(&self) -> Instant {
        self.opened + Duration::from_nanos(self.active_after.load(Ordering::Relaxed))
    }

    fn touch(&self) {
        let nanos = u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.active_after.store(nanos, Ordering::Relaxed);
    }
}

/// Place of a connection among all, until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    connections: Connections,
    number: u64,
    pub(super) connection: Arc<Connection>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.connections.0.closed.notify_waiters();
    }
}

/// A connection with an exchange on it, until this is dropped.
#[derive(Debug)]
pub(super) struct Exchange(Arc<Connection>);

impl Exchange {
    pub(super) fn begin(connection: &Arc<Connection>) -> Self {
        connection.exchanges.fetch_add(1, Ordering::AcqRel);
        connection.touch();
        Self(Arc::clone(connection))
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.touch();
        self.0.exchanges.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection that must stay, until this is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Connection>);

impl Busy {
    /// `keyed` says that the request had a key or a session.
    pub(super) fn new(connection: &Arc<Connection>, keyed: bool) -> Self {
        connection.held.fetch_add(1, Ordering::AcqRel);
        if keyed {
            connection.keyed.store(true, Ordering::Relaxed);
        }
        Self(Arc::clone(connection))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A body that keeps its exchange going until it was sent.
pub(super) struct Sent<B> {
    body: B,
    _exchange: Exchange,
    _measured: Measured,
}

impl<B> Sent<B> {
    pub(super) fn new(body: B, exchange: Exchange, measured: Measured) -> Self {
        Self {
            body,
            _exchange: exchange,
            _measured: measured,
        }
    }
}

impl<B: HttpBody<Data = Bytes> + Unpin> HttpBody for Sent<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The stream of a connection, also after an upgrade took it over. It breaks when the client takes
/// nothing for [`WRITE_STALL`].
pub(super) struct WriteTimeout<S> {
    stream: S,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeout<S> {
    pub(super) fn new(stream: S) -> Self {
        Self {
            stream,
            stalled: None,
        }
    }

    /// Passes on the outcome of a write, or breaks what has stood still for too long.
    fn unless_stalled<T>(
        &mut self,
        wrote: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(sleep(WRITE_STALL)));
        ready!(stalled.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.unless_stalled(wrote, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.unless_stalled(wrote, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(cx);
        self.unless_stalled(flushed, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_goes_first_and_what_is_held_stays() {
        let connections = Connections::new(4);
        let mut slots = Vec::new();
        for _ in 0..4 {
            slots.push(connections.room().await);
            sleep(Duration::from_secs(1)).await;
        }
        let evicted = |slots: &[Slot]| -> Vec<bool> {
            let evicted = |slot: &Slot| slot.connection.evicted.is_cancelled();
            slots.iter().map(evicted).collect()
        };
        let held = Busy::new(&slots[0].connection, false);
        drop(Busy::new(&slots[1].connection, true));
        connections.evict();
        assert_eq!(evicted(&slots), [false, false, true, false], "held, keyed");
        connections.evict();
        assert_eq!(evicted(&slots), [false, false, true, true]);
        connections.evict();
        assert_eq!(evicted(&slots), [false, true, true, true]);
        connections.evict();
        assert_eq!(evicted(&slots), [false, true, true, true], "it is held");
        drop(held);
        connections.evict();
        assert_eq!(evicted(&slots), [true; 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_nothing_is_cut() {
        let (ours, mut theirs) = tokio::io::duplex(16);
        let mut stream = WriteTimeout::new(ours);
        let slowly = async {
            let mut taken = [0; 16];
            for _ in 0..4 {
                sleep(WRITE_STALL / 2).await;
                theirs.read_exact(&mut taken).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 64]), slowly);
        written.unwrap();
        let stalled = stream.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(stalled.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_waits_until_another_has_left() {
        let connections = Connections::new(1);
        let first = connections.room().await;
        let leaves = async {
            first.connection.evicted().await;
            drop(first);
        };
        let (second, ()) = tokio::join!(connections.room(), leaves);
        assert!(!second.connection.evicted.is_cancelled());
    }
}
