//! Addresses of allowed names: which names led to them, and how long the kernel lets them through.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    limits::{self, REMEMBERED},
    policy::{Action, Effective, Touched},
};

/// Names of one address that are remembered. An address of a content network has thousands.
const NAMES: usize = 32;
/// An address is not opened anew if it is open for nearly as long as it would be then: names that are
/// asked for all the time would change the kernel's set all the time.
const NEARLY: Duration = Duration::from_secs(10);
/// The kernel forgets an address this much later than is known here at most: a life begins when the
/// kernel gets to it.
const LATE: Duration = Duration::from_secs(60);
/// Time between two counts of the expired addresses: a count takes longer than an answer.
const COUNT: Duration = Duration::from_secs(1);
/// Places of the table below which it does not shrink.
const SMALL: usize = 1024;

/// Addresses and the names that led to them.
#[derive(Debug, Default)]
pub(crate) struct Learned {
    addresses: HashMap<IpAddr, Entry>,
    /// Addresses that are forgotten here, but not by the kernel's sets of addresses whose connections
    /// go on.
    stale: Vec<IpAddr>,
    /// When the expired addresses were counted.
    counted: Option<Instant>,
    /// Bytes of all leads.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    /// None for an address that an earlier process opened.
    leads: Vec<Lead>,
    /// When the kernel forgets the address.
    until: Instant,
    /// Whether the kernel lets its connections go on.
    is_kept: bool,
}

impl Entry {
    /// Bytes of its leads.
    fn bytes(&self) -> usize {
        self.leads.iter().map(Lead::bytes).sum()
    }
}

/// An allowed name, and the names that it is an alias of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lead {
    pub(crate) name: Arc<str>,
    pub(crate) aliases: Arc<[Arc<str>]>,
}

impl Lead {
    /// Bytes that are remembered for it. Addresses of one answer share them, which is not counted.
    fn bytes(&self) -> usize {
        let aliases = self.aliases.iter();
        let texts = aliases.map(|alias| size_of::<Arc<str>>() + alias.len());
        size_of::<Self>() + self.name.len() + texts.sum::<usize>()
    }

    /// Whether a policy still lets this name open an address.
    pub(super) fn is_allowed(&self, policy: &Effective, address: IpAddr) -> bool {
        self.has_allowed_names(policy) && policy.admits_answer(address, policy.decide(&self.name))
    }

    /// Whether a policy allows the name, and refuses none of its aliases.
    pub(super) fn has_allowed_names(&self, policy: &Effective) -> bool {
        let mut aliases = self.aliases.iter();
        policy.decide(&self.name).action == Action::Allow
            && aliases.all(|alias| policy.refusing_rule(alias).is_none())
    }

    fn is_touched(&self, touched: &Touched) -> bool {
        touched.covers(&self.name) || self.aliases.iter().any(|alias| touched.covers(alias))
    }
}

impl Learned {
    /// Life of an address in the packet filter for an answer with this lifetime.
    pub(crate) fn life(ttl: u32) -> Duration {
        let (shortest, longest) = limits::LEARNED_LIFE;
        let life = Duration::from_secs(ttl.into()).saturating_add(limits::LEARNED_SLACK);
        life.clamp(shortest, longest)
    }

    /// Whether an address is open for about as long as an answer with this lifetime would open it, so
    /// that nothing has to be done.
    pub(crate) fn covers(&self, name: &str, address: IpAddr, ttl: u32, now: Instant) -> bool {
        let needed = now + Self::life(ttl).saturating_sub(NEARLY);
        let entry = self.addresses.get(&address);
        entry.is_some_and(|entry| {
            entry.until >= needed && entry.leads.iter().any(|lead| *lead.name == *name)
        })
    }

    /// Time for which the kernel still lets an address through.
    pub(crate) fn left(&self, address: IpAddr, now: Instant) -> Duration {
        let entry = self.addresses.get(&address);
        entry.map_or(Duration::ZERO, |entry| {
            entry.until.saturating_duration_since(now)
        })
    }

    /// Takes over addresses that an earlier process opened, each with the time that it had left, and
    /// those whose connections go on. The names that led to them are unknown.
    pub(crate) fn inherit(&mut self, live: &[(IpAddr, Duration)], kept: &[IpAddr], now: Instant) {
        let unknown = |until, is_kept| Entry {
            leads: Vec::new(),
            until,
            is_kept,
        };
        for (address, left) in live {
            self.addresses.insert(*address, unknown(now + *left, false));
        }
        for address in kept {
            let entry = self.addresses.entry(*address);
            entry
                .and_modify(|entry| entry.is_kept = true)
                .or_insert_with(|| unknown(now, true));
        }
    }

    /// Notes that the kernel lets an address through.
    pub(crate) fn note(&mut self, lead: &Lead, address: IpAddr, until: Instant) {
        let entry = self.addresses.entry(address).or_insert_with(|| Entry {
            // Most addresses have one name.
            leads: Vec::with_capacity(1),
            until,
            is_kept: false,
        });
        entry.until = entry.until.max(until);
        // The name may have other aliases than before.
        let former = entry.leads.iter().position(|it| it.name == lead.name);
        let surplus = former.or_else(|| (entry.leads.len() == NAMES).then_some(0));
        if let Some(place) = surplus {
            self.bytes -= entry.leads.remove(place).bytes();
        }
        entry.leads.push(lead.clone());
        self.bytes += lead.bytes();
    }

    /// Whether further names can be remembered. Forgets expired addresses for them.
    pub(crate) fn has_room(&mut self, now: Instant) -> bool {
        if self.bytes > limits::NAME_BYTES {
            self.forget_expired(now, 0);
        }
        self.bytes <= limits::NAME_BYTES
    }

    /// Names that led to an address, as far as they are remembered.
    pub(crate) fn names(&self, address: IpAddr) -> Vec<String> {
        let entry = self.addresses.get(&address);
        let leads = entry.map(|entry| entry.leads.as_slice());
        let names = leads.unwrap_or_default().iter();
        names.map(|lead| lead.name.to_string()).collect()
    }

    /// Forgets the addresses that expired first, if there are too many. Returns their number.
    pub(crate) fn trim(&mut self, now: Instant) -> usize {
        if self.addresses.len() <= REMEMBERED + limits::LEARNED {
            if self.counted.is_some_and(|then| now < then + COUNT) {
                return 0;
            }
            self.counted = Some(now);
            let expired = self.addresses.values().filter(|it| it.until < now).count();
            if expired <= REMEMBERED {
                return 0;
            }
        }
        // A quarter more than needed, so that this is not done for every address.
        self.forget_expired(now, REMEMBERED * 3 / 4)
    }

    /// Forgets the addresses that expired first, all but so many. Returns their number.
    fn forget_expired(&mut self, now: Instant, most: usize) -> usize {
        let mut expired: Vec<(Instant, IpAddr)> = self
            .addresses
            .iter()
            .filter(|(_, entry)| entry.until < now)
            .map(|(address, entry)| (entry.until, *address))
            .collect();
        expired.sort_unstable();
        let surplus = expired.len().saturating_sub(most);
        for (_, address) in &expired[..surplus] {
            let Some(entry) = self.addresses.remove(address) else {
                continue;
            };
            self.bytes -= entry.bytes();
            if entry.is_kept {
                self.stale.push(*address);
            }
        }
        self.shrink();
        surplus
    }

    /// What another policy changes. `touched` covers what it may decide in another way than the
    /// policy in force, which allows all names here.
    pub(crate) fn under(&self, policy: &Effective, touched: &Touched, now: Instant) -> Difference {
        let mut difference = Difference {
            disconnected: self.stale.clone(),
            ..Difference::default()
        };
        for (address, entry) in &self.addresses {
            let is_over =
                |lead: &&Lead| lead.is_touched(touched) && !lead.is_allowed(policy, *address);
            let over = entry.leads.iter().filter(is_over);
            let names: Vec<_> = over.map(|lead| Arc::clone(&lead.name)).collect();
            if names.len() < entry.leads.len() {
                let ended = names.into_iter().map(|name| (*address, name));
                difference.ended.extend(ended);
                if !entry.is_kept {
                    difference.kept.push(*address);
                }
                continue;
            }
            difference.forgotten.push(*address);
            if entry.until + LATE > now {
                difference.closed.push(*address);
            }
            if entry.is_kept {
                difference.disconnected.push(*address);
            }
        }
        difference
    }

    /// Forgets what another policy refuses.
    pub(crate) fn forget(&mut self, difference: &Difference) {
        for address in &difference.forgotten {
            let entry = self.addresses.remove(address);
            self.bytes -= entry.as_ref().map_or(0, Entry::bytes);
        }
        for (address, name) in &difference.ended {
            if let Some(entry) = self.addresses.get_mut(address) {
                self.bytes -= entry.bytes();
                entry.leads.retain(|lead| lead.name != *name);
                self.bytes += entry.bytes();
            }
        }
        self.shrink();
    }

    /// Notes that the kernel has made a difference.
    pub(crate) fn made(&mut self, difference: &Difference) {
        self.stale = Vec::new();
        for address in &difference.kept {
            if let Some(entry) = self.addresses.get_mut(address) {
                entry.is_kept = true;
            }
        }
    }

    /// Everything that the kernel has to let through.
    pub(crate) fn standing(&self, now: Instant) -> Standing {
        let live = self.addresses.iter().filter_map(|(address, entry)| {
            let left = entry.until.saturating_duration_since(now);
            (!left.is_zero()).then_some((*address, left))
        });
        Standing {
            live: live.collect(),
            kept: self.addresses.keys().copied().collect(),
        }
    }

    /// Notes that the kernel lets exactly [`standing`](Self::standing) through.
    pub(crate) fn stood(&mut self) {
        self.stale = Vec::new();
        for entry in self.addresses.values_mut() {
            entry.is_kept = true;
        }
    }

    /// Notes that the kernel may let less through than is known here, so that every address is opened
    /// again when it is resolved.
    pub(crate) fn doubt(&mut self, now: Instant) {
        for entry in self.addresses.values_mut() {
            entry.until = entry.until.min(now);
        }
    }

    /// Number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Gives memory back when most addresses are gone.
    fn shrink(&mut self) {
        let len = self.addresses.len().max(SMALL);
        if self.addresses.capacity() / 4 > len {
            self.addresses.shrink_to(2 * len);
        }
    }
}

/// What changes under another policy.
#[derive(Debug, Default)]
pub(crate) struct Difference {
    /// Addresses to which no allowed name leads any more.
    forgotten: Vec<IpAddr>,
    /// Names that it refuses, of addresses to which others lead.
    ended: Vec<(IpAddr, Arc<str>)>,
    /// Addresses that the kernel lets through and must not.
    pub(crate) closed: Vec<IpAddr>,
    /// Addresses whose connections the kernel lets go on and must not.
    pub(crate) disconnected: Vec<IpAddr>,
    /// Addresses whose connections go on from now on.
    pub(crate) kept: Vec<IpAddr>,
}

/// What the kernel has to let through.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    /// Addresses that new connections may use, and for how long.
    pub(crate) live: Vec<(IpAddr, Duration)>,
    /// Addresses whose connections go on.
    pub(crate) kept: Vec<IpAddr>,
}

#[cfg(test)]
mod tests;
