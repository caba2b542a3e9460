//! Deadlines.
//!
//! The registry keeps all deadlines in order; this task sleeps until the first one and is woken
//! when they move. Whether a sandbox is really due is decided in one step with marking it as
//! deleted, so a renewal either moves the deadline in time or is refused. A server that was away
//! finds past deadlines first in the queue: recovery is the same path. A deadline is a moment of the
//! wall clock, as clients were promised: when the clock is set, sandboxes end earlier or later with it.

use std::time::Duration;

use osb_protocol::SandboxId;
use osb_store::Outcome;
use tracing::info;

use super::{Service, lifecycle::now};
use crate::audit::Action;

/// Time until a server that lost its hold on the store looks again whether that is still so.
const FENCED_SLEEP: Duration = Duration::from_secs(1);
/// Longest sleep: the wall clock may be set forward meanwhile, which nothing announces.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

pub(super) fn start(service: Service) {
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn_abortable("expiry", async move {
        let mut health = service.inner.registry.watch_health();
        loop {
            // What is due is removed only when the runtime is there to do it.
            let up = |health: &super::RuntimeHealth| *health == super::RuntimeHealth::Up;
            if health.wait_for(up).await.is_err() {
                return;
            }
            if service.inner.store.lost_hold().is_some() {
                // Another server may have renewed what seems due here.
                tokio::time::sleep(FENCED_SLEEP).await;
                continue;
            }
            let sleep = match service.inner.registry.next_deadline() {
                Some((at, id)) => match at.unix_us() - now().unix_us() {
                    ..=0 => {
                        service.expire(&id);
                        continue;
                    }
                    left => Duration::from_micros(left.unsigned_abs()).min(LONGEST_SLEEP),
                },
                None => LONGEST_SLEEP,
            };
            tokio::select! {
                () = tokio::time::sleep(sleep) => {}
                () = service.inner.registry.deadline_moved() => {}
            }
        }
    });
}

impl Service {
    fn expire(&self, id: &SandboxId) {
        let at = now();
        let marked = self.inner.registry.update(id, |facts| {
            let due = facts.expires_at().is_some_and(|deadline| deadline <= at);
            if facts.is_deleted() || !due {
                return Err(());
            }
            facts.changes.deleted_at = Some(at);
            Ok(())
        });
        let Some(Ok(record)) = marked else {
            return;
        };
        info!(sandbox = %id, "expired");
        self.record_own(Action::SandboxExpire, &record);
        // The store is not asked: it may be slow, others are due too, and a restart would find the
        // same deadline.
        if let Some(locks) = self.inner.registry.locks(id) {
            self.start_removal(id.clone(), locks, Outcome::Expired);
        }
    }
}
