//! A store whose caller is killed at a step.

mod templates;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
};

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime, audit::AuditEntry, lifecycle::SnapshotState};
use osb_store::{
    AccountRows, Accounts, AnnouncedRow, Announcement, Announcements, ApiKeyRow, AttemptResult,
    AuditPlace, AuditQuery, AuditStore, Changes, ConsoleSessions, CreateKey, CreateRequests,
    Deliveries, DeliveryBacklog, DeliveryRow, DeliveryStatus, ForeignImport, ForeignImports,
    HistoryEntry, ImportedFiles, MemberState, MetricStretch, PoolChange, PoolMemberRow, PoolRow,
    PoolStore, Problem, ReportedCommand, SandboxChanges, SandboxCommands, SandboxHistory,
    SandboxMetrics, SessionRow, SnapshotChange, SnapshotQuery, SnapshotRow, SnapshotStore,
    SnapshotTotal, Store, StoreError, StoredFor, UnansweredCreate, UserChange, UserRow, WebhookRow,
    Webhooks,
};
use tokio::sync::{RwLock, watch};

use super::fuse::Fuse;

#[derive(Debug)]
pub(crate) struct KilledStore {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) fuse: Arc<Fuse>,
    /// Whether the answer of a create was about to be written.
    pub(crate) answering: Arc<AtomicBool>,
    /// Whether another server uses the store.
    pub(crate) is_lost: Arc<AtomicBool>,
    /// Locked while no intent to delete reaches the database.
    pub(crate) deletions: Arc<RwLock<()>>,
    /// Whether the database does not answer.
    pub(crate) is_unreachable: Arc<AtomicBool>,
    /// Passed by changes of subscriptions.
    pub(crate) subscriptions: Arc<Gate>,
    /// Writes of webhooks that were refused because the hold is lost.
    pub(crate) refused: Arc<AtomicUsize>,
}

/// Keeps calls waiting while a test has it closed.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    lock: RwLock<()>,
    waiting: watch::Sender<usize>,
}

impl Gate {
    async fn pass(&self) {
        self.waiting.send_modify(|count| *count += 1);
        let _open = self.lock.read().await;
    }

    /// Closes it, until the guard is dropped.
    pub(crate) async fn close(&self) -> tokio::sync::RwLockWriteGuard<'_, ()> {
        self.waiting.send_replace(0);
        self.lock.write().await
    }

    /// Waits until a call has reached it since it was closed.
    pub(crate) async fn reached(&self) {
        let mut waiting = self.waiting.subscribe();
        waiting.wait_for(|count| *count > 0).await.unwrap();
    }
}

impl KilledStore {
    /// Refuses a write of webhooks, as PostgreSQL does, while the hold is lost.
    fn held(&self) -> Result<(), StoreError> {
        let Some(problem) = self.lost_hold() else {
            return Ok(());
        };
        self.refused.fetch_add(1, SeqCst);
        Err(StoreError::Unavailable {
            op: "write",
            problem,
            source: None,
        })
    }
}

/// Makes each call a step.
macro_rules! steps {
    ($trait:ident { $(fn $name:ident($($argument:ident: $type:ty),*) -> $out:ty;)* }) => {
        #[async_trait]
        impl $trait for KilledStore {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$out, StoreError> {
                self.fuse.step(self.inner.$name($($argument),*)).await
            })*
        }
    };
}

#[async_trait]
impl Store for KilledStore {
    async fn instance_id(&self) -> Result<String, StoreError> {
        self.fuse.step(self.inner.instance_id()).await
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.fuse.step(self.inner.check()).await
    }

    fn lost_hold(&self) -> Option<Problem> {
        let lost = [
            (&self.is_lost, Problem::TakenOver),
            (&self.is_unreachable, Problem::Unreachable),
        ];
        let found = lost.into_iter().find(|(is_so, _)| is_so.load(SeqCst));
        found.map(|(_, problem)| problem)
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[async_trait]
impl SandboxChanges for KilledStore {
    async fn all_changes(&self) -> Result<HashMap<SandboxId, Changes>, StoreError> {
        self.fuse.step(self.inner.all_changes()).await
    }

    async fn set_expiry(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        self.fuse.step(self.inner.set_expiry(id, at, tenant)).await
    }

    async fn set_metadata(
        &self,
        id: &SandboxId,
        metadata: &BTreeMap<String, String>,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let write = self.inner.set_metadata(id, metadata, tenant);
        self.fuse.step(write).await
    }

    async fn set_deleted(
        &self,
        id: &SandboxId,
        at: WireTime,
        tenant: Option<&str>,
    ) -> Result<(), StoreError> {
        let _pass = self.deletions.read().await;
        self.fuse.step(self.inner.set_deleted(id, at, tenant)).await
    }
}

steps!(ForeignImports {
    fn imported_files() -> HashMap<SandboxId, ImportedFiles>;
    fn import(id: &SandboxId, import: &ForeignImport) -> ();
});

steps!(SandboxHistory {
    fn finish(entry: &HistoryEntry) -> ();
    fn history(id: &SandboxId) -> Option<HistoryEntry>;
    fn recent_history(tenant: Option<&str>, skip: u32, limit: u32) -> Vec<HistoryEntry>;
    fn image_uses() -> Vec<(String, WireTime)>;
    fn count_history(tenant: Option<&str>, most: u32) -> u32;
    fn prune_history(before: WireTime) -> u64;
});

#[async_trait]
impl CreateRequests for KilledStore {
    async fn set_unanswered(&self, create: &UnansweredCreate) -> Result<(), StoreError> {
        self.fuse.step(self.inner.set_unanswered(create)).await
    }

    async fn set_answered(&self, id: &SandboxId) -> Result<(), StoreError> {
        let marked = async {
            let marked = self.inner.set_answered(id).await;
            self.answering.store(marked.is_ok(), SeqCst);
            marked
        };
        self.fuse.step(marked).await
    }

    async fn set_all_answered(&self, except: &[SandboxId]) -> Result<(), StoreError> {
        self.fuse.step(self.inner.set_all_answered(except)).await
    }

    async fn all_unanswered(&self) -> Result<Vec<UnansweredCreate>, StoreError> {
        self.fuse.step(self.inner.all_unanswered()).await
    }

    async fn claim_key(
        &self,
        claim: &CreateKey,
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError> {
        self.fuse.step(self.inner.claim_key(claim, expired)).await
    }

    async fn free_key(&self, key: &[u8; 32], id: &SandboxId) -> Result<(), StoreError> {
        self.fuse.step(self.inner.free_key(key, id)).await
    }

    async fn create_key(
        &self,
        key: &[u8; 32],
        expired: WireTime,
    ) -> Result<Option<CreateKey>, StoreError> {
        let read = self.inner.create_key(key, expired);
        self.fuse.unless_burnt(read).await
    }

    async fn prune_keys(&self, before: WireTime) -> Result<u64, StoreError> {
        self.fuse.step(self.inner.prune_keys(before)).await
    }
}

steps!(ConsoleSessions {
    fn session_create(session: &SessionRow) -> bool;
    fn session_save(session: &SessionRow) -> ();
    fn session_load(id: &str) -> Option<SessionRow>;
    fn sessions() -> Vec<SessionRow>;
    fn session_delete(id: &str) -> ();
    fn session_prune(before: i64) -> u64;
});

/// No steps: a server asks for the revision once a second, whatever it does otherwise.
#[async_trait]
impl Accounts for KilledStore {
    async fn accounts_revision(&self) -> Result<i64, StoreError> {
        self.inner.accounts_revision().await
    }

    async fn accounts(&self) -> Result<AccountRows, StoreError> {
        self.inner.accounts().await
    }

    async fn add_user(&self, user: &UserRow) -> Result<bool, StoreError> {
        self.inner.add_user(user).await
    }

    async fn change_user(&self, id: &str, change: &UserChange) -> Result<bool, StoreError> {
        self.inner.change_user(id, change).await
    }

    async fn delete_user(&self, id: &str) -> Result<bool, StoreError> {
        self.inner.delete_user(id).await
    }

    async fn add_key(&self, key: &ApiKeyRow) -> Result<(), StoreError> {
        self.inner.add_key(key).await
    }

    async fn revoke_key(&self, id: &str, at: WireTime) -> Result<bool, StoreError> {
        self.inner.revoke_key(id, at).await
    }

    async fn touch_keys(&self, used: &[(String, WireTime)]) -> Result<(), StoreError> {
        self.inner.touch_keys(used).await
    }
}

/// No steps: the server writes them at fixed times, whatever it does otherwise.
#[async_trait]
impl SandboxMetrics for KilledStore {
    async fn put_metrics(&self, stretches: &[MetricStretch]) -> Result<(), StoreError> {
        self.inner.put_metrics(stretches).await
    }

    async fn metrics(&self, id: &SandboxId) -> Result<Vec<MetricStretch>, StoreError> {
        self.inner.metrics(id).await
    }

    async fn prune_metrics(&self, before: i64, alive: &[SandboxId]) -> Result<u64, StoreError> {
        self.inner.prune_metrics(before, alive).await
    }
}

/// No steps: the server writes them at fixed times, whatever it does otherwise.
#[async_trait]
impl SandboxCommands for KilledStore {
    async fn put_commands(
        &self,
        id: &SandboxId,
        commands: &[ReportedCommand],
        most: u32,
    ) -> Result<(), StoreError> {
        self.inner.put_commands(id, commands, most).await
    }

    async fn commands(
        &self,
        id: &SandboxId,
        limit: u32,
    ) -> Result<Vec<ReportedCommand>, StoreError> {
        self.inner.commands(id, limit).await
    }

    async fn prune_commands(
        &self,
        before: i64,
        alive: &[SandboxId],
        most: u64,
    ) -> Result<u64, StoreError> {
        self.inner.prune_commands(before, alive, most).await
    }
}

/// No steps: the trail is written off the path of every act.
#[async_trait]
impl AuditStore for KilledStore {
    async fn append_audit(&self, entries: &[AuditEntry]) -> Result<(), StoreError> {
        self.inner.append_audit(entries).await
    }

    async fn audit(
        &self,
        query: &AuditQuery,
        most: u32,
    ) -> Result<Vec<(AuditPlace, AuditEntry)>, StoreError> {
        self.inner.audit(query, most).await
    }

    async fn prune_audit(&self, before: WireTime, keep: u64, most: u32) -> Result<u64, StoreError> {
        self.inner.prune_audit(before, keep, most).await
    }
}

/// Writes are steps.
#[async_trait]
impl SnapshotStore for KilledStore {
    async fn add_snapshots(&self, snapshots: &[SnapshotRow]) -> Result<u64, StoreError> {
        self.fuse.step(self.inner.add_snapshots(snapshots)).await
    }

    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotRow>, StoreError> {
        self.inner.snapshot(id).await
    }

    async fn snapshots(
        &self,
        query: &SnapshotQuery,
    ) -> Result<(Vec<SnapshotRow>, u64), StoreError> {
        self.inner.snapshots(query).await
    }

    async fn change_snapshot(
        &self,
        id: &str,
        from: SnapshotState,
        change: &SnapshotChange,
    ) -> Result<bool, StoreError> {
        let write = self.inner.change_snapshot(id, from, change);
        self.fuse.step(write).await
    }

    async fn remove_snapshot(&self, id: &str, from: SnapshotState) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.remove_snapshot(id, from)).await
    }

    async fn open_snapshots(&self, after: &str, most: u32) -> Result<Vec<SnapshotRow>, StoreError> {
        self.inner.open_snapshots(after, most).await
    }

    async fn snapshot_states(
        &self,
        ids: &[String],
    ) -> Result<HashMap<String, SnapshotState>, StoreError> {
        self.inner.snapshot_states(ids).await
    }

    async fn snapshot_bytes(&self, of: StoredFor<'_>) -> Result<u64, StoreError> {
        self.inner.snapshot_bytes(of).await
    }

    async fn snapshot_totals(
        &self,
        tenant: Option<&str>,
    ) -> Result<Vec<SnapshotTotal>, StoreError> {
        self.inner.snapshot_totals(tenant).await
    }
}

/// Writes are steps.
#[async_trait]
impl PoolStore for KilledStore {
    async fn add_pool(&self, pool: &PoolRow) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.add_pool(pool)).await
    }

    async fn all_pools(&self) -> Result<Vec<PoolRow>, StoreError> {
        self.inner.all_pools().await
    }

    async fn change_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        change: &PoolChange,
    ) -> Result<bool, StoreError> {
        let write = self.inner.change_pool(tenant, name, change);
        self.fuse.step(write).await
    }

    async fn remove_pool(
        &self,
        tenant: Option<&str>,
        name: &str,
        at: WireTime,
    ) -> Result<bool, StoreError> {
        let write = self.inner.remove_pool(tenant, name, at);
        self.fuse.step(write).await
    }

    async fn add_member(&self, member: &PoolMemberRow) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.add_member(member)).await
    }

    async fn drain_used_members(&self, at: WireTime) -> Result<u64, StoreError> {
        self.fuse.step(self.inner.drain_used_members(at)).await
    }

    async fn all_members(&self) -> Result<Vec<PoolMemberRow>, StoreError> {
        self.inner.all_members().await
    }

    async fn change_member(
        &self,
        id: &SandboxId,
        from: MemberState,
        to: MemberState,
        claim: Option<&str>,
        at: WireTime,
    ) -> Result<bool, StoreError> {
        let write = self.inner.change_member(id, from, to, claim, at);
        self.fuse.step(write).await
    }

    async fn remove_member(&self, id: &SandboxId, from: MemberState) -> Result<bool, StoreError> {
        self.fuse.step(self.inner.remove_member(id, from)).await
    }
}

/// No steps: these are read at the start, or changed by an administrator.
#[async_trait]
impl Webhooks for KilledStore {
    async fn webhooks(&self) -> Result<Vec<WebhookRow>, StoreError> {
        self.inner.webhooks().await
    }

    async fn add_webhook(&self, webhook: &WebhookRow) -> Result<(), StoreError> {
        self.subscriptions.pass().await;
        self.inner.add_webhook(webhook).await
    }

    async fn change_webhook(&self, webhook: &WebhookRow) -> Result<bool, StoreError> {
        self.inner.change_webhook(webhook).await
    }

    async fn delete_webhook(&self, id: &str) -> Result<bool, StoreError> {
        self.subscriptions.pass().await;
        self.inner.delete_webhook(id).await
    }
}

/// Writes are steps. Without a subscription there are none.
#[async_trait]
impl Announcements for KilledStore {
    async fn is_tracking(&self) -> Result<bool, StoreError> {
        self.inner.is_tracking().await
    }

    async fn start_tracking(&self, sandboxes: &[AnnouncedRow]) -> Result<(), StoreError> {
        self.fuse.step(self.inner.start_tracking(sandboxes)).await
    }

    async fn stop_tracking(&self) -> Result<(), StoreError> {
        self.fuse.step(self.inner.stop_tracking()).await
    }

    async fn announced(&self) -> Result<Vec<AnnouncedRow>, StoreError> {
        self.inner.announced().await
    }

    async fn announce(&self, announcement: &Announcement) -> Result<(), StoreError> {
        self.held()?;
        self.fuse.step(self.inner.announce(announcement)).await
    }

    async fn unannounced_ends(&self, limit: u32) -> Result<Vec<HistoryEntry>, StoreError> {
        self.inner.unannounced_ends(limit).await
    }
}

/// The beginning and the end of an attempt are steps.
#[async_trait]
impl Deliveries for KilledStore {
    async fn next_delivery(&self, webhook: &str) -> Result<Option<DeliveryRow>, StoreError> {
        self.inner.next_delivery(webhook).await
    }

    async fn begin_attempt(&self, id: i64) -> Result<bool, StoreError> {
        self.held()?;
        self.fuse.step(self.inner.begin_attempt(id)).await
    }

    async fn end_attempt(&self, id: i64, result: &AttemptResult) -> Result<(), StoreError> {
        self.held()?;
        self.fuse.step(self.inner.end_attempt(id, result)).await
    }

    async fn deliveries(
        &self,
        webhook: &str,
        status: Option<DeliveryStatus>,
        before: Option<i64>,
        limit: u32,
    ) -> Result<Vec<DeliveryRow>, StoreError> {
        self.inner.deliveries(webhook, status, before, limit).await
    }

    async fn redeliver(&self, webhook: &str, id: i64, at: WireTime) -> Result<bool, StoreError> {
        self.inner.redeliver(webhook, id, at).await
    }

    async fn give_up(
        &self,
        webhook: &str,
        error: &str,
        at: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError> {
        self.inner.give_up(webhook, error, at, limit).await
    }

    async fn pending_by_webhook(&self) -> Result<Vec<(String, u64)>, StoreError> {
        self.inner.pending_by_webhook().await
    }

    async fn backlog(&self) -> Result<DeliveryBacklog, StoreError> {
        self.inner.backlog().await
    }

    async fn prune_deliveries(
        &self,
        delivered_before: WireTime,
        dead_before: WireTime,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let pruned = self
            .inner
            .prune_deliveries(delivered_before, dead_before, limit);
        pruned.await
    }
}
