//! The queue of the trail and its writer.
//!
//! * One writer: entries are stored in the order in which they were recorded.
//! * A write that fails is repeated until the store takes it; entries wait in a bounded queue. An entry
//!   has an id, so a write whose end is unknown adds nothing twice.
//! * When the queue is full, further entries are lost. Their number is recorded as one entry as soon as
//!   there is room, and shown in `/metrics`.
//! * A server that stops writes what waits. One that is killed loses what was not yet written: acts of
//!   the last [`LINGER`], or since the store was away.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use osb_protocol::{
    WireTime,
    audit::{AuditEntry, AuditOutcome, AuditPage},
};
use osb_service::{ErrorChain, Supervisor};
use osb_store::{AuditPlace, AuditQuery, Problem, Store, StoreError};
use serde_json::json;
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tracing::{error, info, warn};

use super::{
    Action,
    clock::{Clock, Reading},
    entry, now,
    repeats::{self, Repeats},
    system,
};

/// Most bytes of entries that wait for the store, as JSON and with what keeping one takes besides.
const WAITING: usize = 16 << 20;
/// Bytes of memory that an entry takes besides its JSON: its place in the queue, and what an allocation
/// costs.
const ENTRY_OVERHEAD: usize = 48;
/// Most entries of one write.
const BATCH: usize = 256;
/// How long entries are collected before they are written together.
const LINGER: Duration = Duration::from_millis(50);
/// Pause after a write that failed.
const RETRY: Duration = Duration::from_secs(1);
/// Pause after a write that failed, while the server stops.
const LAST_RETRY: Duration = Duration::from_millis(100);
/// How often windows of repeated entries are looked at while there are some.
const WINDOWS_EVERY: Duration = Duration::from_secs(5);
/// Longest time that the last write of a server may take.
const LAST_WRITE: Duration = Duration::from_secs(5);
/// How often old entries are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
/// Most entries that one statement deletes: others wait meanwhile.
const PRUNE_BATCH: u32 = 1_000;
/// An age that no entry has, in days.
const AGELESS: i64 = 1_000_000;
/// Seconds of a day.
const DAY: i64 = 24 * 3600;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// Whether acts are recorded.
    pub enabled: bool,
    /// Days after which an entry is deleted.
    pub retention_days: u32,
    /// Most entries that are kept.
    pub max_entries: u64,
}

impl Default for AuditLimits {
    fn default() -> Self {
        Self {
            enabled: true,
            retention_days: 90,
            max_entries: 1_000_000,
        }
    }
}

/// The audit trail. Clones share it.
#[derive(Clone, Debug)]
pub struct AuditTrail(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    store: Arc<dyn Store>,
    limits: AuditLimits,
    queue: Mutex<Queue>,
    /// Notified of entries, also of repeated ones.
    filled: Notify,
    /// Held while entries are written, so that their order stays.
    writing: tokio::sync::Mutex<()>,
    /// Entries written since the start of the server.
    written: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Entries as JSON: as values they would take a multiple of the memory.
    waiting: VecDeque<Box<str>>,
    /// Memory that `waiting` takes, in bytes.
    bytes: usize,
    repeats: Repeats,
    lost: Option<Lost>,
    /// Entries lost since the start.
    lost_total: u64,
}

/// How the trail fares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditBacklog {
    /// Entries that wait for the store.
    pub waiting: usize,
    /// Entries that were lost since the start of the server.
    pub lost: u64,
}

/// Entries for which there was no room.
#[derive(Clone, Copy, Debug)]
struct Lost {
    count: u64,
    since: WireTime,
}

impl Queue {
    /// Adds an entry. Returns whether it is the first for which there is no room.
    #[must_use]
    fn push(&mut self, entry: &AuditEntry) -> bool {
        let row = as_row(entry);
        // The entry about lost ones stands where they would have stood.
        let about = self.lost.map(|lost| as_row(&lost.entry()));
        let needed = memory(&row) + about.as_deref().map_or(0, memory);
        if self.bytes + needed > WAITING {
            self.lost_total += 1;
            let is_first = self.lost.is_none();
            let lost = self.lost.get_or_insert(Lost {
                count: 0,
                since: entry.at,
            });
            lost.count += 1;
            return is_first;
        }
        self.push_lost();
        self.push_row(row);
        false
    }

    fn push_row(&mut self, row: Box<str>) {
        self.bytes += memory(&row);
        self.waiting.push_back(row);
    }

    /// Removes the oldest entries, which are stored.
    fn remove(&mut self, count: usize) {
        for row in self.waiting.drain(..count) {
            self.bytes -= memory(&row);
        }
    }

    /// Entries that the store does not have, those without room included.
    fn unwritten(&self) -> u64 {
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        waiting + self.lost.map_or(0, |lost| lost.count)
    }

    fn push_lost(&mut self) {
        if let Some(lost) = self.lost.take() {
            self.push_row(as_row(&lost.entry()));
        }
    }
}

impl Lost {
    /// The entry about them.
    fn entry(self) -> AuditEntry {
        let mut about = entry(Action::AuditLost, system(), AuditOutcome::Failed);
        about.count = self.count;
        about.changes.insert("since".to_owned(), json!(self.since));
        about
    }
}

fn as_row(entry: &AuditEntry) -> Box<str> {
    let row = serde_json::to_string(entry).expect("an entry has only what JSON has");
    row.into_boxed_str()
}

/// Memory that a waiting entry takes, in bytes.
fn memory(row: &str) -> usize {
    row.len() + ENTRY_OVERHEAD
}

impl AuditTrail {
    /// A trail in a store. Tasks of `tasks` write and prune it.
    #[must_use]
    pub fn start(store: Arc<dyn Store>, limits: AuditLimits, tasks: &Supervisor) -> Self {
        let trail = Self(Arc::new(Inner {
            store,
            limits,
            queue: Mutex::default(),
            filled: Notify::new(),
            writing: tokio::sync::Mutex::default(),
            written: watch::Sender::default(),
        }));
        trail.start_writer(tasks);
        trail.start_pruning(tasks);
        trail
    }

    /// Records an act. Returns at once.
    pub fn record(&self, entry: AuditEntry) {
        if self.0.limits.enabled {
            self.push_all([entry]);
            self.0.filled.notify_one();
        }
    }

    fn push_all(&self, entries: impl IntoIterator<Item = AuditEntry>) {
        let mut is_first_loss = false;
        for entry in entries {
            is_first_loss |= self.queue().push(&entry);
        }
        if is_first_loss {
            warn!("entries of the audit trail are lost: the store has not taken any for too long");
        }
    }

    /// What waits and what was lost.
    #[must_use]
    pub fn backlog(&self) -> AuditBacklog {
        let queue = self.queue();
        AuditBacklog {
            waiting: queue.waiting.len(),
            lost: queue.lost_total,
        }
    }

    /// The number of entries that were written since the start of the server, as it grows.
    #[must_use]
    pub fn watch_written(&self) -> watch::Receiver<u64> {
        self.0.written.subscribe()
    }

    /// Records a refusal, of which equal ones in a short time become one entry. Returns at once.
    pub fn record_denial(&self, entry: AuditEntry) {
        self.count(entry, repeats::DENIALS);
    }

    /// Records the use of a sandbox, of which equal ones in a longer time become one entry. Returns at
    /// once.
    pub fn record_use(&self, entry: AuditEntry) {
        self.count(entry, repeats::USES);
    }

    fn count(&self, entry: AuditEntry, window: Duration) {
        if self.0.limits.enabled {
            let counted = self.queue().repeats.count(entry, Instant::now() + window);
            self.push_all(counted);
            self.0.filled.notify_one();
        }
    }

    /// A page of entries, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn page(&self, mut query: AuditQuery, most: u32) -> Result<AuditPage, StoreError> {
        let wanted = usize::try_from(most).unwrap_or(usize::MAX);
        query.before = query.before.filter(|AuditPlace(place)| *place > 0);
        let mut found = self.0.store.audit(&query, most.saturating_add(1)).await?;
        let has_more = found.len() > wanted;
        found.truncate(wanted);
        let last = found.last().map(|(AuditPlace(place), _)| place.to_string());
        Ok(AuditPage {
            next: last.filter(|_| has_more),
            items: found.into_iter().map(|(_, entry)| entry).collect(),
        })
    }

    /// Writes what waits, for the last time.
    pub async fn finish(&self) {
        let ended = self.queue().repeats.end(None);
        self.push_all(ended);
        let mut failed = None;
        let written = timeout(LAST_WRITE, async {
            while let Err(failure) = self.write_waiting().await {
                let may_recover = matches!(
                    failure,
                    StoreError::Unavailable { problem, .. } if problem != Problem::TakenOver
                );
                failed = Some(failure);
                if !may_recover {
                    return false;
                }
                sleep(LAST_RETRY).await;
            }
            true
        });
        if written.await == Ok(true) {
            return;
        }
        let lost = self.queue().unwritten();
        match failed {
            Some(failure) => {
                error!(lost, error = %ErrorChain(&failure), "entries of the audit trail are lost");
            }
            None => error!(
                lost,
                "entries of the audit trail are lost: the store is slow"
            ),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // The queue is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what waits, until the server stops.
    fn start_writer(&self, tasks: &Supervisor) {
        let (trail, stopping) = (self.clone(), tasks.stopping().clone());
        tasks.spawn("audit trail", async move {
            let mut is_failing = false;
            loop {
                let has_repeats = !trail.queue().repeats.is_empty();
                tokio::select! {
                    () = stopping.cancelled() => break,
                    () = trail.0.filled.notified() => {}
                    () = sleep(WINDOWS_EVERY), if has_repeats => {}
                }
                trail.end_windows();
                // Acts come in groups, and one write for all of them keeps the store free.
                tokio::select! {
                    () = stopping.cancelled() => break,
                    () = sleep(LINGER) => {}
                }
                while let Err(failure) = trail.write_waiting().await {
                    if !is_failing {
                        warn!(error = %ErrorChain(&failure), "the audit trail waits for the store");
                    }
                    is_failing = true;
                    tokio::select! {
                        () = stopping.cancelled() => return,
                        () = sleep(RETRY) => {}
                    }
                }
                if std::mem::take(&mut is_failing) {
                    info!("stored the entries of the audit trail that had waited for the store");
                }
            }
        });
    }

    fn end_windows(&self) {
        let ended = self.queue().repeats.end(Some(Instant::now()));
        self.push_all(ended);
    }

    async fn write_waiting(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.0.writing.lock().await;
        loop {
            let batch: Vec<Box<str>> = {
                let mut queue = self.queue();
                if queue.waiting.is_empty() {
                    queue.push_lost();
                }
                queue.waiting.iter().take(BATCH).cloned().collect()
            };
            if batch.is_empty() {
                return Ok(());
            }
            let entries = batch.iter().map(|row| serde_json::from_str(row));
            let entries: Result<Vec<AuditEntry>, _> = entries.collect();
            let entries = entries.expect("an entry can be read from its JSON");
            self.0.store.append_audit(&entries).await?;
            self.queue().remove(batch.len());
            let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
            self.0.written.send_modify(|written| *written += count);
        }
    }

    /// Deletes what is too old or too much, until the server stops.
    fn start_pruning(&self, tasks: &Supervisor) {
        let trail = self.clone();
        tasks.spawn_abortable("audit trail: prune", async move {
            let mut clock = Clock::default();
            loop {
                match trail.prune(&mut clock).await {
                    Ok(0) => {}
                    Ok(deleted) => info!(deleted, "deleted old entries of the audit trail"),
                    Err(failure) => {
                        warn!(error = %ErrorChain(&failure), "old entries of the audit trail stay");
                    }
                }
                sleep(PRUNE_EVERY).await;
            }
        });
    }

    /// Deletes what is too old or too much; returns the number of entries.
    async fn prune(&self, clock: &mut Clock) -> Result<u64, StoreError> {
        let Inner { store, limits, .. } = &*self.0;
        let newest = store.audit(&AuditQuery::default(), 1).await?;
        let newest = newest.first().map(|(_, entry)| entry.at);
        let now = now();
        let reading = clock.read(Instant::now(), now, newest);
        if reading == Reading::Jumped {
            warn!(
                clock = %now,
                newest = newest.map(tracing::field::display),
                "the clock is days ahead of the audit trail: no entry is deleted for its age within a day"
            );
        }
        let days = match reading {
            Reading::Plausible => i64::from(limits.retention_days),
            Reading::Jumped | Reading::Doubtful => AGELESS,
        };
        let Some(before) = now.plus_seconds(-days * DAY) else {
            return Ok(0);
        };
        let mut deleted = 0;
        loop {
            let pruned = store.prune_audit(before, limits.max_entries, PRUNE_BATCH);
            match pruned.await? {
                0 => return Ok(deleted),
                more => deleted += more,
            }
        }
    }
}

#[cfg(test)]
mod tests;
