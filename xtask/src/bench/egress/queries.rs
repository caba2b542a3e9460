//! DNS queries: one at a time, and many under way.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::{Ipv4Addr, UdpSocket},
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    sys::socket::{MsgFlags, MultiHeaders, recvmmsg},
};
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, sendmmsg};

use super::{
    Bound,
    dns::{self, Outcome},
    internet::{DNS, RESOLVER},
    namespace::Namespace,
    world::World,
};
use crate::bench::{load::Load, stats::Samples};

/// Queries under way at once.
pub(super) const WINDOW: usize = 64;
/// Names that are asked for again and again.
const KNOWN: u32 = 100;
/// A query without an answer in this time has failed.
const LOST: Duration = Duration::from_secs(2);
/// Identifiers of messages.
const IDS: usize = 1 << 16;

/// Which names are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A few allowed ones, in turns.
    Known,
    /// An allowed one with another address each time.
    New,
    /// Some that the policy refuses.
    Denied,
}

/// A source of queries.
pub(super) struct Names {
    kind: Kind,
    asked: u32,
}

impl Names {
    /// Queries for names of a kind.
    pub(super) const fn new(kind: Kind) -> Self {
        Self { kind, asked: 0 }
    }

    /// Writes the next query.
    fn write(&mut self, id: u16, query: &mut Vec<u8>) {
        let asked = self.asked;
        self.asked += 1;
        let name = match self.kind {
            Kind::Known => format!("n{}.known.bench.example", asked % KNOWN),
            Kind::New => format!("n{}.new.bench.example", KNOWN + asked),
            Kind::Denied => format!("n{}.denied.bench.example", asked % KNOWN),
        };
        dns::query(id, &name, query);
    }

    const fn expected(&self) -> Outcome {
        match self.kind {
            Kind::Known | Kind::New => Outcome::Address,
            Kind::Denied => Outcome::Refused,
        }
    }
}

/// Queries one at a time, in turns with the same ones to the name server.
#[derive(Default)]
pub(super) struct Alone {
    /// Durations through the sidecar.
    pub(super) through: Samples,
    /// Durations without a sidecar.
    pub(super) direct: Samples,
    /// Queries without the expected answer.
    pub(super) failed: usize,
}

/// Many queries at once.
pub(super) struct Flow {
    /// Latencies, and answers per second.
    pub(super) load: Load,
    /// Queries without the expected answer.
    pub(super) failed: usize,
    /// Processor time of the sidecar for each query, if there is a sidecar.
    pub(super) cost: Option<Duration>,
}

/// A socket for queries to the name server.
pub(super) fn client(side: &Namespace) -> Result<UdpSocket> {
    side.inside(|| {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        socket.connect((RESOLVER, DNS))?;
        socket.set_read_timeout(Some(LOST))?;
        Ok(socket)
    })
}

/// Sends a query and waits for its answer. `None` if none comes.
pub(super) fn ask(socket: &UdpSocket, query: &[u8]) -> Result<Option<Outcome>> {
    let mut buffer = [0; dns::MESSAGE];
    socket.send(query).context("cannot send a query")?;
    loop {
        let Some(length) = received(socket, &mut buffer)? else {
            return Ok(None);
        };
        if let Some((id, outcome)) = dns::outcome(&buffer[..length])
            && query.starts_with(&id.to_be_bytes())
        {
            return Ok(Some(outcome));
        }
    }
}

/// Asks for each of the known names once, so that the sidecar has learned them.
pub(super) fn learn(world: &World) -> Result<()> {
    let socket = client(&world.sandbox)?;
    let (mut names, mut query) = (Names::new(Kind::Known), Vec::new());
    for id in 0..KNOWN {
        names.write(u16::try_from(id)?, &mut query);
        let outcome = ask(&socket, &query)?;
        ensure!(
            outcome == Some(Outcome::Address),
            "an allowed name has no address: {outcome:?}"
        );
    }
    Ok(())
}

/// Sends one query at a time through the sidecar and to the name server, each from a socket of its
/// own, as the C library does.
pub(super) fn alone(world: &World, names: &mut Names, bound: Bound) -> Result<Alone> {
    const ID: u16 = 4711;
    let mut result = Alone::default();
    let mut query = Vec::new();
    let start = Instant::now();
    for _ in 0..bound.count {
        if start.elapsed() > bound.time {
            break;
        }
        names.write(ID, &mut query);
        for (side, samples) in [
            (&world.sandbox, &mut result.through),
            (&world.plain, &mut result.direct),
        ] {
            let socket = client(side)?;
            let sent = Instant::now();
            let outcome = ask(&socket, &query)?;
            if outcome == Some(names.expected()) {
                samples.add(sent.elapsed());
            } else {
                result.failed += 1;
            }
        }
    }
    Ok(result)
}

/// Keeps [`WINDOW`] queries under way. Those that there is room for are sent together, and answers
/// that have come are received together: a generator that takes more of the processors than the
/// sidecar would measure itself.
pub(super) fn flow(side: &Namespace, names: &mut Names, bound: Bound) -> Result<Flow> {
    let socket = client(side)?;
    let mut queries: [Vec<u8>; WINDOW] = std::array::from_fn(|_| Vec::new());
    let mut buffers = [[0; dns::MESSAGE]; WINDOW];
    // When the query with each identifier was sent, while it is under way.
    let mut sent_at: Vec<Option<Instant>> = vec![None; IDS];
    let (mut sent, mut under_way, mut failed) = (0, 0, 0);
    let mut samples = Samples::default();
    let start = Instant::now();
    let mut last = start;
    loop {
        let room = match start.elapsed() < bound.time {
            true => (WINDOW - under_way).min(bound.count - sent),
            false => 0,
        };
        for query in &mut queries[..room] {
            let id = sent % IDS;
            names.write(u16::try_from(id)?, query);
            sent_at[id] = Some(Instant::now());
            sent += 1;
            under_way += 1;
        }
        send_all(&socket, &queries[..room]).context("cannot send queries")?;
        if under_way == 0 {
            break;
        }
        let Some(lengths) = received_together(&socket, &mut buffers)? else {
            failed += under_way;
            under_way = 0;
            sent_at.fill(None);
            continue;
        };
        for (buffer, length) in buffers.iter().zip(lengths) {
            let Some((id, outcome)) = dns::outcome(&buffer[..length]) else {
                continue;
            };
            // An answer that comes too late has been counted as lost.
            let Some(at) = sent_at[usize::from(id)].take() else {
                continue;
            };
            under_way -= 1;
            if outcome == names.expected() {
                last = Instant::now();
                samples.add(last - at);
            } else {
                failed += 1;
            }
        }
    }
    Ok(Flow {
        load: Load::of(&samples, last - start),
        failed,
        cost: None,
    })
}

fn send_all(socket: &UdpSocket, queries: &[Vec<u8>]) -> io::Result<()> {
    let mut first = 0;
    while first < queries.len() {
        let parts: Vec<_> = queries[first..]
            .iter()
            .map(|it| [IoSlice::new(it)])
            .collect();
        let mut control: Vec<_> = parts
            .iter()
            .map(|_| SendAncillaryBuffer::default())
            .collect();
        let messages = parts.iter().zip(&mut control);
        let mut messages: Vec<_> = messages.map(|(it, none)| MMsgHdr::new(it, none)).collect();
        first += sendmmsg(socket, &mut messages, SendFlags::empty())?;
    }
    Ok(())
}

/// Lengths of the messages that have come, at least one. `None` if none comes in time.
fn received_together(
    socket: &UdpSocket,
    buffers: &mut [[u8; dns::MESSAGE]],
) -> Result<Option<Vec<usize>>> {
    let mut headers = MultiHeaders::<()>::preallocate(buffers.len(), None);
    let mut buffers: Vec<_> = buffers.iter_mut().map(|it| [IoSliceMut::new(it)]).collect();
    let flags = MsgFlags::MSG_WAITFORONE;
    let received = recvmmsg(
        socket.as_raw_fd(),
        &mut headers,
        buffers.iter_mut(),
        flags,
        None,
    );
    match received {
        Ok(messages) => Ok(Some(messages.map(|it| it.bytes).collect())),
        Err(Errno::EAGAIN) => Ok(None),
        Err(error) => Err(error).context("the name server's port is closed"),
    }
}

/// Length of the next message. `None` if none comes in time.
fn received(socket: &UdpSocket, buffer: &mut [u8]) -> Result<Option<usize>> {
    match socket.recv(buffer) {
        Ok(length) => Ok(Some(length)),
        Err(error) if is_timeout(&error) => Ok(None),
        Err(error) => Err(error).context("the name server's port is closed"),
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs root and `ip`.
    #[test]
    fn the_name_server_answers_every_query() {
        let world = World::new().unwrap();
        let bound = Bound {
            count: 1000,
            time: Duration::from_secs(60),
        };
        let answered = flow(&world.plain, &mut Names::new(Kind::New), bound).unwrap();
        let counted = (answered.load.latency.samples, answered.failed);
        assert_eq!(counted, (1000, 0));
        // Without a sidecar, nothing is refused.
        let denied = flow(&world.plain, &mut Names::new(Kind::Denied), bound).unwrap();
        let counted = (denied.load.latency.samples, denied.failed);
        assert_eq!(counted, (0, 1000));
        let few = Bound { count: 10, ..bound };
        let both = alone(&world, &mut Names::new(Kind::Known), few).unwrap();
        let counted = (both.through.len(), both.direct.len(), both.failed);
        assert_eq!(counted, (10, 10, 0));
    }
}
