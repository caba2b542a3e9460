//! Forms for browsers without script: each acts, then redirects to a page with a notice.

use std::sync::Arc;

use axum::{
    Form, Router,
    extract::{FromRequest, FromRequestParts, Path, Request, State},
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, post},
};
use osb_app::{
    backend::ConsoleBackend,
    create::{CreateForm, Draft},
    error::ConsoleError,
    view::{Notice, in_seconds},
};
use osb_protocol::SandboxId;
use serde::Deserialize;
use tower_sessions::Session;

use super::{
    super::audited::Noted,
    ConsoleState, pages,
    session::{self, Admitted},
};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 5] {
    [
        ("/console/create", post(create)),
        ("/console/sandboxes/{id}/renew", post(renew)),
        ("/console/sandboxes/{id}/pause", post(pause)),
        ("/console/sandboxes/{id}/resume", post(resume)),
        ("/console/sandboxes/{id}/delete", post(delete)),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The domain of the principal who sends the form.
struct Backend(Arc<dyn ConsoleBackend>);

impl FromRequestParts<ConsoleState> for Backend {
    type Rejection = StatusCode;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &ConsoleState,
    ) -> Result<Self, StatusCode> {
        let admitted = parts.extensions.get::<Admitted>();
        let admitted = admitted.ok_or(StatusCode::UNAUTHORIZED)?;
        let noted = Noted::of(&parts.extensions);
        Ok(Self(state.domains.of(admitted.principal(), noted)))
    }
}

async fn create(
    State(state): State<ConsoleState>,
    Backend(backend): Backend,
    session: Session,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let form = match Form::<CreateForm>::from_request(request, &state).await {
        Ok(Form(form)) => form,
        Err(rejection) => return rejection.into_response(),
    };
    let mut draft = Draft {
        form,
        ..Draft::default()
    };
    match draft.form.submit(&*backend).await {
        Ok(id) => {
            session::leave_notice(
                &session,
                &Notice::good(format!("{} is being created", id.short())),
            )
            .await;
            return Redirect::to(&page_of(&id)).into_response();
        }
        Err(ConsoleError::Invalid { problems }) => draft.problems = problems,
        Err(error) => draft.refusal = Some(error.to_string()),
    }
    pages::render_draft(&state, parts, draft).await
}

#[derive(Deserialize)]
struct Renewal {
    seconds: i64,
    /// Whether the sandbox may expire earlier than before.
    #[serde(default)]
    shorten: bool,
}

async fn renew(
    Backend(backend): Backend,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Renewal { seconds, shorten }): Form<Renewal>,
) -> Redirect {
    let renewed = match in_seconds(seconds) {
        Ok(at) => backend.renew(&id, at, shorten).await,
        Err(error) => Err(error),
    };
    let notice = match renewed {
        Ok(at) => Notice::good(format!("{} expires at {at}", id.short())),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page_of(&id))
}

async fn pause(Backend(backend): Backend, session: Session, Path(id): Path<SandboxId>) -> Redirect {
    let paused = backend.pause(&id).await;
    leave_result(&session, &id, paused, "is paused").await
}

async fn resume(
    Backend(backend): Backend,
    session: Session,
    Path(id): Path<SandboxId>,
) -> Redirect {
    let resumed = backend.resume(&id).await;
    leave_result(&session, &id, resumed, "runs again").await
}

/// Leaves the result of an action for the sandbox's page, and leads there.
async fn leave_result(
    session: &Session,
    id: &SandboxId,
    result: Result<(), ConsoleError>,
    done: &str,
) -> Redirect {
    let notice = match result {
        Ok(()) => Notice::good(format!("{} {done}", id.short())),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(session, &notice).await;
    Redirect::to(&page_of(id))
}

async fn delete(
    Backend(backend): Backend,
    session: Session,
    Path(id): Path<SandboxId>,
) -> Redirect {
    let notice = match backend.delete(&id).await {
        Ok(()) => Notice::good(format!("{} is being deleted", id.short())),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to("/console/sandboxes")
}

/// An id is any text that a client sends, so it is escaped.
fn page_of(id: &SandboxId) -> String {
    let id: String = url::form_urlencoded::byte_serialize(id.as_str().as_bytes()).collect();
    format!("/console/sandboxes/{id}")
}
