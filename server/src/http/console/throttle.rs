//! Wrong keys are slowed down, by the address they come from.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// Wrong keys that an address may send in a row.
const BURST: u32 = 10;
/// After that, one more each time this has passed.
const REFILL: Duration = Duration::from_secs(6);
/// Most addresses that are remembered. When there are more, those that may send again go first.
const ADDRESSES: usize = 4_096;

/// Counts wrong keys.
#[derive(Debug, Default)]
pub(super) struct Throttle(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

impl Failures {
    /// How many still count: each [`REFILL`] forgives one.
    fn standing(self, now: Instant) -> u32 {
        let forgiven = now.duration_since(self.last).as_secs() / REFILL.as_secs();
        self.count
            .saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX))
    }
}

impl Throttle {
    /// Whether this address may try a key.
    pub(super) fn admits(&self, address: IpAddr, now: Instant) -> bool {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures
            .get(&address)
            .is_none_or(|known| known.standing(now) < BURST)
    }

    /// Notes a wrong key.
    pub(super) fn failed(&self, address: IpAddr, now: Instant) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, known| known.standing(now) > 0);
            if failures.len() >= ADDRESSES {
                failures.clear();
            }
        }
        let standing = failures
            .get(&address)
            .map_or(0, |known| known.standing(now));
        failures.insert(
            address,
            Failures {
                count: standing + 1,
                last: now,
            },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

    #[test]
    fn a_burst_is_forgiven_one_by_one() {
        let throttle = Throttle::default();
        let start = Instant::now();
        for _ in 0..BURST {
            assert!(throttle.admits(ONE, start));
            throttle.failed(ONE, start);
        }
        assert!(!throttle.admits(ONE, start));
        assert!(throttle.admits(OTHER, start));
        let later = start + REFILL;
        assert!(throttle.admits(ONE, later));
        throttle.failed(ONE, later);
        assert!(!throttle.admits(ONE, later));
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..=u32::try_from(ADDRESSES).unwrap() {
            throttle.failed(IpAddr::V4(n.into()), now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES);
    }
}
