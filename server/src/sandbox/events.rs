//! Applies the runtime's events to the registry.

use std::collections::{HashMap, HashSet};

use osb_protocol::{SandboxId, WireTime};
use osb_runtime::{Observed, Phase, Role, RuntimeEvent, Status};
use osb_service::{ErrorChain, Supervisor};
use osb_store::{Changes, EndedSpec, HistoryEntry, Outcome, UnansweredCreate};
use tracing::{error, info, warn};

use super::{
    Facts, RuntimeHealth, Service, failed_hooks,
    lifecycle::{ABANDONED, history},
    registry::Locks,
    takeover::Imports,
};

/// What an earlier process left.
pub(super) struct StoredAtStart {
    pub(super) changes: HashMap<SandboxId, Changes>,
    pub(super) unanswered: Vec<UnansweredCreate>,
    /// Whether the store has nothing that `changes` lacks.
    pub(super) is_fresh: bool,
    /// What another server left in files, and which of those were imported.
    pub(super) imports: Imports,
    /// Whether the runtime had a sandbox, or a member of a pool, that this process did not create.
    pub(super) has_found: bool,
}

/// Follows the runtime. The first synchronisation uses up what an earlier process left in the store;
/// after that the registry knows more.
pub(super) fn start(service: Service, mut left: StoredAtStart) {
    let tasks = service.inner.tasks.clone();
    let mut events = std::sync::Arc::clone(&service.inner.runtime).watch(&tasks);
    tasks.clone().spawn("runtime events", async move {
        while let Some(event) = unless_stopped(&tasks, events.recv()).await {
            match event {
                Some(RuntimeEvent::Synced { all, at }) => {
                    service.synchronise(all, at, &mut left).await;
                    service.end_unanswered(&mut left).await;
                    service.inner.registry.set_health(RuntimeHealth::Up);
                    service.inner.nudge.notify_one();
                    service.inner.pools.wake();
                }
                Some(event) => service.apply(event, &mut left).await,
                None => {
                    // Without events the registry goes out of date unnoticed.
                    let reason = "its events are no longer followed".to_owned();
                    error!(reason, "restart the server");
                    service
                        .inner
                        .registry
                        .set_health(RuntimeHealth::Down { reason });
                    return;
                }
            }
        }
    });
}

/// Waits for a future unless the server stops. The stop has priority: it also ends the sender of the
/// events, and that is no failure then.
async fn unless_stopped<T>(tasks: &Supervisor, future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = tasks.stopping().cancelled() => None,
        done = future => Some(done),
    }
}

impl Service {
    /// Brings the registry in line with a full list from the runtime.
    async fn synchronise(&self, all: Vec<Observed>, at: WireTime, left: &mut StoredAtStart) {
        let registry = &self.inner.registry;
        let sorted = self.sort_members(all, at);
        left.has_found |= sorted.has_found;
        let (all, seen) = (sorted.sandboxes, sorted.seen);
        // A container that never started is left over from a crash; the sweep removes it.
        let unknown = all.iter().filter(|it| it.status.phase != Phase::Created);
        let unknown = unknown.map(|observed| &observed.origin.id);
        let unknown = unknown.filter(|id| registry.get(id).is_none() && !registry.was_removed(id));
        let unknown: HashSet<_> = unknown.cloned().collect();
        let is_known = self.look_up(&unknown, left).await;
        let mut ended = Vec::new();
        for observed in all {
            let id = observed.origin.id.clone();
            if registry.get(&id).is_some() {
                if self.observe(&id, observed.status, at) {
                    self.repeat_claim(&id);
                    ended.push(id);
                }
            } else if is_known && unknown.contains(&id) {
                if observed.origin.expiry == osb_runtime::Expiry::Unknown {
                    warn!(sandbox = %id, "has no readable expiry and is kept until it is deleted");
                }
                self.take_in(observed, left).await;
                ended.push(id);
            }
        }
        left.imports.forget_files();
        for record in registry.snapshot().0 {
            let facts = &record.facts;
            // A create in progress has no container yet; a container that started after the list was
            // taken is not in it.
            let looked_at =
                facts.phase.is_some_and(|(_, since)| since != at) && facts.had_container(at);
            if looked_at && !seen.contains(&facts.origin.id) {
                self.handle_missing(&facts.origin.id, at).await;
            }
        }
        ended.retain(|id| self.record_that(id, failed_hooks::may_explain));
        self.explain_ends(ended);
        self.end_unseen(&seen, left).await;
        // The runtime may be another one by mistake.
        if left.has_found {
            self.end_claimed(sorted.unseen_claims).await;
        }
        left.is_fresh = false;
        self.inner.registry.note_look(at, left.has_found);
    }

    /// Reads what files and the store say about sandboxes that the registry has not and that are to be
    /// taken in. Returns whether that is known: without a renewal, a sandbox might be removed as expired.
    async fn look_up(&self, unknown: &HashSet<SandboxId>, left: &mut StoredAtStart) -> bool {
        if unknown.is_empty() {
            return true;
        }
        left.imports.read(unknown.iter().cloned().collect()).await;
        if left.is_fresh {
            return true;
        }
        // The end of a sandbox deletes its renewal, unless it is withdrawn before it is stored.
        let _nothing_is_written = self.inner.journal.pause().await;
        match self.inner.store.all_changes().await {
            Ok(mut stored) => {
                let changes = unknown.iter().filter_map(|id| stored.remove_entry(id));
                left.changes.extend(changes);
                for id in unknown {
                    if self.inner.journal.withdraw(id) {
                        info!(sandbox = %id, "its end was not stored yet and is forgotten");
                    }
                }
                true
            }
            Err(error) => {
                let error = ErrorChain(&error);
                warn!(%error, "sandboxes that came back are not listed before their renewals can be read");
                false
            }
        }
    }

    /// Adds a sandbox that the runtime has and the registry has not, with what is stored about it.
    async fn take_in(&self, observed: Observed, left: &mut StoredAtStart) {
        let id = &observed.origin.id;
        let mut known = left.changes.remove(id).unwrap_or_default();
        self.import(&observed.origin, &mut left.imports, &mut known)
            .await;
        let id = id.clone();
        self.inner.registry.put(Facts::found(observed, known));
        self.repeat_claim(&id);
        left.has_found = true;
    }

    /// Ends the sandboxes that only the store knows: they were removed just before the last server
    /// ended. Without a sandbox of an earlier process, the runtime may be another one by mistake. What
    /// is stored about sandboxes that are to live then stays, for the right one.
    async fn end_unseen(&self, seen: &HashSet<SandboxId>, left: &mut StoredAtStart) {
        let has_found = left.has_found;
        let unseen = left.changes.extract_if(|id, known| {
            !seen.contains(id) && (has_found || known.deleted_at.is_some())
        });
        let unseen: Vec<_> = unseen.collect();
        for (id, known) in unseen {
            let outcome = if known.deleted_at.is_some() {
                Outcome::Deleted
            } else {
                Outcome::Vanished
            };
            let at = super::lifecycle::now();
            let entry = HistoryEntry {
                id: id.clone(),
                image: String::new(),
                created_at: known.deleted_at.unwrap_or(at),
                ended_at: at,
                outcome,
                reason: "GONE_AT_START".to_owned(),
                message: "It was gone when the server started.".to_owned(),
                stages: Vec::new(),
                tenant: known.tenant,
                spec: EndedSpec::default(),
            };
            self.keep_history(entry).await;
        }
    }

    /// Removes sandboxes whose create the last server did not answer: no client knows their ids. While
    /// the runtime has none of the sandboxes that the store knows, it may be another one by mistake;
    /// what it lacks then may be on the right one and stays marked.
    async fn end_unanswered(&self, left: &mut StoredAtStart) {
        let may_be_another = !left.has_found && !left.changes.is_empty();
        for create in std::mem::take(&mut left.unanswered) {
            if self.inner.registry.get(&create.id).is_some() {
                self.abandon(&create.id);
                continue;
            }
            if self.inner.pools.is_unclaimed(&create.id) {
                // It drains: its create did not get as far as the claim.
                if let Err(error) = self.inner.store.set_answered(&create.id).await {
                    warn!(sandbox = %create.id, error = %ErrorChain(&error), "its create stays marked");
                }
                continue;
            }
            if may_be_another {
                left.unanswered.push(create);
                continue;
            }
            let entry = HistoryEntry {
                id: create.id,
                image: create.image,
                created_at: create.created_at,
                ended_at: super::lifecycle::now(),
                outcome: Outcome::Abandoned,
                reason: ABANDONED.0.to_owned(),
                message: "The server ended before the sandbox was made.".to_owned(),
                stages: Vec::new(),
                tenant: create.tenant,
                spec: EndedSpec::default(),
            };
            self.keep_history(entry).await;
        }
    }

    async fn apply(&self, event: RuntimeEvent, left: &mut StoredAtStart) {
        match event {
            RuntimeEvent::Synced { .. } => unreachable!("handled by the caller"),
            RuntimeEvent::Lost { reason } => {
                self.inner
                    .registry
                    .set_health(RuntimeHealth::Down { reason });
            }
            RuntimeEvent::Changed(observed) => {
                let Some(observed) = self.without_member(*observed) else {
                    return;
                };
                if self.inner.registry.was_removed(&observed.origin.id) {
                    return;
                }
                if self.inner.registry.get(&observed.origin.id).is_none() {
                    info!(sandbox = %observed.origin.id, "a sandbox came back");
                    // Otherwise the next list has it.
                    let id = HashSet::from([observed.origin.id.clone()]);
                    if self.look_up(&id, left).await {
                        self.take_in(observed, left).await;
                    }
                    return;
                }
                let id = observed.origin.id.clone();
                let at = observed.status.since;
                if self.observe(&id, observed.status, at) {
                    self.repeat_claim(&id);
                }
            }
            RuntimeEvent::Exited { id, .. } if self.inner.pools.lose(&id) => {}
            RuntimeEvent::Exited { id, role, code, at } => {
                if role == Role::Main {
                    info!(sandbox = %id, code, "the entry point ended");
                    self.alter(&id, |facts| facts.end(code, at));
                    if self.record_that(&id, failed_hooks::may_explain) {
                        self.explain_ends(vec![id]);
                    }
                } else if self.is_wanted(&id) {
                    // A create that fails says why.
                    if self.record_that(&id, |facts| facts.create_is_over) {
                        error!(sandbox = %id, %role, code, "a container that the sandbox needs ended");
                    }
                    self.alter(&id, |facts| facts.mark_lost(role, at));
                }
            }
            RuntimeEvent::OutOfMemory { id } => {
                self.alter(&id, |facts| facts.out_of_memory = true);
            }
            RuntimeEvent::Paused { id, paused, at } => {
                self.inner.pools.freeze(&id, paused, at);
                self.alter(&id, |facts| facts.freeze(paused, at));
            }
            RuntimeEvent::Removed { id, .. } if self.inner.pools.lose(&id) => {}
            RuntimeEvent::Removed { id, at } => self.handle_missing(&id, at).await,
        }
    }

    /// Whether a sandbox exists and is not being removed.
    fn is_wanted(&self, id: &SandboxId) -> bool {
        self.record_that(id, |facts| !facts.is_deleted())
    }

    /// Whether there is a sandbox of which this is true.
    fn record_that(&self, id: &SandboxId, is_true: impl FnOnce(&Facts) -> bool) -> bool {
        let record = self.inner.registry.get(id);
        record.is_some_and(|record| is_true(&record.facts))
    }

    /// Takes over what the runtime reports. The full list of each minute has no news of most
    /// sandboxes; as changes, they would be encoded and sent to every tab of the console. Returns
    /// whether it was news.
    fn observe(&self, id: &SandboxId, status: Status, at: WireTime) -> bool {
        // An unknown sandbox was removed just now.
        let updated = self.inner.registry.update(id, |facts| {
            let is_news = facts.observe(status, at);
            is_news.then_some(()).ok_or(())
        });
        matches!(updated, Some(Ok(_)))
    }

    /// Changes what the container does. What is known already is no news, such as the next of many
    /// processes that the kernel ends because of the memory limit.
    fn alter(&self, id: &SandboxId, change: impl FnOnce(&mut Facts)) {
        let seen = |facts: &Facts| (facts.phase, facts.out_of_memory, facts.lost);
        // An unknown sandbox was removed just now.
        let _ = self.inner.registry.update(id, |facts| {
            let before = seen(facts);
            change(facts);
            (seen(facts) != before).then_some(()).ok_or(())
        });
    }

    /// Handles a container that was gone at `at`. A create or a removal in progress may be the reason
    /// and ends first.
    async fn handle_missing(&self, id: &SandboxId, at: WireTime) {
        let registry = &self.inner.registry;
        let (Some(record), Some(locks)) = (registry.get(id), registry.locks(id)) else {
            return;
        };
        if record.facts.is_deleted() {
            return;
        }
        if let Ok(_owner) = locks.life.try_lock() {
            return self.vanished(id, &locks, at).await;
        }
        // Events must be handled meanwhile: the create waits for some of them.
        let (service, id) = (self.clone(), id.clone());
        self.inner.tasks.spawn("vanished", async move {
            let _owner = locks.life.lock().await;
            service.vanished(&id, &locks, at).await;
        });
    }

    /// Records that another program removed the container, unless it belonged to an earlier attempt
    /// of the create. The caller holds the `life` lock.
    async fn vanished(&self, id: &SandboxId, locks: &Locks, at: WireTime) {
        let Some(record) = self.inner.registry.get(id) else {
            return;
        };
        let facts = &record.facts;
        if facts.is_deleted() || !facts.had_container(at) {
            return;
        }
        warn!(sandbox = %id, "was removed by another program");
        let message = "Its container was removed by another program.".to_owned();
        self.end(
            history(facts, Outcome::Vanished, "VANISHED", message),
            locks,
        )
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_events_is_no_failure_when_the_server_stops() {
        let tasks = Supervisor::new();
        let closed = async || None::<RuntimeEvent>;
        assert!(unless_stopped(&tasks, closed()).await.is_some());
        tasks.stop();
        // By chance it would be right every other time.
        for _ in 0..64 {
            assert!(unless_stopped(&tasks, closed()).await.is_none());
        }
    }
}
