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
//! * [`subscription`], [`rules`], [`error`]: what administrators manage.
//!
//! Nothing here delays an operation on a sandbox. A store that takes no writes delays events.

mod address;
mod announcer;
mod clock;
mod difference;
mod error;
mod event;
pub(crate) mod rules;
mod schedule;
mod secret;
mod sender;
mod subscription;
mod tally;
mod worker;

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock, atomic::Ordering},
    time::Duration,
};

use osb_protocol::{
    FieldError, WireTime,
    webhook::{IssuedWebhook, NewWebhook, Webhook, WebhookDelivery, WebhookTest},
};
use osb_service::{ErrorChain, Supervisor};
use osb_store::{
    Announcement, DeliveryBacklog, DeliveryRow, DeliveryStatus, NewDelivery, Problem, Store,
    StoreError, WebhookRow, WebhookSecret,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::{Mutex, watch};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use uuid::Uuid;

use self::{
    address::AddressRules,
    event::Message,
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
use crate::{identity::Scope, sandbox::Service};

/// How often old deliveries are deleted.
const PRUNE_PERIOD: Duration = Duration::from_secs(60);
/// Deliveries that one statement changes or deletes.
const PRUNE_BATCH: u32 = 1000;
/// Longest wait until events are recorded for the first subscription.
const TRACKING_WAIT: Duration = Duration::from_secs(10);
/// Why the messages of a disabled subscription are given up.
const DISABLED: &str = "the webhook is disabled";

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
            sender: Sender::new(rules, options.timeout),
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
        let pruning = webhooks.clone();
        tasks.spawn_abortable("webhook pruning", async move {
            loop {
                pruning.prune().await;
                tokio::time::sleep(PRUNE_PERIOD).await;
            }
        });
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
            let subscription = Arc::new(Subscription {
                pending: counters.remove(&row.id).unwrap_or_default(),
                row,
                url,
                key,
                wake: tokio::sync::Notify::new(),
                stop: CancellationToken::new(),
            });
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

    fn find(&self, scope: &Scope, id: &str) -> Result<Arc<Subscription>, WebhookError> {
        let index = self.index();
        let found = index.within(scope).find(|known| known.row.id == id);
        found.cloned().ok_or(WebhookError::NoWebhook)
    }

    /// The subscriptions of a scope, oldest first.
    #[must_use]
    pub fn list(&self, scope: &Scope) -> Vec<Webhook> {
        self.index().within(scope).map(|it| it.shown()).collect()
    }

    /// One subscription.
    ///
    /// # Errors
    /// [`WebhookError::NoWebhook`].
    pub fn get(&self, scope: &Scope, id: &str) -> Result<Webhook, WebhookError> {
        self.find(scope, id).map(|it| it.shown())
    }

    /// Adds a subscription. Within a tenant's scope it is about the tenant's sandboxes. From the
    /// answer on, every event is recorded for it.
    ///
    /// # Errors
    /// When fields break rules, there are too many, or events cannot be recorded.
    pub async fn add(&self, scope: &Scope, new: NewWebhook) -> Result<IssuedWebhook, WebhookError> {
        let mut wrong = Vec::new();
        let name = rules::valid("name", rules::name(&new.name), &mut wrong);
        let url = rules::valid("url", rules::url(&new.url), &mut wrong);
        let events = rules::valid("events", rules::events(&new.events), &mut wrong);
        let tenant = new.tenant.as_deref().map(rules::tenant).transpose();
        let tenant = rules::valid("tenant", tenant, &mut wrong).flatten();
        if let (Some(own), Some(other)) = (scope.tenant(), &tenant)
            && own != other
        {
            let rule = "must be your own tenant, or absent";
            wrong.push(FieldError::body("value_error", ["tenant"], rule));
        }
        let is_given = new.secret.is_some();
        let secret = new
            .secret
            .map_or_else(secret::generate, |text| SecretString::from(text.trim()));
        if SigningKey::of(&secret).is_none() {
            wrong.push(FieldError::body("value_error", ["secret"], secret::RULE));
        }
        let (Some(name), Some(url), Some(events), true) = (name, url, events, wrong.is_empty())
        else {
            return Err(WebhookError::Invalid(wrong));
        };
        let _one_at_a_time = self.0.edit.lock().await;
        if self.index().0.len() >= rules::WEBHOOKS_MAX {
            return Err(WebhookError::Full(rules::WEBHOOKS_MAX));
        }
        self.track().await?;
        let row = WebhookRow {
            id: Uuid::new_v4().to_string(),
            name,
            url: url.into(),
            secret: Some(WebhookSecret(secret.expose_secret().to_owned())),
            events,
            tenant: scope.tenant().map(str::to_owned).or(tenant),
            is_configured: false,
            disabled: None,
            created_at: self.0.clock.now(),
        };
        let added = self.0.store.add_webhook(&row).await;
        // Also after a failure: without a subscription nothing needs to be recorded.
        self.reload().await?;
        added?;
        info!(webhook = row.id, "a webhook was added");
        Ok(IssuedWebhook {
            webhook: self.get(&Scope::All, &row.id)?,
            secret: (!is_given).then(|| secret.expose_secret().to_owned()),
        })
    }

    /// Begins to record events, if that has not begun.
    async fn track(&self) -> Result<(), WebhookError> {
        let mut tracking = self.0.tracking.subscribe();
        if *tracking.borrow() {
            return Ok(());
        }
        // What exists now is not news, so it must be known.
        self.0.service.available()?;
        self.0.store.check().await?;
        self.want(true);
        let begun = tokio::time::timeout(TRACKING_WAIT, tracking.wait_for(|it| *it)).await;
        if matches!(begun, Ok(Ok(_))) {
            return Ok(());
        }
        self.want(!self.index().0.is_empty());
        Err(WebhookError::Store(StoreError::Unavailable {
            op: "begin to record events",
            problem: Problem::Locked,
            source: None,
        }))
    }

    fn want(&self, is_wanted: bool) {
        let index = self.index();
        // A start that was cut short must not pass over what happened since the first subscription.
        let oldest = index.0.iter().map(|it| it.row.created_at).min();
        self.0.wanted.send_modify(|since| match is_wanted {
            // As sandboxes have it: the time of the host, whatever messages are due by.
            true => drop(since.get_or_insert_with(|| oldest.unwrap_or_else(|| SystemClock.now()))),
            false => *since = None,
        });
    }

    /// Deletes a subscription with its messages.
    ///
    /// # Errors
    /// When there is none, the configuration names it, or the store fails.
    pub async fn delete(&self, scope: &Scope, id: &str) -> Result<(), WebhookError> {
        let _one_at_a_time = self.0.edit.lock().await;
        let found = self.find(scope, id)?;
        if found.row.is_configured {
            return Err(WebhookError::Configured);
        }
        self.0.store.delete_webhook(id).await?;
        self.reload().await?;
        info!(webhook = id, "a webhook was deleted");
        Ok(())
    }

    /// Sends to a subscription again that its receiver disabled.
    ///
    /// # Errors
    /// When there is none or the store fails.
    pub async fn enable(&self, scope: &Scope, id: &str) -> Result<Webhook, WebhookError> {
        self.find(scope, id)?;
        self.set_disabled(id, None).await?;
        self.get(scope, id)
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

    /// Sends a message that tests a subscription.
    ///
    /// # Errors
    /// When there is none, it is disabled, or the store fails.
    pub async fn test(&self, scope: &Scope, id: &str) -> Result<WebhookTest, WebhookError> {
        let subscription = self.find(scope, id)?;
        refuse_disabled(&subscription)?;
        self.refuse_backlog(&subscription)?;
        let message = Message::test(id, self.0.clock.now());
        let announcement = Announcement {
            deliveries: vec![delivery_of(&subscription, &message)],
            ..Announcement::default()
        };
        self.0.store.announce(&announcement).await?;
        subscription.pending.fetch_add(1, Ordering::Relaxed);
        subscription.wake.notify_one();
        Ok(WebhookTest {
            event_id: message.id,
        })
    }

    /// Messages of a subscription, newest first: of one status if given, and with smaller ids than
    /// `before`.
    ///
    /// # Errors
    /// When there is no such subscription or the store fails.
    pub async fn deliveries(
        &self,
        scope: &Scope,
        id: &str,
        status: Option<DeliveryStatus>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<WebhookDelivery>, WebhookError> {
        self.find(scope, id)?;
        let rows = self.0.store.deliveries(id, status, before, limit).await?;
        Ok(rows.into_iter().map(shown_delivery).collect())
    }

    /// Sends a message again that was delivered or given up.
    ///
    /// # Errors
    /// When there is no such message, the subscription is disabled, or the store fails.
    pub async fn redeliver(
        &self,
        scope: &Scope,
        id: &str,
        delivery: i64,
    ) -> Result<(), WebhookError> {
        let subscription = self.find(scope, id)?;
        refuse_disabled(&subscription)?;
        self.refuse_backlog(&subscription)?;
        let now = self.0.clock.now();
        if !self.0.store.redeliver(id, delivery, now).await? {
            return Err(WebhookError::NoDelivery);
        }
        subscription.pending.fetch_add(1, Ordering::Relaxed);
        subscription.wake.notify_one();
        Ok(())
    }

    fn refuse_backlog(&self, subscription: &Subscription) -> Result<(), WebhookError> {
        match subscription.pending() {
            pending if pending >= self.0.max_pending => Err(WebhookError::Backlog(pending)),
            _ => Ok(()),
        }
    }

    /// Deletes old deliveries and gives up those of disabled subscriptions, in bounded batches.
    pub async fn prune(&self) {
        if self.0.store.lost_hold().is_some() {
            return;
        }
        if let Err(error) = self.try_prune().await {
            warn!(error = %ErrorChain(&error), "old deliveries of webhooks stay");
        }
    }

    async fn try_prune(&self) -> Result<(), StoreError> {
        let (store, now) = (&self.0.store, self.0.clock.now());
        let before = |age: Duration| {
            let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX);
            now.plus_seconds(seconds.saturating_neg()).unwrap_or(now)
        };
        for subscription in &self.index().0 {
            if subscription.row.disabled.is_none() {
                continue;
            }
            let id = &subscription.row.id;
            loop {
                let given_up = store.give_up(id, DISABLED, now, PRUNE_BATCH).await?;
                if given_up == 0 {
                    break;
                }
                for _ in 0..given_up {
                    subscription.ended();
                    self.0.tally.attempted(DeliveryStatus::Dead);
                }
            }
        }
        let (delivered, dead) = (before(self.0.keep_delivered), before(self.0.keep_dead));
        while store.prune_deliveries(delivered, dead, PRUNE_BATCH).await? > 0 {
            tokio::task::yield_now().await;
        }
        Ok(())
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

fn refuse_disabled(subscription: &Subscription) -> Result<(), WebhookError> {
    match &subscription.row.disabled {
        Some(reason) => Err(WebhookError::Disabled(reason.clone())),
        None => Ok(()),
    }
}

fn delivery_of(subscription: &Subscription, message: &Message) -> NewDelivery {
    NewDelivery {
        webhook_id: subscription.row.id.clone(),
        event_id: message.id.clone(),
        event_type: message.kind.as_str().to_owned(),
        sandbox_id: message.sandbox.clone(),
        body: message.body.clone(),
        created_at: message.at,
    }
}

fn shown_delivery(row: DeliveryRow) -> WebhookDelivery {
    let is_pending = row.status == DeliveryStatus::Pending;
    WebhookDelivery {
        id: row.id,
        event_id: row.event_id,
        event_type: row.event_type,
        sandbox_id: row.sandbox_id,
        status: row.status.as_str().to_owned(),
        attempts: row.attempts,
        created_at: row.created_at,
        next_attempt_at: is_pending.then_some(row.due_at),
        ended_at: row.ended_at,
        response_status: row.answer,
        error: row.error,
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            configured: Vec::new(),
            open: OpenNetworks::default(),
            timeout: Duration::from_secs(10),
            schedule: Schedule::default(),
            keep_delivered: Duration::from_secs(24 * 3600),
            keep_dead: Duration::from_secs(7 * 24 * 3600),
            max_pending: 10_000,
        }
    }
}
