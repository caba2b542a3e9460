//! Listing, committing and discarding a session's changes.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
};
use osb_protocol::execd::isolated::{IsolatedChangesSettled, IsolatedDiff};
use tracing::info;

use super::{Isolation, commit, diff, overlay::opaque, session::Session, store::unavailable};
use crate::{
    blocking::blocking,
    error::{ApiError, ApiResult},
};

/// Operation on changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Commit,
    Discard,
}

/// `GET /v1/isolated/session/{id}/diff`.
pub(super) async fn get_diff(
    State(isolation): State<Isolation>,
    Path(id): Path<String>,
) -> ApiResult<Json<IsolatedDiff>> {
    let session = isolation.sessions.get(&id)?;
    Ok(Json(of(&session).await?))
}

async fn of(session: &Session) -> ApiResult<IsolatedDiff> {
    let slots = session.slots();
    if slots.is_empty() {
        return Err(ApiError::invalid("session has no upper directory"));
    }
    let opaque = opaque(session.wanted.userns);
    blocking(move || {
        let mut found = IsolatedDiff::default();
        for (overlay, slot) in slots {
            let (path, lower) = (&overlay.path, &overlay.real);
            diff::diff(&slot.upper, lower, path, opaque, &mut found).map_err(|error| {
                ApiError::runtime(format!("error comparing {}: {error}", path.display()))
            })?;
        }
        found
            .changes
            .sort_by(|one, other| one.path.cmp(&other.path));
        Ok(found)
    })
    .await
}

/// `POST /v1/isolated/session/{id}/commit`.
pub(super) async fn commit(
    isolation: State<Isolation>,
    id: Path<String>,
) -> ApiResult<Json<IsolatedChangesSettled>> {
    settle(isolation, id, What::Commit).await
}

/// `POST /v1/isolated/session/{id}/discard`.
pub(super) async fn discard(
    isolation: State<Isolation>,
    id: Path<String>,
) -> ApiResult<Json<IsolatedChangesSettled>> {
    settle(isolation, id, What::Discard).await
}

/// Waits for the current run. Continues when the client disconnects, because a partial operation is
/// useless.
async fn settle(
    State(isolation): State<Isolation>,
    Path(id): Path<String>,
    what: What,
) -> ApiResult<Json<IsolatedChangesSettled>> {
    let session = isolation.sessions.get(&id)?;
    let task = isolation.clone();
    let settled = isolation.base.tasks.spawn("isolated changes", async move {
        let _busy = session.busy();
        let _turn = tokio::select! {
            turn = session.turn.lock() => turn,
            () = session.deleted.cancelled() => return Err(unavailable("session terminated")),
        };
        settled(&task, &session, what).await
    });
    let changes = settled
        .await
        .unwrap_or_else(|_| Err(ApiError::runtime("internal error")))?;
    Ok(Json(IsolatedChangesSettled { changes }))
}

async fn settled(isolation: &Isolation, session: &Arc<Session>, what: What) -> ApiResult<usize> {
    if session.background_active() {
        return Err(ApiError::RunsActive);
    }
    // The result must not miss changes of a running process.
    let found = of(session).await?;
    let max = isolation.sessions.config().diff_max_bytes;
    if what == What::Commit && max > 0 && diff::bytes(&found) > max {
        let message = format!("the changes are larger than diff_max_bytes, which is {max}");
        return Err(ApiError::invalid(message));
    }
    if found.changes.is_empty() {
        return Ok(0);
    }
    let slots = session.slots();
    let opaque = opaque(session.wanted.userns);
    let work = async || {
        blocking(move || {
            let failed = |error: std::io::Error| {
                ApiError::runtime(format!("error applying changes: {error}"))
            };
            if what == What::Commit {
                slots
                    .iter()
                    .try_for_each(|(overlay, slot)| {
                        commit::apply(&slot.upper, &overlay.real, opaque)
                    })
                    .map_err(failed)?;
            }
            // Cleared only after everything was applied, so that the commit can be retried.
            slots
                .iter()
                .try_for_each(|(_, slot)| slot.clear())
                .map_err(failed)
        })
        .await
    };
    let done = session.between(&isolation.base, work).await;
    done.map_err(|error| unavailable(format!("session terminated: {error}")))??;
    info!(
        id = session.id,
        ?what,
        changes = found.changes.len(),
        "changes settled"
    );
    Ok(found.changes.len())
}
