//! The way from one policy to the next in the kernel's sets of addresses.
//!
//! The changes are in an order that is never more open than the old policy or the new one, wherever
//! it ends: a process may be killed, and the kernel may not accept all of them as one transaction.
//!
//! 1. What the new policy refuses is closed. Its connections still go on under the old policy.
//! 2. Connections that go on are let on. Their addresses are allowed under both policies.
//! 3. The new generation has every connection judged again.

use std::{net::IpAddr, time::Duration};

use super::{
    elements::Change,
    learned::{Difference, Standing},
    ruleset::{Edition, sets},
};

/// Changes that make a difference to what the sets have. `edition` is `None` if whole rules with an
/// edition of their own follow.
pub(crate) fn from_difference(difference: &Difference, edition: Option<Edition>) -> Vec<Change> {
    let mut changes = Change::removing(sets::LEARNED, &difference.closed);
    changes.extend(Change::removing(sets::KEPT, &difference.disconnected));
    changes.extend(Change::adding(sets::KEPT, &without_life(&difference.kept)));
    changes.extend(edition.map(Change::Edition));
    changes
}

/// Changes that empty the sets and fill them, whatever they have.
pub(crate) fn from_nothing(standing: &Standing, edition: Option<Edition>) -> Vec<Change> {
    let live: Vec<_> = standing
        .live
        .iter()
        .map(|(address, left)| (*address, Some(*left)))
        .collect();
    let mut changes = Change::flushing(sets::LEARNED);
    changes.extend(Change::flushing(sets::KEPT));
    changes.extend(Change::adding(sets::LEARNED, &live));
    changes.extend(Change::adding(sets::KEPT, &without_life(&standing.kept)));
    changes.extend(edition.map(Change::Edition));
    changes
}

fn without_life(addresses: &[IpAddr]) -> Vec<(IpAddr, Option<Duration>)> {
    addresses.iter().map(|address| (*address, None)).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        time::Instant,
    };

    use proptest::prelude::*;

    use super::*;
    use crate::{
        firewall::learned::{Lead, Learned},
        policy::{Effective, Policy, Touched, overlay::Overlay},
    };

    const NAMES: [&str; 3] = ["a.example", "b.example", "c.example"];

    /// What the kernel has.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    struct Kernel {
        sets: BTreeMap<String, BTreeSet<IpAddr>>,
        edition: Option<Edition>,
    }

    impl Kernel {
        fn make(&mut self, change: &Change) {
            match change {
                Change::Flush(set) => self.sets.entry(set.clone()).or_default().clear(),
                Change::Add(set, added) => {
                    let own = self.sets.entry(set.clone()).or_default();
                    own.extend(added.iter().map(|(address, _)| *address));
                }
                Change::Remove(set, removed) => {
                    let own = self.sets.entry(set.clone()).or_default();
                    own.retain(|address| !removed.contains(address));
                }
                Change::Edition(edition) => self.edition = Some(*edition),
            }
        }

        /// Addresses in the sets of both families.
        fn both(&self, name: &str) -> BTreeSet<IpAddr> {
            let own = self.sets.iter();
            let own = own.filter(|(set, _)| set.starts_with(name));
            own.flat_map(|(_, addresses)| addresses.clone()).collect()
        }
    }

    fn edition() -> Edition {
        Edition {
            generation: 7,
            fingerprint: "2001:db8::7".parse().unwrap(),
        }
    }

    fn address(number: u8) -> IpAddr {
        match number.is_multiple_of(2) {
            true => IpAddr::from([198, 51, 100, number]),
            false => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(number)]),
        }
    }

    fn allowing(names: &[bool; 3]) -> Effective {
        let rules = NAMES
            .iter()
            .zip(names)
            .filter(|(_, is_allowed)| **is_allowed);
        let rules: Vec<_> = rules
            .map(|(name, _)| format!(r#"{{"action":"allow","target":"{name}"}}"#))
            .collect();
        let text = format!(r#"{{"egress":[{}]}}"#, rules.join(","));
        let user = Policy::parse(text.as_bytes()).unwrap();
        Effective::new(&user, &Overlay::default())
    }

    proptest! {
        /// Wherever the changes end, nothing is open that was not, connections go on only to what
        /// they could be opened to, and under the new generation only what the new policy allows is
        /// open.
        #[test]
        fn a_change_is_never_more_open_than_both_policies(
            // Names that led to an address, and whether it has expired and was kept before.
            entries in prop::collection::vec((1_usize..8, any::<bool>(), any::<bool>()), 0..12),
            allowed: [bool; 3],
            is_refill: bool,
            percent in 0_usize..=100,
        ) {
            let now = Instant::now();
            let (before, after) = (allowing(&[true; 3]), allowing(&allowed));
            let mut learned = Learned::default();
            let mut kernel = Kernel::default();
            let (mut may_be_open, mut may_go_on) = (BTreeSet::new(), BTreeSet::new());
            for (number, (names, is_live, is_kept)) in (0_u8..).zip(&entries) {
                let address = address(number);
                if *is_kept {
                    learned.inherit(&[], &[address], now);
                    kernel.make(&Change::adding(sets::KEPT, &[(address, None)])[0]);
                }
                let life = Duration::from_secs(if *is_live { 60 } else { 0 });
                for (bit, name) in NAMES.iter().enumerate() {
                    if (names >> bit) & 1 == 1 {
                        let lead = Lead { name: (*name).into(), aliases: [].into() };
                        learned.note(&lead, address, now + life);
                    }
                }
                if *is_live {
                    kernel.make(&Change::adding(sets::LEARNED, &[(address, Some(life))])[0]);
                }
                let is_allowed = (0..3).any(|bit| (names >> bit) & 1 == 1 && allowed[bit]);
                if is_allowed {
                    may_go_on.insert(address);
                    if *is_live {
                        may_be_open.insert(address);
                    }
                }
            }
            let old = kernel.clone();
            let difference = learned.under(&after, &Touched::between(&before, &after), now);
            learned.forget(&difference);
            let changes = match is_refill {
                true => from_nothing(&learned.standing(now), Some(edition())),
                false => from_difference(&difference, Some(edition())),
            };
            let complete = changes.len();
            let count = complete * percent / 100;
            for change in &changes[..count] {
                kernel.make(change);
            }
            let open = kernel.both(sets::LEARNED);
            let kept = kernel.both(sets::KEPT);
            prop_assert!(open.is_subset(&old.both(sets::LEARNED)), "{:?}", kernel);
            let could: BTreeSet<_> = old.both(sets::KEPT).union(&may_go_on).copied().collect();
            prop_assert!(kept.is_subset(&could), "{:?}", kernel);
            prop_assert_eq!(kernel.edition.is_some(), count == complete, "it is the last change");
            if count == complete {
                prop_assert_eq!(open, may_be_open);
                prop_assert_eq!(kept, may_go_on);
            }
        }
    }

    #[test]
    fn nothing_is_written_if_nothing_differs() {
        let any = allowing(&[true; 3]);
        let learned = Learned::default();
        let difference = learned.under(&any, &Touched::between(&any, &any), Instant::now());
        assert_eq!(from_difference(&difference, None), []);
        assert_eq!(
            from_difference(&difference, Some(edition())),
            [Change::Edition(edition())]
        );
    }
}
