//! Queries over UDP. A query that is refused by its bytes is answered by the task that receives it,
//! together with those that came with it; every other one has a task of its own. When many come, a second
//! task receives as well; at other times it would only cost the first one time.

use std::{
    io::{self, IoSlice, IoSliceMut},
    net::SocketAddr,
    os::fd::AsRawFd,
    sync::Arc,
    time::Duration,
};

use hickory_server::{net::xfer::Protocol, server::RequestHandler};
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg};
use osb_service::Supervisor;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use tokio::{
    io::Interest,
    net::UdpSocket,
    sync::{Notify, Semaphore},
    task::{JoinSet, yield_now},
    time::sleep,
};
use tracing::{debug, warn};

use super::respond::respond;
use crate::limits;

/// Longest query in bytes. What is longer is cut, and then no query.
const QUERY: usize = 4096;
/// Queries that are received together.
const BATCH: usize = 64;
/// Queries in a receipt from which on the second task receives as well.
const MANY: usize = 8;
/// Pause after a failed receipt, so that an error that stays does not cost all of a CPU.
const PAUSE: Duration = Duration::from_millis(50);

/// What can refuse a query by its bytes.
pub(super) trait Refuser {
    /// Appends a refusal. Appends nothing, and returns false, if the query takes more than that.
    fn refuse(&self, query: &[u8], name: &mut String, into: &mut Vec<u8>) -> bool;
}

/// Answers queries on a socket until the supervisor stops.
pub(super) async fn serve<P>(socket: UdpSocket, proxy: P, tasks: Supervisor)
where
    P: RequestHandler + Refuser + Clone,
{
    let socket = Arc::new(socket);
    let many = Arc::new(Notify::new());
    let places = Arc::new(Semaphore::new(limits::QUERY_TASKS));
    let stopping = tasks.stopping();
    let second = help(Receiver::new(&socket, &proxy, &places), Arc::clone(&many));
    let until_stopped = stopping.clone();
    let second = tasks.spawn("dns", async move {
        until_stopped.run_until_cancelled(second).await;
    });
    let first = receive(Receiver::new(&socket, &proxy, &places), &many);
    tokio::select! {
        () = stopping.cancelled() => {}
        () = first => {}
        // By a fault.
        _ = second => {}
    }
}

/// Receives whatever comes.
async fn receive<P>(mut receiver: Receiver<P>, many: &Notify)
where
    P: RequestHandler + Refuser + Clone,
{
    loop {
        let Receiver { socket, inbox, .. } = &mut receiver;
        let received = socket.async_io(Interest::READABLE, || inbox.receive(socket));
        if let Err(error) = received.await {
            warn!(%error, "receiving queries failed");
            sleep(PAUSE).await;
        }
        if receiver.inbox.received.len() >= MANY {
            many.notify_one();
        }
        receiver.answer().await;
    }
}

/// Receives what has come while `many` come.
async fn help<P>(mut receiver: Receiver<P>, many: Arc<Notify>)
where
    P: RequestHandler + Refuser + Clone,
{
    loop {
        many.notified().await;
        loop {
            let Receiver { socket, inbox, .. } = &mut receiver;
            // An error that stays is reported by the other task.
            let received = socket.try_io(Interest::READABLE, || inbox.receive(socket));
            if received.is_err() {
                break;
            }
            receiver.answer().await;
        }
    }
}

/// State of a task that receives.
struct Receiver<P> {
    socket: Arc<UdpSocket>,
    proxy: P,
    inbox: Inbox,
    name: String,
    refusals: Refusals,
    queries: JoinSet<()>,
    /// Places for the queries of all tasks that receive.
    places: Arc<Semaphore>,
}

impl<P> Receiver<P>
where
    P: RequestHandler + Refuser + Clone,
{
    fn new(socket: &Arc<UdpSocket>, proxy: &P, places: &Arc<Semaphore>) -> Self {
        Self {
            socket: Arc::clone(socket),
            proxy: proxy.clone(),
            inbox: Inbox::new(),
            name: String::new(),
            refusals: Refusals::default(),
            queries: JoinSet::new(),
            places: Arc::clone(places),
        }
    }

    /// Answers what was received, or starts to.
    async fn answer(&mut self) {
        for (query, client) in self.inbox.queries() {
            let bytes = &mut self.refusals.bytes;
            if self.proxy.refuse(query, &mut self.name, bytes) {
                self.refusals.ends.push((bytes.len(), client));
                continue;
            }
            // Of a semaphore that is never closed.
            let Ok(place) = Arc::clone(&self.places).acquire_owned().await else {
                continue;
            };
            let answer = answer(
                Arc::clone(&self.socket),
                query.to_vec(),
                client,
                self.proxy.clone(),
            );
            self.queries.spawn(async move {
                answer.await;
                drop(place);
            });
        }
        self.refusals.send(&self.socket).await;
        while self.queries.try_join_next().is_some() {}
        if self.inbox.is_full() {
            // More have come already. Others must get their turn.
            yield_now().await;
        }
    }
}

/// Queries of one receipt.
struct Inbox {
    /// A buffer of [`QUERY`] bytes for each.
    buffers: Vec<u8>,
    /// Length of each, and who sent it. A datagram without an address cannot be answered.
    received: Vec<(usize, Option<SocketAddr>)>,
}

impl Inbox {
    fn new() -> Self {
        Self {
            // The kernel gives memory to the buffers that are used.
            buffers: vec![0; BATCH * QUERY],
            received: Vec::with_capacity(BATCH),
        }
    }

    /// Receives what has come, in the place of what came before.
    fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.received.clear();
        let buffers = self.buffers.chunks_exact_mut(QUERY);
        let mut buffers: Vec<_> = buffers.map(|it| [IoSliceMut::new(it)]).collect();
        // The kernel writes lengths into it: one that was used before has those of other addresses.
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
        let flags = MsgFlags::MSG_DONTWAIT;
        let messages = recvmmsg(
            socket.as_raw_fd(),
            &mut headers,
            buffers.iter_mut(),
            flags,
            None,
        )?;
        let received = messages.map(|it| (it.bytes, it.address.and_then(address)));
        self.received.extend(received);
        Ok(())
    }

    /// Lists the queries, with who sent them.
    fn queries(&self) -> impl Iterator<Item = (&[u8], SocketAddr)> {
        let buffers = self.buffers.chunks_exact(QUERY).zip(&self.received);
        buffers.filter_map(|(buffer, (length, client))| Some((&buffer[..*length], (*client)?)))
    }

    /// Whether there was no room for more.
    fn is_full(&self) -> bool {
        self.received.len() == BATCH
    }
}

fn address(from: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = from.as_sockaddr_in().map(|it| SocketAddr::from(*it));
    v4.or_else(|| from.as_sockaddr_in6().map(|it| SocketAddr::from(*it)))
}

async fn answer(
    socket: Arc<UdpSocket>,
    query: Vec<u8>,
    client: SocketAddr,
    proxy: impl RequestHandler,
) {
    if let Some(answer) = respond(query, client, Protocol::Udp, &proxy).await
        && let Err(error) = socket.send_to(&answer, client).await
    {
        debug!(%error, "the client of a query is gone");
    }
}

/// Answers that are sent together.
#[derive(Default)]
struct Refusals {
    bytes: Vec<u8>,
    /// Where each ends, and who gets it.
    ends: Vec<(usize, SocketAddr)>,
}

impl Refusals {
    async fn send(&mut self, socket: &UdpSocket) {
        let mut first = 0;
        while first < self.ends.len() {
            let sent = socket.async_io(Interest::WRITABLE, || self.try_send(socket, first));
            first += match sent.await {
                Ok(count) => count,
                Err(error) => {
                    debug!(%error, "the client of a query is gone");
                    1
                }
            };
        }
        self.bytes.clear();
        self.ends.clear();
    }

    /// Sends answers from this one on. Returns how many.
    fn try_send(&self, socket: &UdpSocket, first: usize) -> io::Result<usize> {
        let mut start = first.checked_sub(1).map_or(0, |last| self.ends[last].0);
        let parts: Vec<(SocketAddrAny, [IoSlice<'_>; 1])> = self.ends[first..]
            .iter()
            .map(|(end, client)| {
                let bytes = &self.bytes[start..*end];
                start = *end;
                ((*client).into(), [IoSlice::new(bytes)])
            })
            .collect();
        let mut control: Vec<SendAncillaryBuffer<'_, '_, '_>> = parts
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let mut messages: Vec<MMsgHdr<'_>> = parts
            .iter()
            .zip(&mut control)
            .map(|((client, bytes), control)| MMsgHdr::new_with_addr(client, bytes, control))
            .collect();
        Ok(sendmmsg(socket, &mut messages, SendFlags::DONTWAIT)?)
    }
}
