//! Wrong keys and passwords are counted, and refused faster than they can be tried.
//!
//! Keys are counted by the address they come from. The right key is never refused: an attacker who
//! shares the operator's address, as all clients of a proxy that is not in `server.trusted_proxies`
//! do, could otherwise keep the operator out. What keeps a key from being guessed is its length. The one
//! exception is a key that another service would have to be asked about: beyond the limit it is not.
//!
//! Passwords are short, so they are counted by account as well, and beyond the limit even the right one
//! is refused. They have a limit per address of their own, so that a program with an old key keeps no
//! user behind the same address from signing in. An address from which the account has signed in has a limit of its own: an attacker
//! elsewhere cannot keep the owner out.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// One wrong key is forgiven each time this has passed.
const REFILL: Duration = Duration::from_secs(6);
/// Most addresses or accounts that are remembered. When there are more, those with the fewest failures
/// go first.
const ADDRESSES: usize = 4_096;

/// Wrong passwords for an account in a row.
const WRONG_PASSWORDS: u32 = 10;

/// Counts wrong keys and passwords.
#[derive(Debug, Default)]
pub struct Throttle {
    /// Wrong keys.
    keys: Counts<IpAddr>,
    /// Wrong passwords.
    passwords: Counts<IpAddr>,
    /// Wrong passwords, too.
    accounts: Counts<Attempt>,
    /// Accounts with addresses from which they have signed in.
    known: Mutex<HashSet<(String, IpAddr)>>,
}

/// Who tries an account: any client, or one at an address from which the account has signed in.
type Attempt = (String, Option<IpAddr>);

/// Failures by what they are counted by.
#[derive(Debug)]
struct Counts<K>(Mutex<HashMap<K, Failures>>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

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

impl<K: Hash + Eq + Clone> Counts<K> {
    fn unforgiven(&self, key: &K, now: Instant) -> u32 {
        let failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        failures.get(key).map_or(0, |known| known.unforgiven(now))
    }

    /// Notes a failure, of which there may be `burst` in a row.
    fn record(&self, key: K, burst: u32, now: Instant) -> KeyFailure {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES && !failures.contains_key(&key) {
            failures.retain(|_, known| known.unforgiven(now) > 0);
            while failures.len() >= ADDRESSES {
                let least = |(_, known): &(&K, &Failures)| (known.unforgiven(now), known.last);
                let Some(key) = failures
                    .iter()
                    .min_by_key(least)
                    .map(|(key, _)| key.clone())
                else {
                    break;
                };
                failures.remove(&key);
            }
        }
        let unforgiven = failures.get(&key).map_or(0, |known| known.unforgiven(now));
        if unforgiven >= burst {
            return KeyFailure::TooMany;
        }
        let count = unforgiven + 1;
        failures.insert(key, Failures { count, last: now });
        match count == burst {
            true => KeyFailure::Last,
            false => KeyFailure::Counted,
        }
    }

    /// Forgets one failure.
    fn take_back(&self, key: &K) {
        let mut failures = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = failures.get_mut(key) {
            known.count = known.count.saturating_sub(1);
        }
    }
}

impl Throttle {
    /// Notes a wrong key; an address may send `burst` in a row.
    pub(super) fn record_failure(&self, address: IpAddr, burst: u32, now: Instant) -> KeyFailure {
        self.keys.record(address, burst, now)
    }

    /// Whether a key may be looked for elsewhere: the address has not sent `burst` wrong ones in a row.
    pub(super) fn admits_key(&self, address: IpAddr, burst: u32, now: Instant) -> bool {
        self.keys.unforgiven(&address, now) < burst
    }

    /// Notes a password for a name that no account can have; an address may send `burst` in a row.
    pub(super) fn record_no_account(
        &self,
        address: IpAddr,
        burst: u32,
        now: Instant,
    ) -> KeyFailure {
        self.passwords.record(address, burst, now)
    }

    /// Whether a password for an account is looked at. It counts as wrong until
    /// [`Self::record_sign_in`], so that attempts at once are counted, too. `burst` is what an address
    /// may send in a row.
    pub(super) fn admits(&self, account: &str, address: IpAddr, burst: u32, now: Instant) -> bool {
        let attempt = self.attempt(account, address);
        let is_known = attempt.1.is_some();
        if !is_known && self.passwords.unforgiven(&address, now) >= burst {
            return false;
        }
        if self.accounts.record(attempt, WRONG_PASSWORDS, now) == KeyFailure::TooMany {
            return false;
        }
        self.passwords.record(address, burst, now);
        true
    }

    /// Notes that the password was right.
    pub(super) fn record_sign_in(&self, account: &str, address: IpAddr) {
        self.accounts.take_back(&self.attempt(account, address));
        self.passwords.take_back(&address);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= ADDRESSES {
            known.clear();
        }
        known.insert((account.to_owned(), address));
    }

    fn attempt(&self, account: &str, address: IpAddr) -> Attempt {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = (account.to_owned(), address);
        let is_known = known.contains(&pair);
        (pair.0, is_known.then_some(address))
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
        assert!(throttle.keys.0.lock().unwrap().len() <= ADDRESSES);
    }

    #[test]
    fn many_addresses_do_not_clear_the_count_of_another() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..3 {
            throttle.record_failure(ONE, 3, now);
        }
        for n in 0..=u32::try_from(ADDRESSES).unwrap() {
            let other = IpAddr::V4((0xC000_0000 + n).into());
            throttle.record_failure(other, 3, now);
        }
        assert_eq!(throttle.record_failure(ONE, 3, now), KeyFailure::TooMany);
    }

    #[test]
    fn keys_and_passwords_are_counted_apart() {
        let throttle = Throttle::default();
        let now = Instant::now();
        for _ in 0..100 {
            throttle.record_failure(ONE, 100, now);
        }
        assert!(!throttle.admits_key(ONE, 100, now));
        assert!(throttle.admits_key(ONE, 100, now + REFILL));
        for name in ["a", "b", "c"] {
            assert!(throttle.admits(name, ONE, 3, now), "{name}");
        }
        assert!(!throttle.admits("d", ONE, 3, now));
        assert_eq!(throttle.record_no_account(ONE, 3, now), KeyFailure::TooMany);
        for _ in 0..3 {
            assert!(throttle.admits_key(OTHER, 3, now));
            throttle.record_no_account(OTHER, 3, now);
        }
        assert!(throttle.admits_key(OTHER, 3, now), "passwords are no keys");
        assert!(!throttle.admits("d", OTHER, 3, now));
    }

    #[test]
    fn an_account_is_closed_to_strangers_and_open_to_its_owner() {
        let throttle = Throttle::default();
        let now = Instant::now();
        let admits = |account, address, now| throttle.admits(account, address, 10, now);
        for _ in 0..20 {
            assert!(admits("zoe", ONE, now));
            throttle.record_sign_in("zoe", ONE);
        }
        for n in 0..10 {
            assert!(admits("zoe", IpAddr::from([10, 0, 1, n]), now), "{n}");
        }
        assert!(!admits("zoe", OTHER, now), "from any other address");
        assert!(admits("adam", OTHER, now), "another account");
        assert!(admits("zoe", OTHER, now + REFILL));
        for _ in 0..10 {
            assert!(admits("zoe", ONE, now), "from where the owner was before");
        }
        assert!(!admits("zoe", ONE, now), "its own limit");
        assert!(!admits("eve", ONE, now), "one address for many accounts");
    }
}
