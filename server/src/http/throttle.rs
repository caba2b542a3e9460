//! Wrong keys are counted by the address they come from, and refused faster than they can be tried.
//!
//! The right key is never refused: an attacker who shares the operator's address, as all clients of
//! a proxy that is not in `server.trusted_proxies` do, could otherwise keep the operator out. What
//! keeps a key from being guessed is its length.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One wrong key is forgiven each time this has passed.
const REFILL: Duration = Duration::from_secs(6);
/// Most addresses that are remembered. When there are more, those that may send again go first.
const ADDRESSES: usize = 4_096;

/// Counts wrong keys.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<HashMap<IpAddr, Failures>>);

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u32,
    last: Instant,
}

/// How often an address has sent wrong keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyFailure {
    /// One of a few.
    Counted,
    /// The last before the address is throttled.
    Last,
    /// One too many.
    TooMany,
}

impl Failures {
    /// How many still count: each [`REFILL`] forgives one.
    fn unforgiven(self, now: Instant) -> u32 {
        let forgiven = now.duration_since(self.last).as_secs() / REFILL.as_secs();
        self.count
            .saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX))
    }
}

impl Throttle {
    /// Notes a wrong key; an address may send `burst` in a row.
    pub(super) fn record_failure(&self, address: IpAddr, burst: u32, now: Instant) -> KeyFailure {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES && !failures.contains_key(&address) {
            failures.retain(|_, known| known.unforgiven(now) > 0);
            if failures.len() >= ADDRESSES {
                failures.clear();
            }
        }
        let unforgiven = failures
            .get(&address)
            .map_or(0, |known| known.unforgiven(now));
        if unforgiven >= burst {
            return KeyFailure::TooMany;
        }
        let count = unforgiven + 1;
        failures.insert(address, Failures { count, last: now });
        match count == burst {
            true => KeyFailure::Last,
            false => KeyFailure::Counted,
        }
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
        let wrong = |address, now| throttle.record_failure(address, 3, now);
        let seen = [(); 5].map(|()| wrong(ONE, start));
        let (few, many) = (KeyFailure::Counted, KeyFailure::TooMany);
        assert_eq!(seen, [few, few, KeyFailure::Last, many, many]);
        assert_eq!(wrong(OTHER, start), few);
        let later = start + REFILL;
        assert_eq!(
            [wrong(ONE, later), wrong(ONE, later)],
            [KeyFailure::Last, many]
        );
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for n in 0..=u32::try_from(ADDRESSES).unwrap() {
            throttle.record_failure(IpAddr::V4(n.into()), 3, now);
        }
        assert!(throttle.0.lock().unwrap().len() <= ADDRESSES);
    }
}
