//! File descriptors: what the present limit is enough for.

use rustix::process::{Resource, getrlimit};

/// Descriptors of everything but connections: the store, the engine's events, the log, the listener.
const OTHERS: u64 = 128;
/// Connections held at once, however many descriptors there are: each costs memory, too.
const CONNECTIONS: usize = 16_384;

/// What the descriptors of the process are enough for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Connections of clients.
    pub connections: usize,
    /// Exchanges of one kind, each of which may open a connection to a sandbox or to the engine.
    pub exchanges_per_kind: usize,
}

impl Room {
    /// What the present limit is enough for.
    #[must_use]
    pub fn of_process() -> Self {
        let soft = getrlimit(Resource::Nofile).current;
        Self::of_descriptors(soft.unwrap_or(u64::MAX))
    }

    /// What so many descriptors are enough for. Two thirds are for clients; of four kinds of
    /// exchange each gets a twelfth for connections of its own, so that all of them together leave
    /// half of the clients' connections to those that wait.
    #[must_use]
    pub fn of_descriptors(descriptors: u64) -> Self {
        let free = descriptors.saturating_sub(OTHERS);
        let free = usize::try_from(free).unwrap_or(usize::MAX);
        Self {
            connections: (free / 3 * 2).clamp(1, CONNECTIONS),
            exchanges_per_kind: (free / 12).clamp(1, CONNECTIONS / 8),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systemd_unit_allows_as_many_as_are_used() {
        let unit = include_str!("../../deploy/systemd/opensandbox-server.service");
        let limit = unit
            .lines()
            .find_map(|line| line.strip_prefix("LimitNOFILE="));
        let room = Room::of_descriptors(limit.unwrap().parse().unwrap());
        assert_eq!(room, Room::of_descriptors(u64::MAX));
    }

    #[test]
    fn everything_together_fits_into_the_descriptors() {
        for descriptors in [256, 1024, 4096, 20_000, 1 << 20, u64::MAX] {
            let room = Room::of_descriptors(descriptors);
            let outgoing = 4 * room.exchanges_per_kind;
            let all = (room.connections + outgoing) as u64 + OTHERS;
            assert!(all <= descriptors, "{descriptors}: {room:?}");
            assert!(outgoing <= room.connections, "{descriptors}: {room:?}");
        }
        assert_eq!(Room::of_descriptors(0).connections, 1);
        assert_eq!(Room::of_descriptors(1 << 20).exchanges_per_kind, 2048);
    }
}
