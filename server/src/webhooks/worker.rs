//! Sends the messages of one subscription, one after the other, so that a receiver gets them in their
//! order as long as it accepts them. Each subscription has a worker: a slow receiver delays no other.

use std::{sync::Arc, time::Duration};

use osb_service::ErrorChain;
use osb_store::{AttemptResult, DeliveryRow, DeliveryStatus, StoreError};
use tracing::{debug, info, warn};

use super::{
    Inner, Schedule, Webhooks,
    sender::{Attempt, Outcome},
    subscription::Subscription,
};

/// Pause after a failure of the store, and while another server uses it.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// What a subscription is disabled with by its receiver.
const GONE: &str = "the receiver answered 410 Gone";

/// Works until the subscription changes or the server stops.
pub(super) async fn work(webhooks: Webhooks, subscription: Arc<Subscription>) {
    let mut is_failing = false;
    loop {
        let done = webhooks.0.next(&subscription).await;
        let failed = match done {
            Ok(Next::Done) => None,
            Ok(Next::Disable) => webhooks.disable(&subscription, GONE).await.err(),
            Err(error) => Some(error),
        };
        if let Some(error) = &failed {
            if !is_failing {
                let webhook = &subscription.row.id;
                warn!(webhook, error = %ErrorChain(error), "deliveries wait for the store");
            }
            tokio::time::sleep(STORE_RETRY).await;
        }
        is_failing = failed.is_some();
    }
}

enum Next {
    Done,
    /// The receiver wants nothing any more.
    Disable,
}

impl Inner {
    /// Waits for the next message that is due, and sends it.
    async fn next(&self, subscription: &Subscription) -> Result<Next, StoreError> {
        // Another server may send these messages.
        if self.store.lost_hold().is_some() {
            tokio::time::sleep(STORE_RETRY).await;
            return Ok(Next::Done);
        }
        let Some(next) = self.store.next_delivery(&subscription.row.id).await? else {
            subscription.wake.notified().await;
            return Ok(Next::Done);
        };
        if !Schedule::is_due(next.attempts, next.due_at, self.clock.now()) {
            tokio::select! {
                () = subscription.wake.notified() => {}
                () = self.clock.sleep_until(next.due_at) => {}
            }
            return Ok(Next::Done);
        }
        self.attempt(subscription, next).await
    }

    async fn attempt(
        &self,
        subscription: &Subscription,
        delivery: DeliveryRow,
    ) -> Result<Next, StoreError> {
        let now = self.clock.now();
        // This write is refused when another server has taken the store over.
        if !self.store.begin_attempt(delivery.id).await? {
            return Ok(Next::Done);
        }
        let DeliveryRow {
            id,
            event_id,
            event_type,
            body,
            created_at,
            attempts,
            ..
        } = delivery;
        let attempts = attempts.saturating_add(1);
        let (url, key) = (&subscription.url, &subscription.key);
        let attempt = self.sender.send(url, key, &event_id, body, now).await;
        let Attempt { answer, outcome } = attempt;
        let at = self.clock.now();
        let (status, due_at, error) = match &outcome {
            Outcome::Delivered => (DeliveryStatus::Delivered, at, None),
            Outcome::Gone => (DeliveryStatus::Dead, at, Some(GONE.to_owned())),
            Outcome::Failed { error, retry_after } => {
                let next = self.schedule.next(attempts, created_at, at, *retry_after);
                let status = match next {
                    Some(_) => DeliveryStatus::Pending,
                    None => DeliveryStatus::Dead,
                };
                (status, next.unwrap_or(at), Some(error.clone()))
            }
        };
        let webhook = &subscription.row.id;
        match (status, &error) {
            (DeliveryStatus::Dead, Some(error)) => {
                warn!(
                    webhook,
                    event_id, event_type, attempts, error, "a delivery is given up"
                );
            }
            (_, error) => debug!(
                webhook,
                event_id,
                event_type,
                attempts,
                ?error,
                "a delivery was tried"
            ),
        }
        let result = AttemptResult {
            status,
            at,
            due_at,
            answer,
            error,
        };
        self.keep(subscription, id, &result).await;
        self.tally.attempted(status);
        Ok(match outcome {
            Outcome::Gone => Next::Disable,
            _ => Next::Done,
        })
    }

    /// Keeps what became of an attempt, however long the store fails: without it the message would be
    /// sent again.
    async fn keep(&self, subscription: &Subscription, id: i64, result: &AttemptResult) {
        let mut is_failing = false;
        while let Err(error) = self.store.end_attempt(id, result).await {
            if !is_failing {
                let webhook = &subscription.row.id;
                warn!(webhook, error = %ErrorChain(&error), "the result of a delivery waits for the store");
            }
            is_failing = true;
            tokio::time::sleep(STORE_RETRY).await;
        }
        if result.status != DeliveryStatus::Pending {
            subscription.ended();
        }
    }
}

impl Webhooks {
    /// Starts the worker of a subscription, unless it is disabled.
    pub(super) fn start_worker(&self, subscription: &Arc<Subscription>) {
        if subscription.row.disabled.is_some() {
            return;
        }
        let (webhooks, subscription) = (self.clone(), Arc::clone(subscription));
        let stopping = self.0.tasks.stopping().clone();
        self.0.tasks.spawn("webhook", async move {
            tokio::select! {
                // A worker that was replaced begins nothing more.
                biased;
                () = stopping.cancelled() => {}
                () = subscription.stop.cancelled() => {}
                () = work(webhooks, Arc::clone(&subscription)) => {}
            }
        });
    }

    async fn disable(&self, subscription: &Subscription, reason: &str) -> Result<(), StoreError> {
        info!(
            webhook = subscription.row.id,
            reason, "a webhook is disabled"
        );
        self.set_disabled(&subscription.row.id, Some(reason)).await
    }
}
