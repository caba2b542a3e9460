//! The forms about snapshots, for browsers without script: each acts, then redirects to a page with a
//! notice.

use std::sync::Arc;

use axum::{
    Form, Router,
    extract::{Path, Request, State},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use osb_app::{
    backend::SnapshotBackend,
    deletion::Deletion,
    error::ConsoleError,
    view::{Notice, kin_names, snapshot_name, snapshot_title},
};
use osb_protocol::SandboxId;
use serde::Deserialize;
use tower_sessions::Session;

use super::{ConsoleState, for_request::Backend, forms, pages, session};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 2] {
    [
        ("/console/sandboxes/{id}/snapshot", post(take)),
        (
            "/console/snapshots/{id}/delete",
            get(ask_to_delete).post(delete),
        ),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The snapshots for the principal who sends the form.
type Snapshots = Backend<Arc<dyn SnapshotBackend>>;

#[derive(Deserialize)]
struct Name {
    #[serde(default)]
    name: String,
}

async fn take(
    Backend(snapshots): Snapshots,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Name { name }): Form<Name>,
) -> Redirect {
    let taken = snapshots.take(&id, snapshot_name(&name)).await;
    let notice = match taken {
        Ok(snapshot) => Notice::good(format!(
            "The snapshot {} is being taken",
            snapshot_title(&snapshot)
        )),
        Err(ConsoleError::Invalid { problems }) => {
            let problems = problems.iter();
            let problems = problems.map(|problem| format!("{} {}", problem.field(), problem.msg));
            Notice::bad(problems.collect::<Vec<_>>().join(" · "))
        }
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&forms::page_of(&id))
}

/// Asks whether a snapshot is to be deleted. The page of one that is gone says so.
async fn ask_to_delete(
    State(state): State<ConsoleState>,
    Backend(snapshots): Snapshots,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match snapshots.snapshot(&id).await {
        Ok(Some(detail)) => {
            let row = detail.row;
            let deletion = Deletion::Snapshot {
                title: snapshot_title(&row.snapshot).to_owned(),
                users: kin_names(&row.users, row.user_count),
                id: row.snapshot.id,
            };
            pages::render_deletion(&state, parts, deletion).await
        }
        _ => Redirect::to(&page_of(&id)).into_response(),
    }
}

async fn delete(
    Backend(snapshots): Snapshots,
    session: Session,
    Path(id): Path<String>,
) -> Redirect {
    let (notice, page) = match snapshots.delete(&id).await {
        Ok(()) => (
            Notice::good("The snapshot is deleted"),
            "/console/snapshots".to_owned(),
        ),
        Err(error) => (Notice::bad(error.to_string()), page_of(&id)),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page)
}

fn page_of(id: &str) -> String {
    forms::page_in("snapshots", id)
}
