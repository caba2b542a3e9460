//! How long messages are kept.

use std::time::Duration;

use osb_service::ErrorChain;
use osb_store::{DeliveryStatus, StoreError};
use tracing::warn;

use super::Webhooks;

/// How often old deliveries are deleted.
const PERIOD: Duration = Duration::from_secs(60);
/// Deliveries that one statement changes or deletes.
const BATCH: u32 = 1000;
/// Why the messages of a disabled subscription are given up.
const DISABLED: &str = "the webhook is disabled";

pub(super) fn start(webhooks: Webhooks) {
    let tasks = webhooks.0.tasks.clone();
    tasks.spawn_abortable("webhook pruning", async move {
        loop {
            webhooks.prune().await;
            tokio::time::sleep(PERIOD).await;
        }
    });
}

impl Webhooks {
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
                let given_up = store.give_up(id, DISABLED, now, BATCH).await?;
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
        while store.prune_deliveries(delivered, dead, BATCH).await? > 0 {
            tokio::task::yield_now().await;
        }
        Ok(())
    }
}
