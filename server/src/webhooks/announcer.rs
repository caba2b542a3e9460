//! Finds what happened to sandboxes, and stores it as messages.
//!
//! The store has what was last announced of each sandbox. The announcer compares it with the registry
//! at every change, and with everything at its start; a message is stored in the transaction that
//! moves what is announced. So whatever ends the server, or keeps the store from taking a message, the
//! difference is still there afterwards. Ends are in the history: [`osb_store::SandboxHistory::finish`]
//! leaves a mark with each, in the same transaction, until it is announced.

use std::{
    collections::{BTreeSet, HashMap, HashSet, VecDeque},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use osb_protocol::{SandboxId, WireTime};
use osb_service::ErrorChain;
use osb_store::{AnnouncedRow, Announcement, StoreError};
use tokio::{
    sync::broadcast::{
        Receiver,
        error::{RecvError, TryRecvError},
    },
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use super::{
    Webhooks,
    difference::{self, Difference},
    event::{Message, SandboxEvent},
    management::delivery_of,
    subscription::{Room, Subscription},
};
use crate::sandbox::{Change, Record, RuntimeHealth};

/// Changes that are stored in one transaction, and ends that are read at once.
const BATCH: usize = 100;
/// The same for a query.
const BATCH_ROWS: u32 = 100;
/// Messages of a transaction, beyond which no further change is added: other writes wait for it.
const MESSAGES: usize = 1000;
/// Changes that wait for the store. With more of them, only the difference that remains is announced.
const BACKLOG_MAX: usize = 10_000;
/// Pause after a failure of the store, and between looks for an end that is not in the history yet.
const RETRY: Duration = Duration::from_secs(1);

pub(super) fn start(webhooks: Webhooks) {
    let tasks = webhooks.0.tasks.clone();
    tasks.spawn_abortable("webhook events", async move {
        let mut health = webhooks.0.service.registry().watch_health();
        let is_up = |health: &RuntimeHealth| *health == RuntimeHealth::Up;
        // Until then a sandbox that is not in the registry may exist.
        if health.wait_for(is_up).await.is_err() {
            return;
        }
        webhooks.announce_for_ever().await;
    });
}

/// What is announced, and what waits to be.
struct Tracker {
    changes: Receiver<Change>,
    /// Changes up to this one are known from the snapshot.
    seq: u64,
    announced: HashMap<SandboxId, AnnouncedRow>,
    /// What the store has not taken yet, in order.
    backlog: VecDeque<Step>,
    /// Sandboxes that are gone and whose end is not announced.
    awaited: BTreeSet<SandboxId>,
    /// Those of them that the runtime lacks only if it is the right one.
    doubted: BTreeSet<SandboxId>,
    /// No use of the store before.
    retry_at: Option<Instant>,
    /// Whether changes were missed.
    is_behind: bool,
}

/// A change of one sandbox.
struct Step {
    row: Option<AnnouncedRow>,
    ended: Option<SandboxId>,
    messages: Vec<Message>,
}

/// Why a tracker does not go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// There is no subscription any more.
    Unwanted,
    /// Changes were missed, or too many wait: everything has to be compared.
    Behind,
    /// There are no changes any more.
    Closed,
}

impl Webhooks {
    async fn announce_for_ever(&self) {
        let mut wanted = self.0.wanted.subscribe();
        let mut is_failing = false;
        loop {
            if wanted.borrow().is_none() {
                self.forget().await;
            }
            let Ok(Some(since)) = wanted.wait_for(Option::is_some).await.as_deref().copied() else {
                return;
            };
            let tracker = match self.begin(since).await {
                Ok(tracker) => tracker,
                Err(error) => {
                    if !is_failing {
                        warn!(error = %ErrorChain(&error), "events wait for the store");
                    }
                    is_failing = true;
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            is_failing = false;
            self.0.tracking.send_replace(true);
            let stop = self.follow(tracker).await;
            self.0.tracking.send_replace(false);
            match stop {
                Stop::Unwanted => {}
                Stop::Behind => {
                    warn!("events fell behind; what remains of the changes is announced");
                }
                Stop::Closed => return error!("events are not recorded any more"),
            }
        }
    }

    /// Forgets what was announced: there is no subscription.
    async fn forget(&self) {
        let forgotten = async {
            match self.0.store.is_tracking().await? {
                true => self.0.store.stop_tracking().await,
                false => Ok(()),
            }
        };
        if let Err(error) = forgotten.await {
            warn!(error = %ErrorChain(&error), "what was announced is not forgotten yet");
        }
    }

    /// Compares everything with what was announced; for the first subscription, nothing is news that
    /// existed before it.
    async fn begin(&self, since: WireTime) -> Result<Tracker, StoreError> {
        let registry = self.0.service.registry();
        let changes = registry.subscribe();
        let (records, seq) = registry.snapshot();
        let mut tracker = Tracker {
            changes,
            seq,
            announced: HashMap::new(),
            backlog: VecDeque::new(),
            awaited: BTreeSet::new(),
            doubted: BTreeSet::new(),
            retry_at: None,
            is_behind: false,
        };
        let rows = match self.0.store.is_tracking().await? {
            true => self.0.store.announced().await?,
            false => {
                let older = records.iter().filter(|it| it.sandbox.created_at < since);
                let rows: Vec<_> = older.map(|it| difference::as_announced(it)).collect();
                self.0.store.start_tracking(&rows).await?;
                info!(sandboxes = rows.len(), "events are recorded from now on");
                rows
            }
        };
        tracker.announced = rows.into_iter().map(|row| (row.id.clone(), row)).collect();
        // Oldest first, as it happened.
        for record in records.iter().rev() {
            self.compare(&mut tracker, record);
        }
        let existing: HashSet<_> = records.iter().map(|record| &record.sandbox.id).collect();
        let gone = tracker.announced.keys();
        tracker.awaited = gone.filter(|id| !existing.contains(id)).cloned().collect();
        if !tracker.awaited.is_empty() && registry.is_doubtful() {
            tracker.doubted.clone_from(&tracker.awaited);
            warn!(
                sandboxes = tracker.doubted.len(),
                "the runtime has no sandbox of an earlier server, and may be another one by mistake: their \
                 ends are announced only if a later list has none either"
            );
        }
        self.store(&mut tracker).await?;
        Ok(tracker)
    }

    async fn follow(&self, mut tracker: Tracker) -> Stop {
        let mut wanted = self.0.wanted.subscribe();
        loop {
            let retry_at = tracker.retry_at;
            let has_work = !tracker.backlog.is_empty() || !tracker.awaited.is_empty();
            tokio::select! {
                unwanted = wanted.wait_for(Option::is_none) => match unwanted {
                    Ok(_) => return Stop::Unwanted,
                    Err(_) => return Stop::Closed,
                },
                change = tracker.changes.recv() => match change {
                    Ok(change) => self.take(&mut tracker, change),
                    Err(RecvError::Lagged(_)) => return Stop::Behind,
                    Err(RecvError::Closed) => return Stop::Closed,
                },
                () = sleep_until(retry_at.unwrap_or_else(Instant::now)), if has_work => {}
            }
            self.take_all(&mut tracker);
            if tracker.is_behind || tracker.backlog.len() > BACKLOG_MAX {
                return Stop::Behind;
            }
            if tracker.retry_at.is_some_and(|at| at > Instant::now()) {
                continue;
            }
            let was_failing = tracker.retry_at.is_some();
            let stored = self.store(&mut tracker).await;
            let is_waiting = stored.is_err() || !tracker.awaited.is_empty();
            tracker.retry_at = is_waiting.then(|| Instant::now() + RETRY);
            if let (Err(error), false) = (stored, was_failing) {
                warn!(error = %ErrorChain(&error), "events wait for the store");
            }
        }
    }

    /// Takes every change that there is.
    fn take_all(&self, tracker: &mut Tracker) {
        loop {
            match tracker.changes.try_recv() {
                Ok(change) => self.take(tracker, change),
                Err(TryRecvError::Lagged(_)) => tracker.is_behind = true,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            }
        }
    }

    fn take(&self, tracker: &mut Tracker, change: Change) {
        if change.seq <= tracker.seq {
            return;
        }
        match change.record {
            Some(record) => {
                tracker.awaited.remove(&change.id);
                self.compare(tracker, &record);
            }
            // The history may have been faster than the registry: then the end is announced.
            None if tracker.announced.contains_key(&change.id) => {
                tracker.awaited.insert(change.id);
            }
            None => {}
        }
    }

    fn compare(&self, tracker: &mut Tracker, record: &Record) {
        let id = &record.sandbox.id;
        let Difference { row, events } = difference::compare(tracker.announced.get(id), record);
        let Some(row) = row else {
            return;
        };
        tracker.announced.insert(id.clone(), row.clone());
        let step = Step {
            row: Some(row),
            ended: None,
            messages: self.messages(events),
        };
        tracker.backlog.push_back(step);
    }

    fn messages(&self, events: Vec<SandboxEvent>) -> Vec<Message> {
        let at = self.0.clock.now();
        let message = |event| Message::of(event, at);
        events.into_iter().map(message).collect()
    }

    fn end(&self, tracker: &mut Tracker, id: SandboxId, events: Vec<SandboxEvent>) {
        tracker.awaited.remove(&id);
        tracker.announced.remove(&id);
        let step = Step {
            row: None,
            ended: Some(id),
            messages: self.messages(events),
        };
        tracker.backlog.push_back(step);
    }

    /// Stores what waits, then the ends: what happened to a sandbox comes before its end.
    async fn store(&self, tracker: &mut Tracker) -> Result<(), StoreError> {
        self.flush(tracker).await?;
        loop {
            let ends = self.0.store.unannounced_ends(BATCH_ROWS).await?;
            if ends.is_empty() {
                break;
            }
            // What the registry knew of these sandboxes before they ended.
            self.take_all(tracker);
            self.flush(tracker).await?;
            for entry in ends {
                let events = difference::end(tracker.announced.get(&entry.id), &entry);
                self.end(tracker, entry.id, events);
            }
            self.flush(tracker).await?;
        }
        if !self.0.service.registry().is_doubtful() {
            tracker.doubted.clear();
        }
        for id in tracker.awaited.clone() {
            if tracker.doubted.contains(&id) {
                continue;
            }
            if let Some(entry) = self.0.store.history(&id).await? {
                // Its mark was not left because nothing was announced then.
                let events = difference::end(tracker.announced.get(&id), &entry);
                self.end(tracker, id, events);
                continue;
            }
            // Its history may wait for the store, too, and would then be found here.
            let Ok(None) = self.0.service.history(&id).await else {
                continue;
            };
            let known = tracker.announced.get(&id).map(difference::gone);
            self.end(tracker, id, known.into_iter().collect());
        }
        self.flush(tracker).await
    }

    async fn flush(&self, tracker: &mut Tracker) -> Result<(), StoreError> {
        while !tracker.backlog.is_empty() {
            let index = self.index();
            let mut batch = Batch::default();
            for step in tracker.backlog.iter().take(BATCH) {
                if batch.receivers.len() >= MESSAGES {
                    break;
                }
                batch.steps += 1;
                batch.announcement.announced.extend(step.row.clone());
                batch.announcement.ended.extend(step.ended.clone());
                for message in &step.messages {
                    for subscription in index.0.iter().filter(|it| it.wants(message)) {
                        batch.add(subscription, message, self.0.max_pending);
                    }
                }
            }
            if let Err(error) = self.0.store.announce(&batch.announcement).await {
                batch.receivers.iter().for_each(|it| it.ended());
                return Err(error);
            }
            tracker.backlog.drain(..batch.steps);
            self.report(&batch);
        }
        Ok(())
    }

    /// Wakes the workers of what was stored. Losses are counted, and logged when they begin and end.
    fn report(&self, batch: &Batch) {
        for receiver in &batch.receivers {
            receiver.wake.notify_one();
            if let Room::Again(lost) = receiver.fit(self.0.max_pending) {
                let webhook = &receiver.row.id;
                info!(webhook, lost, "messages find room again for this webhook");
            }
        }
        for receiver in &batch.lost {
            self.0.tally.dropped();
            if receiver.lose() == Room::Ended {
                let webhook = &receiver.row.id;
                warn!(
                    webhook,
                    "too many messages wait for this webhook; events are lost to it"
                );
            }
        }
    }
}

/// What is stored in one transaction, and what follows once it is.
#[derive(Default)]
struct Batch {
    announcement: Announcement,
    /// Changes that it contains.
    steps: usize,
    /// The subscription of each message, which counts it as pending.
    receivers: Vec<Arc<Subscription>>,
    /// The subscription of each message for which there is no room.
    lost: Vec<Arc<Subscription>>,
}

impl Batch {
    fn add(&mut self, subscription: &Arc<Subscription>, message: &Message, most: u64) {
        if subscription.pending() >= most {
            return self.lost.push(Arc::clone(subscription));
        }
        subscription.pending.fetch_add(1, Ordering::Relaxed);
        let delivery = delivery_of(subscription, message);
        self.announcement.deliveries.push(delivery);
        self.receivers.push(Arc::clone(subscription));
    }
}
