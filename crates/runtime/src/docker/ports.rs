//! Host ports for new sandboxes (contract: lifecycle §17.6).
//!
//! A port is drawn at random, probed by binding it, and reserved in this process until the container
//! runs, so that parallel creates cannot draw the same one. Another process may still take it in
//! between; the create is then retried with new ports.

use std::{
    collections::HashSet,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rand::RngExt;
use tokio::net::TcpSocket;

use super::engine_message::EngineMessage;
use crate::RuntimeError;

/// Most draws for one port.
const DRAWS: usize = 50;

/// Draws and reserves ports.
#[derive(Clone, Debug)]
pub(super) struct PortPool {
    host: Ipv4Addr,
    min: u16,
    max: u16,
    taken: Arc<Mutex<HashSet<u16>>>,
    /// Whether a fixed port is probed: any program of the machine may have it by chance, also for an
    /// outgoing connection.
    probes_fixed: bool,
}

/// A port that is not drawn again while this exists.
#[derive(Debug)]
pub(super) struct Reserved {
    port: u16,
    taken: Arc<Mutex<HashSet<u16>>>,
}

impl PortPool {
    pub(super) fn new(host: Ipv4Addr, min: u16, max: u16) -> Self {
        Self {
            host,
            min,
            max,
            taken: Arc::default(),
            probes_fixed: true,
        }
    }

    /// Takes every fixed port for free that no create has, for engines that run no containers.
    #[cfg(test)]
    pub(super) fn trust_fixed(&mut self) {
        self.probes_fixed = false;
    }

    /// Draws a port that can be bound now.
    pub(super) fn draw(&self) -> Result<Reserved, RuntimeError> {
        let mut random = rand::rng();
        for _ in 0..DRAWS {
            let port = random.random_range(self.min..=self.max);
            if !locked(&self.taken).insert(port) {
                continue;
            }
            let reserved = Reserved {
                port,
                taken: Arc::clone(&self.taken),
            };
            if self.can_bind(port) {
                return Ok(reserved);
            }
        }
        Err(RuntimeError::NoPort {
            host: self.host.to_string(),
            min: self.min,
            max: self.max,
        })
    }

    /// Reserves one port of the host itself, on all addresses. `None` if another program or another
    /// create has it.
    pub(super) fn claim(&self, port: u16) -> Option<Reserved> {
        if !locked(&self.taken).insert(port) {
            return None;
        }
        let reserved = Reserved {
            port,
            taken: Arc::clone(&self.taken),
        };
        if !self.probes_fixed {
            return Some(reserved);
        }
        // Without listening, so that two probes at the same time do not disturb each other.
        let is_free = TcpSocket::new_v4().and_then(|socket| {
            socket.set_reuseaddr(true)?;
            socket.bind((Ipv4Addr::UNSPECIFIED, port).into())
        });
        is_free.is_ok().then_some(reserved)
    }

    /// Returns how many ports are reserved.
    #[cfg(test)]
    pub(super) fn reserved(&self) -> usize {
        locked(&self.taken).len()
    }

    /// Probes a port. With a remote engine, the address is not local and the wildcard address is probed
    /// instead.
    fn can_bind(&self, port: u16) -> bool {
        let bind = |host| TcpListener::bind(SocketAddr::new(IpAddr::V4(host), port));
        match bind(self.host) {
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => {
                bind(Ipv4Addr::UNSPECIFIED).is_ok()
            }
            result => result.is_ok(),
        }
    }
}

impl Reserved {
    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        locked(&self.taken).remove(&self.port);
    }
}

fn locked(taken: &Mutex<HashSet<u16>>) -> MutexGuard<'_, HashSet<u16>> {
    // The set is whole after every operation, so a panic elsewhere does not spoil it.
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What messages about ports begin with. Ports are published before anything of a request is mounted
/// or run, so no text of a client precedes them or stands in the rest.
const ABOUT_PORTS: [&str; 7] = [
    "driver failed programming external connectivity",
    "ports are not available: ",
    "bind for ",
    "failed to bind ",
    "listen ",
    "rootlessport ",
    "cannot listen on ",
];

/// Whether the engine's message means that a port is in use.
pub(super) fn is_conflict(message: &EngineMessage) -> bool {
    let has = |text| message.mentions(text);
    if !ABOUT_PORTS.iter().any(|words| message.begins_with(words)) {
        return false;
    }
    has("port is already allocated")
        || has("ports are not available")
        || has("address already in use")
        || (has("bind:") && (has("forbidden") || has("permission denied")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docker::engine_message::ClientTexts;

    #[test]
    fn a_taken_port_is_not_drawn_and_a_released_one_is_again() {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        let pool = PortPool::new(Ipv4Addr::LOCALHOST, port, port);
        assert!(
            matches!(pool.draw(), Err(RuntimeError::NoPort { .. })),
            "bound by the test"
        );
        drop(probe);
        let reserved = pool.draw().unwrap();
        assert_eq!(reserved.port(), port);
        assert!(pool.draw().is_err(), "reserved");
        drop(reserved);
        assert!(pool.draw().is_ok());
    }

    #[test]
    fn a_port_of_the_host_is_claimed_once() {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = probe.local_addr().unwrap().port();
        let pool = PortPool::new(Ipv4Addr::LOCALHOST, port, port);
        assert!(pool.claim(port).is_none(), "bound by the test");
        drop(probe);
        let claimed = pool.claim(port).unwrap();
        assert!(pool.claim(port).is_none(), "claimed");
        drop(claimed);
        assert!(pool.claim(port).is_some());
    }

    fn conflicts(text: &str) -> bool {
        is_conflict(&EngineMessage::of_text(text, &ClientTexts::default()))
    }

    #[test]
    fn conflicts_are_recognised_in_every_wording() {
        for text in [
            "Bind for 127.0.0.1:40000 failed: port is already allocated",
            "Ports are not available: exposing port",
            "listen tcp: bind: address already in use",
            "listen tcp 0.0.0.0:80: bind: Permission denied",
            "failed to set up container networking: driver failed programming external connectivity \
             on endpoint a (b): failed to bind host port 127.0.0.1:80/tcp: address already in use",
        ] {
            assert!(conflicts(text), "{text}");
        }
        assert!(!conflicts("no such image"));
    }
}
