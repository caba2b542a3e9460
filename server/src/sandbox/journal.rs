//! History that the store could not take yet.
//!
//! A sandbox that is gone is gone, whatever the store does: its history waits here, is read from
//! here, and is written as soon as the store works again. An entry that a working store refuses goes
//! behind the others, and is dropped when it was refused too often.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use osb_protocol::SandboxId;
use osb_service::ErrorChain;
use osb_store::{HistoryEntry, StoreError};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::{Error, Service};
use crate::identity::Scope;

/// Most entries that wait; the oldest are lost first.
const WAITING: usize = 10_000;
/// Pause between attempts.
const RETRY: Duration = Duration::from_secs(1);
/// How often a working store may refuse an entry.
const REFUSALS: u32 = 10;

/// Entries that wait for the store, oldest first.
#[derive(Debug, Default)]
pub(super) struct Journal {
    waiting: Mutex<VecDeque<Waiting>>,
    filled: Notify,
    /// Held while an entry is written.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Waiting {
    entry: HistoryEntry,
    refusals: u32,
}

impl Journal {
    fn locked(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        // The queue is whole after every operation, so a panic elsewhere does not spoil it.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_empty(&self) -> bool {
        self.locked().is_empty()
    }

    fn push(&self, entry: HistoryEntry) {
        let mut waiting = self.locked();
        if waiting.len() == WAITING
            && let Some(lost) = waiting.pop_front()
        {
            report_lost(&lost.entry, "too many wait for the store");
        }
        waiting.push_back(Waiting { entry, refusals: 0 });
        self.filled.notify_one();
    }

    fn first(&self) -> Option<HistoryEntry> {
        self.locked().front().map(|first| first.entry.clone())
    }

    fn written(&self, id: &SandboxId) {
        self.withdraw(id);
    }

    /// Waits until no entry is being written, and keeps it so until the guard is dropped.
    pub(super) async fn pause(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.writing.lock().await
    }

    /// Forgets the entry of a sandbox that came back. Returns whether there was one.
    pub(super) fn withdraw(&self, id: &SandboxId) -> bool {
        let mut waiting = self.locked();
        let before = waiting.len();
        waiting.retain(|waiting| waiting.entry.id != *id);
        waiting.len() < before
    }

    /// Puts an entry behind the others, or drops it.
    fn refused(&self, id: &SandboxId, error: &StoreError) {
        let mut waiting = self.locked();
        let place = waiting.iter().position(|waiting| waiting.entry.id == *id);
        let Some(mut refused) = place.and_then(|place| waiting.remove(place)) else {
            return;
        };
        refused.refusals += 1;
        if refused.refusals == REFUSALS {
            report_lost(&refused.entry, ErrorChain(error));
        } else {
            waiting.push_back(refused);
        }
    }

    fn of(&self, id: &SandboxId) -> Option<HistoryEntry> {
        let waiting = self.locked();
        let found = waiting.iter().find(|waiting| waiting.entry.id == *id);
        found.map(|waiting| waiting.entry.clone())
    }

    /// Those within a scope that wait, newest first.
    fn newest(&self, scope: &Scope) -> Vec<HistoryEntry> {
        let waiting = self.locked();
        let all = waiting.iter().rev().map(|waiting| &waiting.entry);
        let own = all.filter(|entry| scope.contains(entry.tenant.as_deref()));
        own.cloned().collect()
    }

    /// How many of those within a scope wait.
    fn count(&self, scope: &Scope) -> usize {
        let waiting = self.locked();
        let own = |waiting: &&Waiting| scope.contains(waiting.entry.tenant.as_deref());
        waiting.iter().filter(own).count()
    }
}

/// Logs an entry that no history will have, except what the sandbox had been created with.
fn report_lost(entry: &HistoryEntry, why: impl std::fmt::Display) {
    error!(
        sandbox = %entry.id,
        image = entry.image,
        created_at = %entry.created_at,
        ended_at = %entry.ended_at,
        outcome = entry.outcome.as_str(),
        reason = entry.reason,
        message = entry.message,
        error = %why,
        "the history entry is lost"
    );
}

/// Entries still wait.
#[derive(Debug)]
struct StillWaiting;

/// Writes what waits, until the server stops.
pub(super) fn start(service: Service) {
    let tasks = service.inner.tasks.clone();
    tasks.clone().spawn("journal", async move {
        let journal = &service.inner.journal;
        loop {
            tokio::select! {
                () = tasks.stopping().cancelled() => break,
                () = journal.filled.notified() => {}
            }
            while service.write_waiting().await.is_err() {
                tokio::select! {
                    () = tasks.stopping().cancelled() => break,
                    () = tokio::time::sleep(RETRY) => {}
                }
            }
        }
        if service.write_waiting().await.is_err() {
            for lost in journal.locked().iter() {
                report_lost(&lost.entry, "the store did not take it");
            }
        }
    });
}

impl Service {
    /// Writes the history of a sandbox that is gone, now or when the store can take it.
    pub(super) async fn keep_history(&self, entry: HistoryEntry) {
        self.inner.tally.ended(entry.outcome);
        self.inner.pools.forget(&entry.id);
        // Behind others it would only wait as they do.
        if self.inner.journal.is_empty() {
            match self.inner.store.finish(&entry).await {
                Ok(()) => return,
                Err(error) => {
                    warn!(sandbox = %entry.id, error = %ErrorChain(&error), "the history waits for the store");
                }
            }
        }
        self.inner.journal.push(entry);
    }

    /// Tries each entry once. Fails when the store is unavailable, or entries still wait.
    async fn write_waiting(&self) -> Result<(), StillWaiting> {
        let journal = &self.inner.journal;
        let mut written = 0_u64;
        let round = journal.locked().len();
        for _ in 0..round {
            let _turn = journal.writing.lock().await;
            let Some(entry) = journal.first() else {
                break;
            };
            match self.inner.store.finish(&entry).await {
                Ok(()) => {
                    journal.written(&entry.id);
                    written += 1;
                }
                Err(StoreError::Unavailable { .. }) => return Err(StillWaiting),
                Err(error) => {
                    warn!(sandbox = %entry.id, error = %ErrorChain(&error), "the store refuses a history entry");
                    journal.refused(&entry.id, &error);
                }
            }
        }
        if written > 0 {
            info!(written, "stored the history that had waited for the store");
        }
        if journal.is_empty() {
            Ok(())
        } else {
            Err(StillWaiting)
        }
    }

    /// What became of a sandbox that is gone, or of a create that failed.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn history(&self, id: &SandboxId) -> Result<Option<HistoryEntry>, Error> {
        let entry = match self.inner.journal.of(id) {
            Some(entry) => Some(entry),
            None => self.inner.store.history(id).await?,
        };
        Ok(entry.filter(|entry| self.scope.contains(entry.tenant.as_deref())))
    }

    /// Fails unless a sandbox is within the scope, or was. Without a scope, also a sandbox that left
    /// no history passes: what was recorded of it may be kept longer.
    ///
    /// # Errors
    /// [`Error::NotFound`]; when the store fails.
    pub(super) async fn require_within(&self, id: &SandboxId) -> Result<(), Error> {
        if self.scope == Scope::All || self.find(id).is_some() {
            return Ok(());
        }
        // Of another tenant, whatever the history says of an earlier one of that id.
        let is_anothers = self.inner.registry.get(id).is_some();
        if is_anothers || self.history(id).await?.is_none() {
            return Err(Error::NotFound(id.clone()));
        }
        Ok(())
    }

    /// The sandboxes within the scope that ended last, newest first, without the first `skip`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn recent_history(&self, skip: u32, limit: u32) -> Result<Vec<HistoryEntry>, Error> {
        // Those that wait for the store come first: they ended since it stopped working.
        let waiting = self.inner.journal.newest(&self.scope);
        let ids: HashSet<_> = waiting.iter().map(|entry| entry.id.clone()).collect();
        let waiting_count = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let from_waiting = waiting.into_iter().skip(skip as usize);
        let mut recent: Vec<_> = from_waiting.take(limit as usize).collect();
        let skip = skip.saturating_sub(waiting_count);
        let room = limit.saturating_sub(u32::try_from(recent.len()).unwrap_or(limit));
        if room > 0 {
            let stored = &self.inner.store;
            let stored = stored.recent_history(self.scope.tenant(), skip, room);
            let stored = stored.await?.into_iter();
            recent.extend(stored.filter(|entry| !ids.contains(&entry.id)));
        }
        Ok(recent)
    }

    /// Number of the sandboxes within the scope that ended, up to `most`.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn count_history(&self, most: u32) -> Result<u32, Error> {
        let stored = self.inner.store.count_history(self.scope.tenant(), most);
        let stored = stored.await?;
        let waiting = u32::try_from(self.inner.journal.count(&self.scope)).unwrap_or(most);
        Ok(stored.saturating_add(waiting).min(most))
    }
}
