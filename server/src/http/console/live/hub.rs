//! Turns changes of the registry into frames, once for all tabs.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::extract::ws::Utf8Bytes;
use osb_app::{
    live::{Frame, Position, RowChange, Topic},
    view::SandboxRow,
};
use osb_protocol::SandboxId;
use osb_service::Supervisor;
use tokio::sync::{
    broadcast::{self, error::RecvError},
    watch,
};

use super::{
    super::backend::{self, Domains},
    changes::{RecentChanges, SequencedChange, text},
    followers::{Followers, Subscription},
    usage,
};
use crate::{
    identity::Scope,
    sandbox::{Change, Record, Service},
};

/// Frames a tab may fall behind before it gets a snapshot.
const BEHIND: usize = 256;
/// Rows in one message of the list. The connection of a tab keeps a buffer as large as its longest
/// message: of a list of 5,000 at once, that was 1.5 MB for every tab.
pub(super) const PART: usize = 100;
/// Messages to send one after the other.
type Parts = Arc<[Utf8Bytes]>;

/// Most scopes whose encoded list is kept.
const LISTS: usize = 64;
/// Most sandboxes whose encoded detail is kept.
const DETAILS: usize = 64;

/// Encodes frames for all tabs.
pub(in super::super) struct Hub {
    service: Service,
    domains: Domains,
    /// Id of this process, because sequence numbers of another one are unrelated.
    epoch: String,
    changes: broadcast::Sender<Arc<SequencedChange>>,
    kept: Mutex<Kept>,
    followers: Arc<Followers>,
}

#[derive(Default)]
struct Kept {
    recent: RecentChanges,
    /// The encoded list of each scope at a sequence number, shared by tabs that fall behind together.
    lists: HashMap<Option<Arc<str>>, (u64, Parts)>,
    details: HashMap<SandboxId, (u64, Utf8Bytes)>,
}

impl Hub {
    /// Follows the domain until the tasks stop.
    pub(in super::super) fn start(
        service: Service,
        domains: Domains,
        tasks: &Supervisor,
    ) -> Arc<Self> {
        let mut changes = service.subscribe();
        let hub = Arc::new(Self {
            followers: Followers::new(service.clone(), tasks.clone()),
            service,
            domains,
            epoch: uuid::Uuid::new_v4().simple().to_string(),
            changes: broadcast::Sender::new(BEHIND),
            kept: Mutex::default(),
        });
        let follower = Arc::clone(&hub);
        tasks.spawn_abortable("console-live", async move {
            loop {
                match changes.recv().await {
                    Ok(change) => follower.publish(&change),
                    // The gap in the numbers makes every tab ask for a snapshot.
                    Err(RecvError::Lagged(_)) => follower.kept().recent.clear(),
                    Err(RecvError::Closed) => return,
                }
            }
        });
        hub
    }

    /// Encodes a change and sends it to every tab.
    fn publish(&self, change: &Change) {
        let data = match &change.record {
            Some(record) => RowChange::Put(Box::new(backend::row(record))),
            None => RowChange::Removed(change.id.clone()),
        };
        let (topic, seq) = (Topic::Sandboxes, change.seq);
        let frame = text(&Frame::Delta { topic, seq, data });
        let encoded = Arc::new(SequencedChange {
            id: change.id.clone(),
            seq,
            frame,
            tenant: change.tenant.clone(),
        });
        let mut kept = self.kept();
        kept.recent.push(Arc::clone(&encoded));
        // Sent under the lock, so that `subscribe` sees a change in exactly one of both.
        let _ = self.changes.send(encoded);
    }

    /// First message of a connection.
    pub(super) fn hello(&self) -> Utf8Bytes {
        text(&Frame::<()>::Hello {
            epoch: self.epoch.clone(),
        })
    }

    /// Subscribes to changes.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Arc<SequencedChange>> {
        self.changes.subscribe()
    }

    /// The changes after a position; `None` if some are no longer kept.
    pub(super) fn since(&self, position: &Position) -> Option<Vec<Arc<SequencedChange>>> {
        if position.epoch != self.epoch {
            return None;
        }
        self.kept().recent.since(position.seq)
    }

    /// The whole list within a scope, in messages to send one after the other, and its position.
    pub(super) fn list(&self, scope: &Scope) -> (u64, Parts) {
        let (records, seq) = self.service.within(scope).snapshot();
        let tenant: Option<Arc<str>> = scope.tenant().map(Arc::from);
        if let Some((known, frames)) = self.kept().lists.get(&tenant)
            && *known == seq
        {
            return (seq, Arc::clone(frames));
        }
        let rows = |some: &[Arc<Record>]| -> Vec<SandboxRow> {
            some.iter().map(|record| backend::row(record)).collect()
        };
        let whole = records.len().saturating_sub(1) / PART * PART;
        let (parts, rest) = records.split_at(whole);
        let part = |(number, some): (usize, &[Arc<Record>])| {
            text(&Frame::Part {
                topic: Topic::Sandboxes,
                after: number * PART,
                data: rows(some),
            })
        };
        let last = text(&Frame::Snapshot {
            topic: Topic::Sandboxes,
            seq,
            after: whole,
            data: rows(rest),
        });
        let parts = parts.chunks(PART).enumerate().map(part);
        let frames: Parts = parts.chain([last]).collect();
        let mut kept = self.kept();
        if kept.lists.len() >= LISTS && !kept.lists.contains_key(&tenant) {
            kept.lists.clear();
        }
        kept.lists.insert(tenant, (seq, Arc::clone(&frames)));
        drop(kept);
        (seq, frames)
    }

    /// One sandbox as its page shows it within a scope.
    pub(super) async fn detail(&self, id: &SandboxId, scope: &Scope) -> Utf8Bytes {
        // What exists within several scopes is the same in each.
        let found = self.service.within(scope).find(id);
        let seq = found.map_or(0, |record| record.seq);
        if let Some((known, frame)) = self.kept().details.get(id)
            && *known == seq
            && seq != 0
        {
            return frame.clone();
        }
        let data = self.domains.within(scope).sandbox(id).await.ok();
        let frame = text(&Frame::Snapshot {
            topic: Topic::Sandbox(id.clone()),
            seq,
            after: 0,
            data,
        });
        if seq == 0 {
            return frame;
        }
        let mut kept = self.kept();
        if kept.details.len() >= DETAILS {
            kept.details.clear();
        }
        kept.details.insert(id.clone(), (seq, frame.clone()));
        frame
    }

    /// Changes each time when all sandboxes were sampled.
    pub(super) fn watch_samples(&self) -> watch::Receiver<i64> {
        self.service.watch_samples()
    }

    /// What rows of the list use.
    pub(super) fn usage(&self, ids: &[SandboxId], seq: i64, scope: &Scope) -> Utf8Bytes {
        text(&Frame::Snapshot {
            topic: Topic::Usage,
            seq: u64::try_from(seq).unwrap_or_default(),
            after: 0,
            data: usage::of(&self.service.within(scope), ids),
        })
    }

    /// Follows what changes all the time, with the first message; `None` if its sandbox does not exist
    /// within the scope, or too much is followed.
    pub(super) fn follow(&self, topic: &Topic, scope: &Scope) -> Option<(Utf8Bytes, Subscription)> {
        match topic {
            Topic::Overview | Topic::Events => {}
            Topic::Logs(id) | Topic::Metrics(id) | Topic::Commands(id) => {
                self.service.within(scope).find(id)?;
            }
            Topic::Sandboxes | Topic::Usage | Topic::Sandbox(_) => return None,
        }
        self.followers.join(topic, scope)
    }

    /// The message about a topic that has no content.
    pub(super) fn nothing(topic: &Topic) -> Utf8Bytes {
        text(&Frame::Snapshot::<()> {
            topic: topic.clone(),
            seq: 0,
            after: 0,
            data: (),
        })
    }

    /// Topics that tabs follow.
    #[cfg(test)]
    pub(in super::super) fn followed(&self) -> usize {
        self.followers.count()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Consistent after every operation, so a panic of another holder does no harm.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
