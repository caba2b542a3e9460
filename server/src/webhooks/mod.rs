//! Webhooks: what happens to sandboxes, sent to receivers that subscribed to it.
//!
//! ```text
//!  registry, history ─▶ announcer ─▶ store: what is announced + messages, in one transaction
//!                                      │
//!                              worker of each subscription ─▶ receiver
//! ```
//!
//! * [`difference`]: which events lie between what was announced and what is. [`announcer`]: compares
//!   and stores, at every change and at the start, so that a crash loses no event.
//! * [`worker`], [`schedule`], [`sender`]: when and how messages are sent. [`clock`]: by which time.
//! * [`address`]: where to. [`secret`]: signatures. [`event`]: what messages contain.
//! * [`subscription`], [`rules`], [`error`], [`management`]: what administrators manage.
//! * [`retention`]: how long messages are kept.
//!
//! Nothing here delays an operation on a sandbox. A store that takes no writes delays events.

mod address;
mod announcer;
mod clock;
mod difference;
mod error;
mod event;
mod management;
mod retention;
pub(crate) mod rules;
mod schedule;
mod secret;
mod sender;
mod subscription;
mod tally;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use osb_protocol::WireTime;
use osb_service::Supervisor;
use osb_store::{DeliveryBacklog, Store, StoreError, WebhookRow, WebhookSecret};
use secrecy::SecretString;
use tokio::{
    sync::{Mutex, watch},
    time::Instant,
};
use tracing::warn;
use uuid::Uuid;

use self::{
    address::AddressRules,
    sender::Sender,
    subscription::{Subscription, Subscriptions},
};
pub use self::{
    address::OpenNetworks,
    clock::{Clock, SystemClock},
    error::WebhookError,
    event::EventType,
    schedule::Schedule,
    secret::SigningKey,
    tally::Tally,
};
use crate::sandbox::Service;

/// A subscription of the configuration. Its values were checked.
#[derive(Clone, Debug)]
pub struct ConfiguredWebhook {
    /// Name, unique in the configuration.
    pub name: String,
    /// Where messages go.
    pub url: String,
    /// What signs them.
    pub secret: SecretString,
    /// Types of events; all when empty.
    pub events: Vec<String>,
    /// The tenant about whose sandboxes it is; all when `None`.
    pub tenant: Option<String>,
}

/// How webhooks work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Subscriptions of the configuration.
    pub configured: Vec<ConfiguredWebhook>,
    /// Networks that the operator opens.
    pub open: OpenNetworks,
    /// Authorities that are trusted besides those of the machine.
    pub authorities: Vec<reqwest::Certificate>,
    /// Longest time of an attempt.
    pub timeout: Duration,
    /// When a message is sent again.
    pub schedule: Schedule,
    /// How long a delivered message is kept.
    pub keep_delivered: Duration,
    /// How long a message is kept that was given up.
    pub keep_dead: Duration,
    /// Most messages that wait for one receiver.
    pub max_pending: u64,
}

/// Subscriptions and their messages. Clones share them.
#[derive(Clone)]
pub struct Webhooks(Arc<Inner>);

struct Inner {
    store: Arc<dyn Store>,
    service: Service,
    tasks: Supervisor,
    clock: Arc<dyn Clock>,
    sender: Sender,
    schedule: Schedule,
    keep_delivered: Duration,
    keep_dead: Duration,
    max_pending: u64,
    /// Secrets of the configuration, by name.
    secrets: HashMap<String, SecretString>,
    index: RwLock<Arc<Subscriptions>>,
    /// Changes of subscriptions happen one at a time.
    edit: Mutex<()>,
    /// Since when events are to be recorded, if so.
    wanted: watch::Sender<Option<WireTime>>,
    /// Whether they are.
    tracking: watch::Sender<bool>,
    tally: Tally,
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Webhooks")
    }
}

impl Webhooks {
    /// Reads the subscriptions, takes over those of the configuration and starts to work.
    ///
    /// # Errors
    /// When the store cannot be read, or cannot take a change of the configuration.
    pub async fn start(
        options: Options,
        service: &Service,
        store: Arc<dyn Store>,
        tasks: &Supervisor,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let rules = AddressRules::new(options.open, service);
        let secret = |it: &ConfiguredWebhook| (it.name.clone(), it.secret.clone());
        let webhooks = Self(Arc::new(Inner {
            store,
            service: service.clone(),
            tasks: tasks.clone(),
            clock,
            sender: Sender::new(rules, options.authorities, options.timeout),
            schedule: options.schedule,
            keep_delivered: options.keep_delivered,
            keep_dead: options.keep_dead,
            max_pending: options.max_pending,
            secrets: options.configured.iter().map(secret).collect(),
            index: RwLock::default(),
            edit: Mutex::default(),
            wanted: watch::Sender::new(None),
            tracking: watch::Sender::new(false),
            tally: Tally::default(),
        }));
        webhooks.take_configured(options.configured).await?;
        webhooks.reload().await?;
        announcer::start(webhooks.clone());
        retention::start(webhooks.clone());
        Ok(webhooks)
    }

    /// Brings the stored subscriptions of the configuration in line with it.
    async fn take_configured(&self, configured: Vec<ConfiguredWebhook>) -> Result<(), StoreError> {
        let store = &self.0.store;
        let mut known = store.webhooks().await?;
        known.retain(|row| row.is_configured);
        for entry in configured {
            let found = known.iter().position(|row| row.name == entry.name);
            let Some(found) = found.map(|index| known.swap_remove(index)) else {
                let row = WebhookRow {
                    id: Uuid::new_v4().to_string(),
                    name: entry.name,
                    url: entry.url,
                    secret: None,
                    events: entry.events,
                    tenant: entry.tenant,
                    is_configured: true,
                    disabled: None,
                    created_at: self.0.clock.now(),
                };
                store.add_webhook(&row).await?;
                continue;
            };
            let wanted = WebhookRow {
                url: entry.url,
                events: entry.events,
                tenant: entry.tenant,
                ..found.clone()
            };
            if wanted != found {
                // What a receiver at another address said does not count for this one.
                let is_moved = wanted.url != found.url;
                let disabled = wanted.disabled.clone().filter(|_| !is_moved);
                let wanted = WebhookRow { disabled, ..wanted };
                store.change_webhook(&wanted).await?;
            }
        }
        for gone in known {
            store.delete_webhook(&gone.id).await?;
        }
        Ok(())
    }

    /// Reads the subscriptions again, ends the workers of changed ones and starts new ones.
    async fn reload(&self) -> Result<(), StoreError> {
        let rows = self.0.store.webhooks().await?;
        let before = self.index();
        let mut counters = before.counters();
        for (id, pending) in self.0.store.pending_by_webhook().await? {
            let counter = || Arc::new(std::sync::atomic::AtomicU64::new(pending));
            counters.entry(id).or_insert_with(counter);
        }
        let mut all = Vec::with_capacity(rows.len());
        let mut started = Vec::new();
        for row in rows {
            if let Some(same) = before.get(&row.id).filter(|known| known.row == row) {
                all.push(Arc::clone(same));
                continue;
            }
            let Some((url, key)) = self.readable(&row) else {
                warn!(webhook = row.id, "its URL or secret cannot be read");
                continue;
            };
            let pending = counters.remove(&row.id).unwrap_or_default();
            let known = before.get(&row.id);
            let since = known.map_or_else(Instant::now, |known| known.since);
            let subscription = Arc::new(Subscription::new(row, url, key, pending, since));
            all.push(Arc::clone(&subscription));
            started.push(subscription);
        }
        let is_used = !all.is_empty();
        let kept = |old: &Subscription| all.iter().any(|new| std::ptr::eq(old, &raw const **new));
        // No await from here on: the caller may be one of the workers that end.
        for old in before.0.iter().filter(|old| !kept(old)) {
            old.stop.cancel();
        }
        *self.0.index.write().unwrap_or_else(PoisonError::into_inner) =
            Arc::new(Subscriptions(all));
        for subscription in &started {
            self.start_worker(subscription);
        }
        self.want(is_used);
        Ok(())
    }

    fn readable(&self, row: &WebhookRow) -> Option<(url::Url, SigningKey)> {
        let url = rules::url(&row.url).ok()?;
        let key = match row.is_configured {
            true => SigningKey::of(self.0.secrets.get(&row.name)?)?,
            false => {
                let WebhookSecret(secret) = row.secret.as_ref()?;
                SigningKey::of(&SecretString::from(secret.as_str()))?
            }
        };
        Some((url, key))
    }

    fn index(&self) -> Arc<Subscriptions> {
        // Replaced whole, so a panic elsewhere does not spoil it.
        let index = self.0.index.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&index)
    }

    async fn set_disabled(&self, id: &str, reason: Option<&str>) -> Result<(), StoreError> {
        let _one_at_a_time = self.0.edit.lock().await;
        let index = self.index();
        let Some(found) = index.get(id) else {
            return Ok(());
        };
        if found.row.disabled.as_deref() == reason {
            return Ok(());
        }
        let row = WebhookRow {
            disabled: reason.map(str::to_owned),
            ..found.row.clone()
        };
        self.0.store.change_webhook(&row).await?;
        self.reload().await
    }

    /// Counts since the start.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.0.tally
    }

    /// Messages that are not delivered; none without a subscription.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn backlog(&self) -> Result<DeliveryBacklog, StoreError> {
        match self.index().0.is_empty() {
            true => Ok(DeliveryBacklog::default()),
            false => self.0.store.backlog().await,
        }
    }

    /// Seconds since a moment.
    #[must_use]
    pub fn seconds_since(&self, at: WireTime) -> f64 {
        let micros = self.0.clock.now().unix_us().saturating_sub(at.unix_us());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0)).as_secs_f64()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            configured: Vec::new(),
            open: OpenNetworks::default(),
            authorities: Vec::new(),
            timeout: Duration::from_secs(10),
            schedule: Schedule::default(),
            keep_delivered: Duration::from_secs(24 * 3600),
            keep_dead: Duration::from_secs(7 * 24 * 3600),
            max_pending: 10_000,
        }
    }
}
