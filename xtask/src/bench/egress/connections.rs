//! TCP connections to an address that the sidecar has learned, in turns with the same ones without
//! a sidecar.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{Bound, dns, internet::PORT, namespace::Namespace, world::World};
use crate::bench::stats::{Rates, Samples, megabytes};

/// Longest time for a connection, and for progress on it.
const LIMIT: Duration = Duration::from_secs(10);
/// Bytes of a transfer.
const TRANSFER: usize = 256 << 20;
/// Bytes that are sent at once.
const CHUNK: usize = 64 << 10;
/// Transfers of each side.
const ROUNDS: usize = 5;

/// What connections took.
pub(super) struct Connections {
    /// Handshakes through the sidecar's rules, and without a sidecar.
    pub(super) connected: [Samples; 2],
    /// Rates of transfers through its rules, and without a sidecar.
    pub(super) sent: [Rates; 2],
}

/// Measures handshakes, then transfers.
pub(super) fn measure(world: &World, bound: Bound) -> Result<Connections> {
    let sides = [&world.sandbox, &world.plain];
    let mut connected: [Samples; 2] = Default::default();
    let start = Instant::now();
    for _ in 0..bound.count {
        if start.elapsed() > bound.time {
            break;
        }
        for (side, samples) in sides.into_iter().zip(&mut connected) {
            samples.add(connect(side)?.1);
        }
    }
    let mut sent = [Rates::new("MB/s"), Rates::new("MB/s")];
    for _ in 0..ROUNDS {
        for (side, rates) in sides.into_iter().zip(&mut sent) {
            rates.add(megabytes(TRANSFER), transfer(side, TRANSFER)?);
        }
    }
    Ok(Connections { connected, sent })
}

/// A new connection, and how long the handshake took.
fn connect(side: &Namespace) -> Result<(TcpStream, Duration)> {
    // The first of the names that were learned leads to it.
    let to = SocketAddr::from((dns::address(0), PORT));
    side.inside(|| {
        let start = Instant::now();
        let stream = TcpStream::connect_timeout(&to, LIMIT)
            .with_context(|| format!("cannot connect to {to}, which an allowed name has"))?;
        Ok((stream, start.elapsed()))
    })
}

/// Sends bytes, and returns the time until the machine has confirmed them.
fn transfer(side: &Namespace, bytes: usize) -> Result<Duration> {
    let (mut stream, _) = connect(side)?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.set_read_timeout(Some(LIMIT))?;
    let chunk = vec![b'x'; CHUNK];
    let start = Instant::now();
    for _ in 0..bytes / CHUNK {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(Shutdown::Write)?;
    let mut confirmed = Vec::new();
    stream.read_to_end(&mut confirmed)?;
    let took = start.elapsed();
    ensure!(confirmed == b".", "a transfer was not confirmed");
    Ok(took)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs root and `ip`.
    #[test]
    fn machines_confirm_what_they_receive() {
        let world = World::new().unwrap();
        for side in [&world.sandbox, &world.plain] {
            connect(side).unwrap();
            transfer(side, 10 * CHUNK).unwrap();
        }
    }
}
