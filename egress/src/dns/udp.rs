//! Queries over UDP. A query that is refused by its bytes is answered by the task that receives it,
//! together with those that came with it; every other one has a task of its own.

use std::{
    io::{self, IoSlice},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use hickory_server::{net::xfer::Protocol, server::RequestHandler};
use osb_service::Supervisor;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use tokio::{
    io::Interest,
    net::UdpSocket,
    task::{JoinSet, yield_now},
    time::sleep,
};
use tracing::{debug, warn};

use super::respond::respond;
use crate::limits;

/// Longest query in bytes. What is longer is cut, and then no query.
const QUERY: usize = 4096;
/// Queries that are received before the first of them is answered.
const BATCH: usize = 64;
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
    tokio::select! {
        () = tasks.stopping().cancelled() => {}
        () = receive(Arc::new(socket), proxy) => {}
    }
}

async fn receive<P>(socket: Arc<UdpSocket>, proxy: P)
where
    P: RequestHandler + Refuser + Clone,
{
    let mut buffer = vec![0; QUERY];
    let (mut name, mut refusals) = (String::new(), Refusals::default());
    let mut queries = JoinSet::new();
    loop {
        if let Err(error) = socket.readable().await {
            warn!(%error, "queries cannot be received");
            sleep(PAUSE).await;
        }
        let mut received = 0;
        while received < BATCH {
            let (length, client) = match socket.try_recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    warn!(%error, "receiving a query failed");
                    sleep(PAUSE).await;
                    break;
                }
            };
            received += 1;
            let query = &buffer[..length];
            if proxy.refuse(query, &mut name, &mut refusals.bytes) {
                refusals.ends.push((refusals.bytes.len(), client));
                continue;
            }
            while queries.len() >= limits::QUERY_TASKS {
                queries.join_next().await;
            }
            queries.spawn(answer(
                Arc::clone(&socket),
                query.to_vec(),
                client,
                proxy.clone(),
            ));
        }
        refusals.send(&socket).await;
        while queries.try_join_next().is_some() {}
        if received == BATCH {
            // More have come already. Others must get their turn.
            yield_now().await;
        }
    }
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
