//! Snapshots for the pages about them, over the service that the REST API calls too.

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use axum::http::StatusCode;
use osb_app::{
    backend::SnapshotBackend,
    error::ConsoleError,
    view::{
        Ancestor, Kin, OFFERED_MAX, OfferedSnapshots, SNAPSHOT_PAGE, SnapshotDetail, SnapshotList,
        SnapshotRow, SnapshotTotals, SnapshotsQuery,
    },
};
use osb_protocol::{
    FieldError, SandboxId,
    error::code,
    lifecycle::{Snapshot, SnapshotState},
};

use super::{
    super::{audited::Noted, error::answer_to},
    ConsoleState,
    for_request::ForRequest,
    memory::Memory,
    refusal::refused,
    session::Admitted,
    users::{Users, kin},
};
use crate::sandbox::{
    Error, Service, SnapshotError, SnapshotListQuery, SnapshotPage, snapshots::NAME_MAX,
};

/// Most ancestors that are looked up.
const ANCESTORS: usize = 8;

/// [`SnapshotBackend`] for one request.
struct SandboxSnapshots {
    service: Service,
    /// The act of the request.
    noted: Noted,
    /// What the request has read.
    memory: Memory,
}

impl ForRequest for Arc<dyn SnapshotBackend> {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        let service = state.domains.service.for_principal(admitted.principal());
        Arc::new(SandboxSnapshots {
            service: service.noting(noted.0.clone()),
            noted,
            memory: Memory::of_request(),
        })
    }
}

impl SandboxSnapshots {
    async fn page(&self, query: &SnapshotsQuery, page: usize) -> Result<SnapshotPage, Error> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let query = SnapshotListQuery {
            sandbox_id: given(&query.sandbox),
            name: given(&query.name),
            states: given(&query.state).into_iter().collect(),
            page,
            page_size: SNAPSHOT_PAGE,
        };
        self.service.list_snapshots(query).await
    }

    async fn list(&self, query: &SnapshotsQuery) -> Result<SnapshotList, Error> {
        let mut shown = query.page.max(1);
        let mut page = self.page(query, shown).await?;
        let last = page.pagination.total_pages.max(1);
        if shown > last {
            shown = last;
            page = self.page(query, shown).await?;
        }
        let users = Users::of_snapshots(&self.service);
        let mut sources = BTreeMap::new();
        let mut rows = Vec::with_capacity(page.items.len());
        for snapshot in page.items {
            let source = match sources.get(&snapshot.sandbox_id) {
                Some(known) => Kin::clone(known),
                None => self.remembered(&snapshot.sandbox_id).await?,
            };
            sources.insert(snapshot.sandbox_id.clone(), source.clone());
            rows.push(row(&users, snapshot, source));
        }
        Ok(SnapshotList {
            rows,
            matching: page.pagination.total_items,
            page: shown,
            totals: self.totals().await?,
        })
    }

    async fn totals(&self) -> Result<SnapshotTotals, Error> {
        let mut totals = SnapshotTotals::default();
        for total in self.service.snapshot_totals().await?.unwrap_or_default() {
            totals.add(total.state, total.count, total.bytes);
        }
        Ok(totals)
    }

    /// A sandbox that exists.
    fn known(&self, id: &SandboxId) -> Option<Kin> {
        self.service.find(id).map(|record| kin(&record))
    }

    /// A sandbox that exists, or did.
    async fn remembered(&self, id: &SandboxId) -> Result<Kin, Error> {
        if let Some(known) = self.known(id) {
            return Ok(known);
        }
        let gone = Kin::gone(id);
        let entry = self.service.history(id).await?;
        let name = entry.and_then(|entry| entry.spec.metadata.get("name").cloned());
        Ok(match name.filter(|name| !name.trim().is_empty()) {
            Some(title) => Kin { title, ..gone },
            None => gone,
        })
    }

    /// The snapshot with this id, if there is one.
    async fn find(&self, id: &str) -> Result<Option<Snapshot>, Error> {
        match self.service.snapshot_by_id(id).await {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(Error::Snapshot(SnapshotError::NotFound(_))) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn detail(&self, id: &str) -> Result<Option<SnapshotDetail>, Error> {
        let Some(snapshot) = self.find(id).await? else {
            return Ok(None);
        };
        let source = self.remembered(&snapshot.sandbox_id).await?;
        let mut next = snapshot.source_snapshot_id.clone();
        let mut ancestors: Vec<Ancestor> = Vec::new();
        while let Some(id) = next.take().filter(|_| ancestors.len() < ANCESTORS) {
            let known = match self.find(&id).await? {
                Some(snapshot) => {
                    next.clone_from(&snapshot.source_snapshot_id);
                    let source = self.remembered(&snapshot.sandbox_id).await?;
                    Some((snapshot, source))
                }
                None => None,
            };
            ancestors.push(Ancestor { id, known });
        }
        let last = ancestors.last().and_then(|last| last.known.as_ref());
        let is_cut = last.is_some_and(|(snapshot, _)| snapshot.source_snapshot_id.is_some());
        Ok(Some(SnapshotDetail {
            row: row(&Users::of_snapshots(&self.service), snapshot, source),
            ancestors,
            is_cut,
        }))
    }

    async fn ready(&self) -> Result<OfferedSnapshots, Error> {
        if self.service.snapshot_totals().await?.is_none() {
            return Ok(OfferedSnapshots::default());
        }
        let query = SnapshotListQuery {
            sandbox_id: None,
            name: None,
            states: vec![SnapshotState::Ready.to_string()],
            page: 1,
            page_size: OFFERED_MAX,
        };
        let page = self.service.list_snapshots(query).await?;
        let snapshots = page.items.into_iter().map(|snapshot| {
            let source = self.known(&snapshot.sandbox_id);
            let source = source.unwrap_or_else(|| Kin::gone(&snapshot.sandbox_id));
            (snapshot, source.title)
        });
        Ok(OfferedSnapshots {
            snapshots: snapshots.collect(),
            is_cut: page.pagination.has_next_page,
        })
    }

    /// Notes how an act ended. Forms are answered with a redirect in any case.
    fn settle<T>(&self, result: &Result<T, Error>) {
        let codes = &self.service.vocabulary().codes;
        let failure = result.as_ref().err();
        self.noted
            .settle(failure.map(|error| answer_to(error, codes)));
    }
}

fn row(users: &Users, snapshot: Snapshot, source: Kin) -> SnapshotRow {
    let (users, user_count) = users.named(&snapshot.id);
    SnapshotRow {
        snapshot,
        source,
        users,
        user_count,
    }
}

#[async_trait]
impl SnapshotBackend for SandboxSnapshots {
    async fn snapshots(&self, query: &SnapshotsQuery) -> Result<SnapshotList, ConsoleError> {
        let name = format!("snapshots/{}", query.url());
        let read = async { self.list(query).await.map_err(refused) };
        self.memory.once(name, Box::pin(read)).await
    }

    async fn snapshot(&self, id: &str) -> Result<Option<SnapshotDetail>, ConsoleError> {
        let read = async { self.detail(id).await.map_err(refused) };
        let name = format!("snapshot/{id}");
        self.memory.once(name, Box::pin(read)).await
    }

    async fn offered(&self) -> Result<OfferedSnapshots, ConsoleError> {
        let read = async { self.ready().await.map_err(refused) };
        self.memory
            .once("snapshots/offered".to_owned(), Box::pin(read))
            .await
    }

    async fn take(&self, of: &SandboxId, name: Option<String>) -> Result<Snapshot, ConsoleError> {
        let length = name.as_deref().map_or(0, |name| name.chars().count());
        if length > NAME_MAX {
            let status = StatusCode::UNPROCESSABLE_ENTITY;
            self.noted.settle(Some((status, code::INVALID_PARAMETER)));
            let rule = format!("must have at most {NAME_MAX} characters");
            return Err(ConsoleError::Invalid {
                problems: vec![FieldError::body("string_too_long", ["name"], rule)],
            });
        }
        let taken = self.service.take_snapshot(of, name).await;
        self.settle(&taken);
        taken.map_err(|error| match error {
            // It is about no field of the form.
            Error::Unsupported { .. } => ConsoleError::Refused {
                message: error.to_string(),
            },
            other => refused(other),
        })
    }

    async fn delete(&self, id: &str) -> Result<(), ConsoleError> {
        let deleted = self.service.delete_snapshot(id).await;
        self.settle(&deleted);
        let Err(error) = deleted else {
            return Ok(());
        };
        let is_used = matches!(&error, Error::Snapshot(SnapshotError::InUse { .. }));
        let error = refused(error);
        Err(match is_used {
            true => Users::of_snapshots(&self.service).named_in(error, id),
            false => error,
        })
    }
}
