//! Snapshots of sandboxes (contract: lifecycle §9).
//!
//! ```text
//! (accepted) ─▶ Creating ─▶ Ready ──▶ Deleting ─▶ (gone)
//!                   └─────▶ Failed ───────┘
//! ```
//!
//! A row of the store is the snapshot; the runtime keeps the file system under the same id. Every
//! transition changes the row only if it is still in the state that was seen, so that a lost race leaves
//! the newer state.
//!
//! * [`capture`]: takes snapshots in tasks, two at once, and one of each sandbox and tenant.
//! * [`recovery`]: what a crash left half done, and file systems that no row needs.

mod capture;
mod recovery;

use std::time::Duration;

use osb_protocol::{
    Feature, SandboxId,
    lifecycle::{PaginationInfo, SandboxState, Snapshot, SnapshotState, SnapshotStatus},
};
use osb_runtime::{CreateSpec, RuntimeError, Snapshots};
use osb_store::{Outcome, SnapshotChange, SnapshotQuery, SnapshotRow, SnapshotTotal};
use serde_json::json;
use tracing::info;

use self::capture::Capture;
use super::{
    Error, Service, lifecycle::now, quota::Owner, snapshot_error::SnapshotError, too_many::TooMany,
};

pub(super) use self::capture::Captures;

/// Most characters of a name.
pub const NAME_MAX: usize = 1024;
/// Reason of a snapshot that was accepted.
const ACCEPTED: (&str, &str) = ("snapshot_accepted", "Snapshot creation accepted.");
/// Reason of a snapshot that is being removed.
const DELETE_REQUESTED: (&str, &str) =
    ("snapshot_delete_requested", "Snapshot deletion requested.");
/// Attempts to mark a snapshot as deleted while others change it. Each loses only to a transition, and
/// a snapshot has three at most.
const ATTEMPTS: usize = 4;
/// How long the deletion of a snapshot waits for the removal of sandboxes that were created from it.
const REMOVALS_TIME: Duration = Duration::from_secs(20);

/// Which snapshots, and which page of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotListQuery {
    /// Only those of this sandbox.
    pub sandbox_id: Option<String>,
    /// Only those with exactly this name.
    pub name: Option<String>,
    /// Wanted states, compared with case; none means any.
    pub states: Vec<String>,
    /// Page from 1.
    pub page: usize,
    /// Snapshots per page.
    pub page_size: usize,
}

/// One page.
#[derive(Clone, Debug)]
pub struct SnapshotPage {
    /// Newest first.
    pub items: Vec<Snapshot>,
    /// Where it stands.
    pub pagination: PaginationInfo,
}

impl Service {
    /// Accepts a snapshot of a sandbox and returns it while a task takes it. It belongs to the tenant of
    /// the sandbox.
    ///
    /// # Errors
    /// When there is no such sandbox, it does not run or cannot be captured, when several snapshots of it
    /// wait already, when a quota for disk is used up, and when the runtime or the store is away; then no
    /// snapshot exists.
    pub async fn take_snapshot(
        &self,
        sandbox: &SandboxId,
        name: Option<String>,
    ) -> Result<Snapshot, Error> {
        self.note_sandbox_id(sandbox);
        let snapshots = self.snapshots()?;
        let record = self.get(sandbox)?;
        self.note_sandbox(sandbox);
        let state = &record.sandbox.status.state;
        if *state != SandboxState::Running {
            return Err(Error::Snapshot(SnapshotError::SourceState {
                id: sandbox.clone(),
                state: state.to_string(),
            }));
        }
        snapshots.check(sandbox).await?;
        let origin = &record.facts.origin;
        if let Some(full) = self.full_quota(origin.tenant.as_ref()).await? {
            return Err(Error::Snapshot(SnapshotError::DiskFull(full)));
        }
        self.require_hold("take a snapshot")?;
        let at = now();
        let row = SnapshotRow {
            id: uuid::Uuid::new_v4().to_string(),
            sandbox_id: sandbox.clone(),
            name,
            tenant: origin.tenant.as_deref().map(str::to_owned),
            owner: self
                .owner
                .as_ref()
                .map(|owner| Owner::tag(owner).to_string()),
            state: SnapshotState::Creating,
            reason: ACCEPTED.0.to_owned(),
            message: ACCEPTED.1.to_owned(),
            image: None,
            size_bytes: None,
            parent_id: origin.source.snapshot_id().map(str::to_owned),
            created_at: at,
            changed_at: at,
        };
        if let Some(act) = &self.act {
            act.note("snapshotId", json!(row.id));
            if let Some(name) = &row.name {
                act.note("name", json!(name));
            }
        }
        let service = self.clone();
        self.owned("accept a snapshot", async move {
            let _one_at_a_time = service.inner.additions.lock().await;
            service.check_snapshot_number(row.tenant.as_deref()).await?;
            // Before there is a row: one that no task works at is recovered.
            let capture = Capture::begin(&service, &row)?;
            let rows = std::slice::from_ref(&row);
            service.inner.store.add_snapshots(rows).await?;
            info!(snapshot = row.id, sandbox = %row.sandbox_id, "snapshot accepted");
            service.start_capture(row.clone(), capture);
            Ok(shown(row))
        })
        .await
    }

    /// Refuses one more snapshot of a tenant that has as many as it may have, with those that failed.
    async fn check_snapshot_number(&self, tenant: Option<&str>) -> Result<(), Error> {
        let Some(tenant) = tenant else {
            return Ok(());
        };
        let query = SnapshotQuery {
            tenant: Some(tenant.to_owned()),
            ..SnapshotQuery::default()
        };
        let (_, count) = self.inner.store.snapshots(&query).await?;
        let most = self.inner.limits.max_snapshots;
        TooMany::check("snapshots", count, most, "snapshots.max_snapshots")
            .map_err(|full| Error::Snapshot(SnapshotError::TooMany(full)))
    }

    /// One snapshot.
    ///
    /// # Errors
    /// [`SnapshotError::NotFound`], also for one of another tenant.
    pub async fn snapshot_by_id(&self, id: &str) -> Result<Snapshot, Error> {
        Ok(shown(self.snapshot_row(id).await?))
    }

    /// A page of snapshots, newest first.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn list_snapshots(&self, query: SnapshotListQuery) -> Result<SnapshotPage, Error> {
        let (page, page_size) = (query.page, query.page_size);
        let skip = (page - 1).saturating_mul(page_size);
        let query = SnapshotQuery {
            tenant: self.scope.tenant().map(str::to_owned),
            sandbox_id: query.sandbox_id,
            name: query.name,
            states: query.states,
            skip: u64::try_from(skip).unwrap_or(u64::MAX),
            limit: u32::try_from(page_size).unwrap_or(u32::MAX),
        };
        let (rows, total) = self.inner.store.snapshots(&query).await?;
        let total = usize::try_from(total).unwrap_or(usize::MAX);
        Ok(SnapshotPage {
            items: rows.into_iter().map(shown).collect(),
            pagination: PaginationInfo::new(page, page_size, total),
        })
    }

    /// Deletes a snapshot: marks it, then removes the file system, then the row. A repeated call
    /// continues where the one before has failed, and so does the reconciler.
    ///
    /// # Errors
    /// When there is no such snapshot or it is being taken, and when the runtime does not remove it; then
    /// it stays `Deleting`.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), Error> {
        if let Some(act) = &self.act {
            act.set_object(id);
        }
        let row = self.snapshot_row(id).await?;
        self.note_snapshot(&row);
        self.snapshots()?;
        self.available()?;
        self.require_hold("delete a snapshot")?;
        let service = self.clone();
        self.owned("delete a snapshot", async move {
            let id = row.id.clone();
            service.mark_as_deleted(row).await?;
            match service.remove_marked(&id).await {
                // A client that deletes a sandbox and then its snapshot does not expect a conflict.
                Err(Error::Snapshot(SnapshotError::InUse { .. }))
                    if service.await_removals(&id).await =>
                {
                    service.remove_marked(&id).await?;
                }
                other => other?,
            }
            info!(snapshot = id, "snapshot deleted");
            Ok(())
        })
        .await
    }

    async fn mark_as_deleted(&self, mut row: SnapshotRow) -> Result<(), Error> {
        let id = row.id.clone();
        for _ in 0..ATTEMPTS {
            match row.state {
                SnapshotState::Deleting => return Ok(()),
                SnapshotState::Creating => {
                    return Err(Error::Snapshot(SnapshotError::BeingTaken(id)));
                }
                SnapshotState::Ready | SnapshotState::Failed => {}
            }
            let change = transition(SnapshotState::Deleting, DELETE_REQUESTED);
            let store = &self.inner.store;
            if store.change_snapshot(&id, row.state, &change).await? {
                return Ok(());
            }
            row = self.snapshot_row(&id).await?;
        }
        Err(Error::Snapshot(SnapshotError::Contended(id)))
    }

    /// Waits until the sandboxes that were created from a snapshot are gone, if all of them are being
    /// removed. Returns whether they are.
    async fn await_removals(&self, snapshot: &str) -> bool {
        let (records, _) = self.inner.registry.snapshot();
        let users = records
            .iter()
            .filter(|it| it.facts.origin.source.snapshot_id() == Some(snapshot));
        let mut removals = Vec::new();
        for user in users {
            let id = &user.sandbox.id;
            match self.inner.registry.locks(id) {
                Some(_) if !user.facts.is_deleted() => return false,
                Some(locks) => {
                    removals.push(self.start_removal(id.clone(), locks, Outcome::Deleted));
                }
                None => {}
            }
        }
        let removed = async {
            for removal in removals {
                if !matches!(removal.await, Ok(Ok(()))) {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(REMOVALS_TIME, removed)
            .await
            .unwrap_or(false)
    }

    /// Removes what a snapshot that is marked as deleted keeps, and then the snapshot.
    async fn remove_marked(&self, id: &str) -> Result<(), Error> {
        match self.snapshots()?.remove(id).await {
            Ok(()) => {}
            Err(RuntimeError::SnapshotInUse { reason, .. }) => {
                return Err(Error::Snapshot(SnapshotError::InUse {
                    id: id.to_owned(),
                    reason,
                }));
            }
            Err(error) => return Err(error.into()),
        }
        let store = &self.inner.store;
        // One that is gone was removed by a call at the same time.
        store.remove_snapshot(id, SnapshotState::Deleting).await?;
        Ok(())
    }

    /// Refuses a create from a snapshot that cannot be started, in the contract's order.
    pub(super) async fn check_source(&self, spec: &CreateSpec) -> Result<(), Error> {
        let Some(id) = spec.origin.source.snapshot_id() else {
            return Ok(());
        };
        let found = self.inner.store.snapshot(id).await?;
        let found = found.filter(|row| self.scope.contains(row.tenant.as_deref()));
        let id = id.to_owned();
        Err(Error::Snapshot(match found {
            None => SnapshotError::NoSource(id),
            Some(row) if row.state != SnapshotState::Ready => SnapshotError::NotReady {
                id,
                state: row.state,
            },
            Some(row) if row.image.is_none() => SnapshotError::NoImage(id),
            Some(_) => return Ok(()),
        }))
    }

    /// Numbers and sizes of all snapshots by state. `None` if the runtime has none.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn snapshot_totals(&self) -> Result<Option<Vec<SnapshotTotal>>, Error> {
        match self.snapshots() {
            Ok(_) => Ok(Some(self.totals().await?)),
            Err(_) => Ok(None),
        }
    }

    async fn totals(&self) -> Result<Vec<SnapshotTotal>, Error> {
        let tenant = self.scope.tenant();
        Ok(self.inner.store.snapshot_totals(tenant).await?)
    }

    async fn snapshot_row(&self, id: &str) -> Result<SnapshotRow, Error> {
        let row = self.inner.store.snapshot(id).await?;
        let row = row.filter(|row| self.scope.contains(row.tenant.as_deref()));
        row.ok_or_else(|| Error::Snapshot(SnapshotError::NotFound(id.to_owned())))
    }

    fn snapshots(&self) -> Result<&dyn Snapshots, Error> {
        let runtime = &self.inner.runtime;
        runtime.snapshots().ok_or(Error::Unsupported {
            feature: Feature::Snapshots,
            runtime: runtime.kind(),
        })
    }

    /// Notes the snapshot that is about to be deleted.
    fn note_snapshot(&self, row: &SnapshotRow) {
        let Some(act) = &self.act else {
            return;
        };
        act.set_object(&row.id);
        act.set_tenant(row.tenant.as_deref());
        act.note("sandboxId", json!(row.sandbox_id));
        if let Some(name) = &row.name {
            act.note("name", json!(name));
        }
    }
}

fn transition(state: SnapshotState, (reason, message): (&'static str, &str)) -> SnapshotChange {
    SnapshotChange {
        state,
        reason,
        message: message.to_owned(),
        image: None,
        size_bytes: None,
        at: now(),
    }
}

/// What clients see of a row.
fn shown(row: SnapshotRow) -> Snapshot {
    let given = |text: String| (!text.is_empty()).then_some(text);
    Snapshot {
        id: row.id,
        sandbox_id: row.sandbox_id,
        name: row.name,
        status: SnapshotStatus {
            state: row.state,
            reason: given(row.reason),
            message: given(row.message),
            last_transition_at: Some(row.changed_at),
        },
        created_at: row.created_at,
        size_bytes: row.size_bytes,
        source_snapshot_id: row.parent_id,
    }
}
