//! What administrators do with subscriptions and their messages.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use osb_protocol::{
    FieldError,
    webhook::{IssuedWebhook, NewWebhook, Webhook, WebhookDelivery, WebhookTest},
};
use osb_store::{
    Announcement, DeliveryRow, DeliveryStatus, NewDelivery, Problem, StoreError, WebhookRow,
    WebhookSecret,
};
use secrecy::{ExposeSecret, SecretString};
use tracing::info;
use uuid::Uuid;

use super::{
    SystemClock, WebhookError, Webhooks, clock::Clock, event::Message, rules, secret,
    secret::SigningKey, subscription::Subscription,
};
use crate::{identity::Scope, sandbox};

/// Longest wait until events are recorded for the first subscription.
const TRACKING_WAIT: Duration = Duration::from_secs(10);

/// A subscription to add, whose fields were checked.
struct Checked {
    row: WebhookRow,
    secret: SecretString,
    /// Whether the caller knows the secret.
    is_given: bool,
}

impl Webhooks {
    fn find(&self, scope: &Scope, id: &str) -> Result<Arc<Subscription>, WebhookError> {
        let index = self.index();
        let found = index.within(scope).find(|known| known.row.id == id);
        found.cloned().ok_or(WebhookError::NoWebhook)
    }

    /// Completes a change even if its request is dropped: store, memory and workers must agree.
    async fn owned<T: Send + 'static>(
        &self,
        name: &'static str,
        work: impl Future<Output = Result<T, WebhookError>> + Send + 'static,
    ) -> Result<T, WebhookError> {
        let done = self.0.tasks.spawn(name, work).await;
        done.unwrap_or_else(|_| Err(sandbox::Error::ShuttingDown.into()))
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
    /// When fields break rules, the scope has one of this name, there are too many, or events cannot be
    /// recorded.
    pub async fn add(&self, scope: &Scope, new: NewWebhook) -> Result<IssuedWebhook, WebhookError> {
        let checked = self.checked(scope, new)?;
        let (webhooks, scope) = (self.clone(), scope.clone());
        self.owned("add a webhook", async move {
            webhooks.add_checked(&scope, checked).await
        })
        .await
    }

    fn checked(&self, scope: &Scope, new: NewWebhook) -> Result<Checked, WebhookError> {
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
        Ok(Checked {
            row,
            secret,
            is_given,
        })
    }

    async fn add_checked(
        &self,
        scope: &Scope,
        checked: Checked,
    ) -> Result<IssuedWebhook, WebhookError> {
        let Checked {
            row,
            secret,
            is_given,
        } = checked;
        let _one_at_a_time = self.0.edit.lock().await;
        let index = self.index();
        // Only what the caller may see: the name of another tenant's webhook stays unknown.
        if index.within(scope).any(|known| known.row.name == row.name) {
            return Err(WebhookError::NameTaken(row.name));
        }
        if index.0.len() >= rules::WEBHOOKS_MAX {
            return Err(WebhookError::Full(rules::WEBHOOKS_MAX));
        }
        self.track().await?;
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

    pub(super) fn want(&self, is_wanted: bool) {
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
        let (webhooks, scope, id) = (self.clone(), scope.clone(), id.to_owned());
        self.owned("delete a webhook", async move {
            let _one_at_a_time = webhooks.0.edit.lock().await;
            let found = webhooks.find(&scope, &id)?;
            if found.row.is_configured {
                return Err(WebhookError::Configured);
            }
            webhooks.0.store.delete_webhook(&id).await?;
            webhooks.reload().await?;
            info!(webhook = id, "a webhook was deleted");
            Ok(())
        })
        .await
    }

    /// Sends to a subscription again that its receiver disabled.
    ///
    /// # Errors
    /// When there is none or the store fails.
    pub async fn enable(&self, scope: &Scope, id: &str) -> Result<Webhook, WebhookError> {
        let (webhooks, scope, id) = (self.clone(), scope.clone(), id.to_owned());
        self.owned("enable a webhook", async move {
            webhooks.find(&scope, &id)?;
            webhooks.set_disabled(&id, None).await?;
            webhooks.get(&scope, &id)
        })
        .await
    }

    /// Sends a message that tests a subscription.
    ///
    /// # Errors
    /// When there is none, it is disabled, or the store fails.
    pub async fn test(&self, scope: &Scope, id: &str) -> Result<WebhookTest, WebhookError> {
        let subscription = self.receiving(scope, id)?;
        let webhooks = self.clone();
        self.owned("test a webhook", async move {
            let message = Message::test(&subscription.row.id, webhooks.0.clock.now());
            let announcement = Announcement {
                deliveries: vec![delivery_of(&subscription, &message)],
                ..Announcement::default()
            };
            subscription.pending.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = webhooks.0.store.announce(&announcement).await {
                subscription.ended();
                return Err(error.into());
            }
            subscription.wake.notify_one();
            Ok(WebhookTest {
                event_id: message.id,
            })
        })
        .await
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
        let subscription = self.receiving(scope, id)?;
        let webhooks = self.clone();
        self.owned("redeliver", async move {
            let (id, now) = (&subscription.row.id, webhooks.0.clock.now());
            subscription.pending.fetch_add(1, Ordering::Relaxed);
            let found = webhooks.0.store.redeliver(id, delivery, now).await;
            if !matches!(found, Ok(true)) {
                subscription.ended();
                return Err(found.err().map_or(WebhookError::NoDelivery, Into::into));
            }
            subscription.wake.notify_one();
            Ok(())
        })
        .await
    }

    /// A subscription that takes further messages.
    fn receiving(&self, scope: &Scope, id: &str) -> Result<Arc<Subscription>, WebhookError> {
        let subscription = self.find(scope, id)?;
        if let Some(reason) = &subscription.row.disabled {
            return Err(WebhookError::Disabled(reason.clone()));
        }
        match subscription.pending() {
            pending if pending >= self.0.max_pending => Err(WebhookError::Backlog(pending)),
            _ => Ok(subscription),
        }
    }
}

pub(super) fn delivery_of(subscription: &Subscription, message: &Message) -> NewDelivery {
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
