//! Every sandbox in memory.
//!
//! One lock guards three views of the same records: by id, by age (for lists) and by deadline (for
//! expiry). It is held for map operations only, never across an await. Each change is published on one
//! broadcast, which console topics and waiters listen to.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque, hash_map},
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::AtomicBool,
    },
};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{Reasons, Vocabulary};
use osb_store::Outcome;
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{Facts, Record, renewal_throttle::RenewalThrottle};

/// Changes a slow listener may fall behind before it has to look at everything again.
const CHANGES: usize = 1024;
/// Removed sandboxes that are remembered: more than can be removed while a list is on its way.
const REMOVED: usize = 4096;

/// Time between two full lists that both have to lack all sandboxes of earlier processes, in
/// milliseconds, before that is believed.
const SECOND_LOOK_MS: i64 = 30_000;

/// Something changed.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which sandbox.
    pub id: SandboxId,
    /// What it is now; `None` when it is gone.
    pub record: Option<Arc<Record>>,
    /// The tenant whose sandbox it is, or was.
    pub tenant: Option<Arc<str>>,
    /// Grows by one with each change.
    pub seq: u64,
}

/// Whether the runtime answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuntimeHealth {
    /// It has not been heard from yet.
    Starting,
    /// It answers, and the registry is in step with it.
    Up,
    /// It does not answer; the registry holds what was last known.
    Down {
        /// What was seen.
        reason: String,
    },
}

/// Every sandbox in memory.
#[derive(Debug)]
pub struct Registry {
    vocabulary: &'static Vocabulary,
    views: RwLock<Views>,
    changes: broadcast::Sender<Change>,
    health: watch::Sender<RuntimeHealth>,
    looks: Mutex<Option<Looks>>,
    deadline_moved: Notify,
}

/// Full lists of the runtime since the start of this process.
#[derive(Clone, Copy, Debug)]
struct Looks {
    first: WireTime,
    last: WireTime,
    /// Whether one had a sandbox of an earlier process.
    has_found: bool,
}

#[derive(Debug, Default)]
struct Views {
    by_id: HashMap<SandboxId, Entry>,
    /// Newest first; the id breaks ties.
    by_age: BTreeMap<(Reverse<WireTime>, SandboxId), Arc<Record>>,
    by_deadline: BTreeSet<(WireTime, SandboxId)>,
    /// How many sandboxes have an address; two may for a moment, when the engine gave the address
    /// of one that ended to another before the end was reported.
    by_address: HashMap<IpAddr, usize>,
    /// Those that were removed last, oldest first.
    removed: VecDeque<SandboxId>,
    seq: u64,
}

#[derive(Debug)]
struct Entry {
    record: Arc<Record>,
    locks: Arc<Locks>,
}

/// How a sandbox ended, for its history.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Locks of one sandbox. Both are held across awaits, by the task that does the work.
#[derive(Debug, Default)]
pub struct Locks {
    /// Making and removing: one at a time.
    pub life: tokio::sync::Mutex<()>,
    /// What the store holds of it: renewals, patches, the intent to delete and its end. Memory and store
    /// change in the same order, and nothing is stored after the history.
    pub edit: tokio::sync::Mutex<()>,
    /// Ends a create under way.
    pub cancel: CancellationToken,
    /// The client of a create under way is gone: what is made goes, but a pull goes on.
    pub abandoned: CancellationToken,
    /// Why it is being removed; the first reason counts.
    pub leaving: OnceLock<Outcome>,
    /// Why its create failed, if what was made of it could not be removed at once.
    pub(super) failed: OnceLock<Ended>,
    /// Whether the store knows that the sandbox is to be removed.
    pub deletion_kept: AtomicBool,
    /// When accesses last renewed it.
    pub(super) renewal: RenewalThrottle,
}

impl Registry {
    /// A registry without sandboxes, whose states have the reasons of a runtime.
    #[must_use]
    pub fn new(vocabulary: &'static Vocabulary) -> Self {
        Self {
            vocabulary,
            views: RwLock::default(),
            changes: broadcast::Sender::new(CHANGES),
            health: watch::Sender::new(RuntimeHealth::Starting),
            looks: Mutex::default(),
            deadline_moved: Notify::new(),
        }
    }

    /// One sandbox.
    #[must_use]
    pub fn get(&self, id: &SandboxId) -> Option<Arc<Record>> {
        self.read()
            .by_id
            .get(id)
            .map(|entry| Arc::clone(&entry.record))
    }

    /// Whether a sandbox has this address.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.read().by_address.contains_key(&address.to_canonical())
    }

    /// One sandbox's locks.
    #[must_use]
    pub fn locks(&self, id: &SandboxId) -> Option<Arc<Locks>> {
        self.read()
            .by_id
            .get(id)
            .map(|entry| Arc::clone(&entry.locks))
    }

    /// Those that match, newest first: one page of them, and how many there are in all. Without a
    /// filter only the page is visited.
    pub fn page(
        &self,
        skip: usize,
        take: usize,
        filter: Option<&dyn Fn(&Record) -> bool>,
    ) -> (Vec<Arc<Record>>, usize) {
        let views = self.read();
        match filter {
            None => {
                let page = views
                    .by_age
                    .values()
                    .skip(skip)
                    .take(take)
                    .cloned()
                    .collect();
                (page, views.by_age.len())
            }
            Some(matches) => {
                let mut total = 0;
                let mut page = Vec::new();
                for record in views.by_age.values().filter(|record| matches(record)) {
                    if total >= skip && page.len() < take {
                        page.push(Arc::clone(record));
                    }
                    total += 1;
                }
                (page, total)
            }
        }
    }

    /// All sandboxes, newest first, and the sequence number they stand at.
    #[must_use]
    pub fn snapshot(&self) -> (Vec<Arc<Record>>, u64) {
        let views = self.read();
        (views.by_age.values().cloned().collect(), views.seq)
    }

    /// Adds a sandbox, or replaces what is known about it.
    pub fn put(&self, facts: Facts) -> Arc<Record> {
        let mut views = self.write();
        let (record, _) = views.put(facts, &self.vocabulary.reasons);
        self.publish(&record, true, views.seq);
        record
    }

    /// Adds a sandbox that is to be made, unless the check of those that exist refuses it; answers its
    /// locks.
    pub(super) fn accept<E>(
        &self,
        facts: Facts,
        check: impl FnOnce(&mut dyn Iterator<Item = &Arc<Record>>) -> Result<(), E>,
    ) -> Result<Arc<Locks>, E> {
        let mut views = self.write();
        check(&mut views.by_age.values())?;
        let (record, locks) = views.put(facts, &self.vocabulary.reasons);
        self.publish(&record, true, views.seq);
        Ok(locks)
    }

    /// Changes a sandbox atomically. An error of `change` leaves it as it was. Returns `None` when
    /// there is no such sandbox.
    pub fn update<T>(
        &self,
        id: &SandboxId,
        change: impl FnOnce(&mut Facts) -> Result<(), T>,
    ) -> Option<Result<Arc<Record>, T>> {
        let mut views = self.write();
        let mut facts = views.by_id.get(id)?.record.facts.clone();
        if let Err(refused) = change(&mut facts) {
            return Some(Err(refused));
        }
        let (record, _) = views.put(facts, &self.vocabulary.reasons);
        self.publish(&record, true, views.seq);
        Some(Ok(record))
    }

    /// Forgets a sandbox.
    pub fn remove(&self, id: &SandboxId) -> Option<Arc<Record>> {
        let mut views = self.write();
        let entry = views.by_id.remove(id)?;
        views.unlink(&entry.record);
        if views.removed.len() == REMOVED {
            views.removed.pop_front();
        }
        views.removed.push_back(id.clone());
        views.seq += 1;
        self.publish(&entry.record, false, views.seq);
        Some(entry.record)
    }

    /// Whether a sandbox was removed a short while ago. Ids are not used twice, so a list or an
    /// event that has it is older than the removal.
    #[must_use]
    pub fn was_removed(&self, id: &SandboxId) -> bool {
        self.read().removed.contains(id)
    }

    /// Receives changes from now on. A receiver that lags gets an error and must read everything.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    /// Whether the runtime answers.
    #[must_use]
    pub fn health(&self) -> RuntimeHealth {
        self.health.borrow().clone()
    }

    /// Receives changes of the runtime's health.
    #[must_use]
    pub fn watch_health(&self) -> watch::Receiver<RuntimeHealth> {
        self.health.subscribe()
    }

    pub(super) fn set_health(&self, health: RuntimeHealth) {
        self.health.send_if_modified(|now| {
            let changed = *now != health;
            *now = health;
            changed
        });
    }

    /// Notes a full list of the runtime that was begun at `at`, and whether this process has found a
    /// sandbox of an earlier one so far.
    pub(super) fn note_look(&self, at: WireTime, has_found: bool) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        // The clock may have been set back.
        let first = looks.map_or(at, |looks| looks.first.min(at));
        *looks = Some(Looks {
            first,
            last: at,
            has_found,
        });
    }

    /// Whether the runtime may be another one by mistake, as far as its lists show: none had a sandbox of
    /// an earlier process, and the last was begun less than [`SECOND_LOOK_MS`] after the first.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.is_none_or(|looks| {
            !looks.has_found && looks.last.unix_ms() - looks.first.unix_ms() < SECOND_LOOK_MS
        })
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(WireTime, SandboxId)> {
        self.read().by_deadline.first().cloned()
    }

    /// Returns when deadlines may have changed.
    pub async fn deadline_moved(&self) {
        self.deadline_moved.notified().await;
    }

    fn publish(&self, record: &Arc<Record>, exists: bool, seq: u64) {
        let origin = &record.facts.origin;
        // There may be no receiver. Sent under the lock, so that changes are published in order.
        let _ = self.changes.send(Change {
            id: origin.id.clone(),
            record: exists.then(|| Arc::clone(record)),
            tenant: origin.tenant.clone(),
            seq,
        });
        self.deadline_moved.notify_one();
    }

    fn read(&self) -> RwLockReadGuard<'_, Views> {
        // The views are whole after every operation, so a panic elsewhere does not spoil them.
        self.views.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Views> {
        self.views.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Views {
    fn put(&mut self, facts: Facts, reasons: &Reasons) -> (Arc<Record>, Arc<Locks>) {
        self.seq += 1;
        let record = Arc::new(Record::derive(facts, self.seq, reasons));
        let id = &record.facts.origin.id;
        let locks = match self.by_id.remove(id) {
            Some(old) => {
                self.unlink(&old.record);
                old.locks
            }
            None => Arc::default(),
        };
        self.by_age.insert(
            (Reverse(record.facts.origin.created_at), id.clone()),
            Arc::clone(&record),
        );
        if let Some(at) = deadline(&record.facts) {
            self.by_deadline.insert((at, id.clone()));
        }
        if let Some(ip) = address(&record.facts) {
            *self.by_address.entry(ip).or_default() += 1;
        }
        self.by_id.insert(
            id.clone(),
            Entry {
                record: Arc::clone(&record),
                locks: Arc::clone(&locks),
            },
        );
        (record, locks)
    }

    fn unlink(&mut self, record: &Record) {
        let facts = &record.facts;
        self.by_age
            .remove(&(Reverse(facts.origin.created_at), facts.origin.id.clone()));
        if let Some(at) = deadline(facts) {
            self.by_deadline.remove(&(at, facts.origin.id.clone()));
        }
        if let Some(hash_map::Entry::Occupied(mut sandboxes)) =
            address(facts).map(|ip| self.by_address.entry(ip))
        {
            *sandboxes.get_mut() -= 1;
            if *sandboxes.get() == 0 {
                sandboxes.remove();
            }
        }
    }
}

/// Addresses are compared in one form: the kernel shows an IPv4 peer of an IPv6 listener mapped.
fn address(facts: &Facts) -> Option<IpAddr> {
    facts.address.ip.map(|ip| ip.to_canonical())
}

/// A sandbox that is being removed has no deadline any more.
fn deadline(facts: &Facts) -> Option<WireTime> {
    facts.expires_at().filter(|_| !facts.is_deleted())
}

#[cfg(test)]
mod tests {
    use osb_runtime::Expiry;

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    fn sandbox(id: &str, created: i64, expires: Option<i64>) -> Facts {
        let mut facts = facts();
        let origin = Arc::make_mut(&mut facts.origin);
        (origin.id, origin.created_at) = (id.into(), at(created));
        origin.expiry = expires.map_or(Expiry::Manual, |seconds| Expiry::At(at(seconds)));
        facts
    }

    #[test]
    fn the_three_views_stay_in_step() {
        let registry = Registry::new(&Vocabulary::CONTAINERS);
        registry.put(sandbox("a", 1, Some(100)));
        registry.put(sandbox("b", 2, Some(50)));
        registry.put(sandbox("c", 2, None));
        let ids = |skip, take| {
            let (page, total) = registry.page(skip, take, None);
            (
                page.iter()
                    .map(|r| r.facts.origin.id.to_string())
                    .collect::<Vec<_>>(),
                total,
            )
        };
        assert_eq!(ids(0, 10), (vec!["b".into(), "c".into(), "a".into()], 3));
        assert_eq!(ids(2, 10), (vec!["a".into()], 3));
        assert_eq!(ids(9, 10), (vec![], 3));
        assert_eq!(registry.next_deadline(), Some((at(50), "b".into())));
        registry.update::<()>(&"b".into(), |facts| {
            facts.changes.expires_at = Some(at(500));
            Ok(())
        });
        assert_eq!(registry.next_deadline(), Some((at(100), "a".into())));
        registry.update::<()>(&"a".into(), |facts| {
            facts.changes.deleted_at = Some(at(60));
            Ok(())
        });
        assert_eq!(registry.next_deadline(), Some((at(500), "b".into())));
        registry.remove(&"b".into());
        assert_eq!(registry.next_deadline(), None);
        assert_eq!(ids(0, 10), (vec!["c".into(), "a".into()], 2));
        let only_a = |record: &Record| record.facts.origin.id.as_str() == "a";
        assert_eq!(registry.page(0, 1, Some(&only_a)).1, 1);
    }

    #[test]
    fn addresses_are_known_for_as_long_as_a_sandbox_has_them() {
        let registry = Registry::new(&Vocabulary::CONTAINERS);
        let (one, other): (IpAddr, IpAddr) =
            ("172.20.0.2".parse().unwrap(), "172.20.0.3".parse().unwrap());
        let at_address = |id, ip| {
            let mut facts = sandbox(id, 1, None);
            facts.address.ip = Some(ip);
            facts
        };
        registry.put(at_address("a", one));
        registry.put(at_address("b", "::ffff:172.20.0.2".parse().unwrap()));
        assert!(registry.has_address("::ffff:172.20.0.2".parse().unwrap()));
        registry.put(at_address("a", other));
        assert!(registry.has_address(one) && registry.has_address(other));
        registry.remove(&"b".into());
        assert!(!registry.has_address(one) && registry.has_address(other));
        registry.update::<()>(&"a".into(), |facts| {
            facts.set_phase(osb_runtime::Phase::Exited(0), at(9));
            Ok(())
        });
        assert!(!registry.has_address(other));
    }

    #[test]
    fn changes_are_published_in_order_and_refused_ones_are_not() {
        let registry = Registry::new(&Vocabulary::CONTAINERS);
        let mut changes = registry.subscribe();
        registry.put(sandbox("a", 1, None));
        let refused = registry.update(&"a".into(), |_| Err("no"));
        assert_eq!(refused.unwrap().unwrap_err(), "no");
        assert!(registry.update::<()>(&"x".into(), |_| Ok(())).is_none());
        registry.remove(&"a".into());
        let (first, second) = (changes.try_recv().unwrap(), changes.try_recv().unwrap());
        assert!(first.record.is_some() && second.record.is_none());
        assert_eq!((first.seq, second.seq), (1, 2));
        assert!(changes.try_recv().is_err());
    }
}
