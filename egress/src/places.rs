//! Places for connections to the API, and for those with queries. The sandbox reaches both, and must
//! be able neither to keep the server out nor to use up the sidecar's file descriptors: a new
//! connection always gets a place, if need be that of a useless one.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// Connections that have a place.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionPlaces {
    most: usize,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    /// By their order.
    entries: HashMap<u64, Entry>,
    count: u64,
}

#[derive(Debug)]
struct Entry {
    peer: Peer,
    standing: Standing,
    closed: CancellationToken,
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// This network namespace, which is the sandbox's. It has many addresses on the loopback
    /// interface.
    Inside,
    /// Another machine, or the gateway of the container engine.
    Outside(IpAddr),
}

impl Peer {
    pub(crate) fn of(own: IpAddr, peer: IpAddr) -> Self {
        let (own, peer) = (own.to_canonical(), peer.to_canonical());
        match peer.is_loopback() || peer == own {
            true => Self::Inside,
            false => Self::Outside(peer),
        }
    }
}

/// What is known about a connection. Earlier ones lose their places first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Standing {
    /// It had no request with the token.
    Unknown,
    /// It had one.
    Idle,
    /// It has one now. It keeps its place.
    Busy,
}

impl ConnectionPlaces {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            taken: Arc::default(),
        }
    }

    /// Gives a place to a new connection. Also returns the peer of the connection that lost its place
    /// for it.
    pub(crate) fn take(&self, own: SocketAddr, peer: SocketAddr) -> (Place, Option<Peer>) {
        let peer = Peer::of(own.ip(), peer.ip());
        let closed = CancellationToken::new();
        let mut taken = self.locked();
        let number = taken.count;
        taken.count += 1;
        let entry = Entry {
            peer,
            standing: Standing::Unknown,
            closed: closed.clone(),
        };
        taken.entries.insert(number, entry);
        let mut loser = None;
        if taken.entries.len() > self.most {
            let least = taken.least(number).unwrap_or(number);
            loser = taken.entries.remove(&least).map(|entry| {
                entry.closed.cancel();
                entry.peer
            });
        }
        let place = Place {
            places: self.clone(),
            number,
            closed,
        };
        (place, loser)
    }

    fn locked(&self) -> MutexGuard<'_, Taken> {
        // Each change is a single step, so a panic elsewhere does not spoil it.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Taken {
    /// The connection to close: one without the token, of the peer that has most of them. Among
    /// equals, the oldest. `None` if all but the new one are busy.
    fn least(&self, new: u64) -> Option<u64> {
        let mut unknown: HashMap<Peer, usize> = HashMap::new();
        for entry in self.entries.values() {
            if entry.standing == Standing::Unknown {
                *unknown.entry(entry.peer).or_default() += 1;
            }
        }
        let rank = |number: u64, entry: &Entry| {
            let others = match entry.standing {
                Standing::Unknown => unknown.get(&entry.peer).copied().unwrap_or_default(),
                Standing::Idle | Standing::Busy => 0,
            };
            (entry.standing, usize::MAX - others, number)
        };
        let entries = self.entries.iter();
        let candidates =
            entries.filter(|(number, entry)| **number != new && entry.standing < Standing::Busy);
        let least = candidates.min_by_key(|(number, entry)| rank(**number, entry));
        least.map(|(number, _)| *number)
    }
}

/// Place of one connection, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    places: ConnectionPlaces,
    number: u64,
    closed: CancellationToken,
}

impl Place {
    /// Waits until the place is taken away.
    pub(crate) async fn lost(&self) {
        self.closed.cancelled().await;
    }

    /// Notes that the connection has a request with the token, until the result is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.set(Standing::Busy);
        Busy(Arc::clone(self))
    }

    fn set(&self, standing: Standing) {
        if let Some(entry) = self.places.locked().entries.get_mut(&self.number) {
            entry.standing = standing;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.locked().entries.remove(&self.number);
    }
}

/// A request with the token is under way.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.set(Standing::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "10.0.0.2:18080";

    fn take(places: &ConnectionPlaces, peer: &str) -> (Arc<Place>, Option<Peer>) {
        let (place, loser) = places.take(OWN.parse().unwrap(), peer.parse().unwrap());
        (Arc::new(place), loser)
    }

    fn outside(address: &str) -> Peer {
        Peer::Outside(address.parse().unwrap())
    }

    #[test]
    fn the_sandbox_is_one_peer_whatever_its_address() {
        let own = OWN.parse::<SocketAddr>().unwrap().ip();
        for address in [
            "127.0.0.1",
            "127.9.9.9",
            "::1",
            "10.0.0.2",
            "::ffff:10.0.0.2",
        ] {
            let peer = Peer::of(own, address.parse().unwrap());
            assert_eq!(peer, Peer::Inside, "{address}");
        }
        let server = Peer::of(own, "::ffff:10.0.0.1".parse().unwrap());
        assert_eq!(server, outside("10.0.0.1"));
    }

    #[test]
    fn the_oldest_of_the_peer_with_most_connections_goes_first() {
        let places = ConnectionPlaces::new(3);
        let (server, _) = take(&places, "10.0.0.1:1");
        let (first, loser) = take(&places, "127.0.0.1:1");
        assert_eq!(loser, None);
        let (second, _) = take(&places, "127.0.0.2:1");
        let (third, loser) = take(&places, "10.0.0.2:1");
        assert_eq!(loser, Some(Peer::Inside));
        assert!(first.closed.is_cancelled());
        for open in [&server, &second, &third] {
            assert!(!open.closed.is_cancelled());
        }
        // A place that is free again is given first.
        drop(third);
        let (_fourth, loser) = take(&places, "10.0.0.1:2");
        assert_eq!(loser, None);
    }

    #[test]
    fn a_request_with_the_token_keeps_its_place() {
        let places = ConnectionPlaces::new(2);
        let (one, _) = take(&places, "127.0.0.1:1");
        let (two, _) = take(&places, "127.0.0.1:2");
        let (request, other) = (one.busy(), two.busy());
        // The new connection is the only one that can go.
        let (third, loser) = take(&places, "10.0.0.1:1");
        assert_eq!(loser, Some(outside("10.0.0.1")));
        assert!(third.closed.is_cancelled());
        drop(request);
        let (fourth, _) = take(&places, "10.0.0.1:1");
        assert!(one.closed.is_cancelled(), "its request has ended");
        assert!(!fourth.closed.is_cancelled() && !two.closed.is_cancelled());
        // A connection without the token goes before one that had it.
        drop(other);
        let (fifth, _) = take(&places, "10.0.0.3:1");
        assert!(fourth.closed.is_cancelled() && !two.closed.is_cancelled());
        drop(fifth);
    }
}
