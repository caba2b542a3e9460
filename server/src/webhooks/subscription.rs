//! Subscriptions in memory.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use osb_protocol::webhook::Webhook;
use osb_store::WebhookRow;
use tokio::{sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;
use url::Url;

use super::{event::Message, secret::SigningKey};
use crate::identity::Scope;

/// A subscription and what its worker needs.
#[derive(Debug)]
pub(super) struct Subscription {
    pub(super) row: WebhookRow,
    pub(super) url: Url,
    pub(super) key: SigningKey,
    /// Messages that are not delivered.
    pub(super) pending: Arc<AtomicU64>,
    /// Wakes the worker: there is a message.
    pub(super) wake: Notify,
    /// Ends the worker.
    pub(super) stop: CancellationToken,
    /// Messages that were made before do not go to it. Not a time of the host, which may be set back.
    pub(super) since: Instant,
    /// Messages that were lost to it since there was room for the last time.
    lost: AtomicU64,
}

/// What a message without room, or with room again, means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Nothing new.
    AsBefore,
    /// This is the first message that is lost.
    Ended,
    /// There is room again, after so many messages were lost.
    Again(u64),
}

impl Subscription {
    pub(super) fn new(
        row: WebhookRow,
        url: Url,
        key: SigningKey,
        pending: Arc<AtomicU64>,
        since: Instant,
    ) -> Self {
        Self {
            row,
            url,
            key,
            pending,
            wake: Notify::new(),
            stop: CancellationToken::new(),
            since,
            lost: AtomicU64::new(0),
        }
    }

    /// Whether a message goes to this subscription.
    pub(super) fn wants(&self, message: &Message) -> bool {
        let row = &self.row;
        row.disabled.is_none()
            && self.since <= message.made
            && Scope::of(row.tenant.as_deref()).contains(message.tenant.as_deref())
            && (row.events.is_empty() || row.events.iter().any(|it| it == message.kind.as_str()))
    }

    pub(super) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Counts a message that is lost.
    pub(super) fn lose(&self) -> Room {
        match self.lost.fetch_add(1, Ordering::Relaxed) {
            0 => Room::Ended,
            _ => Room::AsBefore,
        }
    }

    /// Notes that a message found room. A receiver that takes one message now and then does not end the
    /// loss: a tenth of `most` has to be free.
    pub(super) fn fit(&self, most: u64) -> Room {
        let before = self.pending().saturating_sub(1);
        if before > most - most.div_ceil(10) {
            return Room::AsBefore;
        }
        match self.lost.swap(0, Ordering::Relaxed) {
            0 => Room::AsBefore,
            lost => Room::Again(lost),
        }
    }

    /// Counts one message less. The count may have been read while the message was on its way.
    pub(super) fn ended(&self) {
        let less = |pending: u64| Some(pending.saturating_sub(1));
        let _ = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// As clients see it.
    pub(super) fn shown(&self) -> Webhook {
        let row = &self.row;
        Webhook {
            id: row.id.clone(),
            name: row.name.clone(),
            url: row.url.clone(),
            events: row.events.clone(),
            tenant: row.tenant.clone(),
            configured: row.is_configured,
            disabled: row.disabled.clone(),
            created_at: row.created_at,
            pending: self.pending(),
        }
    }
}

/// All subscriptions, oldest first. Replaced whole.
#[derive(Debug, Default)]
pub(super) struct Subscriptions(pub(super) Vec<Arc<Subscription>>);

impl Subscriptions {
    pub(super) fn get(&self, id: &str) -> Option<&Arc<Subscription>> {
        self.0.iter().find(|known| known.row.id == id)
    }

    /// Those of a scope.
    pub(super) fn within<'a>(
        &'a self,
        scope: &'a Scope,
    ) -> impl Iterator<Item = &'a Arc<Subscription>> {
        let visible = |known: &&Arc<Subscription>| scope.contains(known.row.tenant.as_deref());
        self.0.iter().filter(visible)
    }

    /// Counters by id, which outlive a change of the subscription.
    pub(super) fn counters(&self) -> HashMap<String, Arc<AtomicU64>> {
        let counter =
            |known: &Arc<Subscription>| (known.row.id.clone(), Arc::clone(&known.pending));
        self.0.iter().map(counter).collect()
    }
}
