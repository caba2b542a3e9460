//! Turns changes of the registry into frames, once for all tabs.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::extract::ws::Utf8Bytes;
use osb_app::{
    backend::ConsoleBackend,
    live::{Frame, Position, RowChange, Topic},
    view::SandboxRow,
};
use osb_protocol::SandboxId;
use osb_service::Supervisor;
use serde::Serialize;
use tokio::sync::broadcast::{self, error::RecvError};

use super::super::backend;
use crate::sandbox::{Change, Service};

/// Frames a tab may fall behind before it gets a snapshot.
const BEHIND: usize = 256;
/// Changes kept for tabs that come back after a short break.
const RECENT: usize = 512;
/// Most sandboxes whose encoded detail is kept.
const DETAILS: usize = 64;

/// One change, ready to send.
#[derive(Debug)]
pub(super) struct SequencedChange {
    /// The sandbox that changed.
    pub(super) id: SandboxId,
    /// Position in the stream of changes.
    pub(super) seq: u64,
    /// The encoded change of the list.
    pub(super) frame: Utf8Bytes,
}

/// Encodes frames for all tabs.
pub(in super::super) struct Hub {
    service: Service,
    backend: Arc<dyn ConsoleBackend>,
    /// Id of this process, because sequence numbers of another one are unrelated.
    epoch: String,
    changes: broadcast::Sender<Arc<SequencedChange>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    recent: VecDeque<Arc<SequencedChange>>,
    /// The encoded list at a sequence number, shared by tabs that fall behind together.
    list: Option<(u64, Utf8Bytes)>,
    details: HashMap<SandboxId, (u64, Utf8Bytes)>,
}

impl Hub {
    /// Follows the domain until the tasks stop.
    pub(in super::super) fn start(
        service: Service,
        backend: Arc<dyn ConsoleBackend>,
        tasks: &Supervisor,
    ) -> Arc<Self> {
        let mut changes = service.subscribe();
        let hub = Arc::new(Self {
            service,
            backend,
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
        });
        let mut kept = self.kept();
        if kept.recent.len() == RECENT {
            kept.recent.pop_front();
        }
        kept.recent.push_back(Arc::clone(&encoded));
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
        let kept = self.kept();
        let missed: Vec<_> = kept
            .recent
            .iter()
            .filter(|change| change.seq > position.seq)
            .cloned()
            .collect();
        let newest = kept.recent.back().map_or(position.seq, |change| change.seq);
        let whole = missed.len() as u64 == newest.saturating_sub(position.seq);
        whole.then_some(missed)
    }

    /// The whole list and its position.
    pub(super) fn list(&self) -> (u64, Utf8Bytes) {
        let (records, seq) = self.service.registry().snapshot();
        if let Some((known, frame)) = &self.kept().list
            && *known == seq
        {
            return (seq, frame.clone());
        }
        let data: Vec<SandboxRow> = records.iter().map(|record| backend::row(record)).collect();
        let frame = text(&Frame::Snapshot {
            topic: Topic::Sandboxes,
            seq,
            data,
        });
        self.kept().list = Some((seq, frame.clone()));
        (seq, frame)
    }

    /// One sandbox as its page shows it.
    pub(super) async fn detail(&self, id: &SandboxId) -> Utf8Bytes {
        let seq = self
            .service
            .registry()
            .get(id)
            .map_or(0, |record| record.seq);
        if let Some((known, frame)) = self.kept().details.get(id)
            && *known == seq
            && seq != 0
        {
            return frame.clone();
        }
        let data = self.backend.sandbox(id).await.ok();
        let frame = text(&Frame::Snapshot {
            topic: Topic::Sandbox(id.clone()),
            seq,
            data,
        });
        let mut kept = self.kept();
        if kept.details.len() >= DETAILS {
            kept.details.clear();
        }
        kept.details.insert(id.clone(), (seq, frame.clone()));
        frame
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Consistent after every operation, so a panic of another holder does no harm.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text(frame: &impl Serialize) -> Utf8Bytes {
    serde_json::to_string(frame)
        .expect("maps have string keys, so this serialises")
        .into()
}
