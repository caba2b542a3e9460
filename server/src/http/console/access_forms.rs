//! The forms of the page about access, for browsers without script: each acts, then redirects to the
//! page with a notice. A new key is the exception: its secret goes into the answer and nowhere else.

use std::sync::Arc;

use axum::{
    Form, Router,
    extract::{FromRequest, Path, Request, State},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, post},
};
use osb_app::{
    access::{KeyForm, PasswordForm, UserChangeForm, UserForm},
    backend::AccessBackend,
    error::ConsoleError,
    view::Notice,
};
use tower_sessions::Session;

use super::{ConsoleState, for_request::Backend, pages, session};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 7] {
    [
        ("/console/access", post(add_key)),
        ("/console/access/keys/{id}/revoke", post(revoke_key)),
        ("/console/access/users", post(add_user)),
        ("/console/access/users/{id}/change", post(change_user)),
        ("/console/access/users/{id}/password", post(set_password)),
        ("/console/access/users/{id}/delete", post(delete_user)),
        ("/console/access/sessions/{id}/end", post(end_session)),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The accounts for the principal who sends the form.
type Accounts = Backend<Arc<dyn AccessBackend>>;

async fn add_key(
    State(state): State<ConsoleState>,
    Backend(backend): Accounts,
    session: Session,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let form = match Form::<KeyForm>::from_request(request, &state).await {
        Ok(Form(form)) => form,
        Err(rejection) => return rejection.into_response(),
    };
    match form.submit(&*backend).await {
        Ok(issued) => pages::render_issued(&state, parts, issued).await,
        Err(error) => leave(&session, Err(error), "").await.into_response(),
    }
}

async fn revoke_key(
    Backend(backend): Accounts,
    session: Session,
    Path(id): Path<String>,
) -> Redirect {
    let revoked = backend.revoke_key(&id).await;
    leave(&session, revoked, "The API key is revoked.").await
}

async fn add_user(
    Backend(backend): Accounts,
    session: Session,
    Form(form): Form<UserForm>,
) -> Redirect {
    let added = form.submit(&*backend).await;
    leave(&session, added.map(drop), "The user is added.").await
}

async fn change_user(
    Backend(backend): Accounts,
    session: Session,
    Path(id): Path<String>,
    Form(form): Form<UserChangeForm>,
) -> Redirect {
    let changed = form.submit(&id, &*backend).await;
    leave(&session, changed.map(drop), "The user is changed.").await
}

async fn set_password(
    Backend(backend): Accounts,
    session: Session,
    Path(id): Path<String>,
    Form(form): Form<PasswordForm>,
) -> Redirect {
    let changed = form.submit(&id, &*backend).await;
    let done = "The password is set. The sessions of the user are over.";
    leave(&session, changed.map(drop), done).await
}

async fn delete_user(
    Backend(backend): Accounts,
    session: Session,
    Path(id): Path<String>,
) -> Redirect {
    let deleted = backend.delete_user(&id).await;
    leave(&session, deleted, "The user is deleted.").await
}

async fn end_session(
    Backend(backend): Accounts,
    session: Session,
    Path(id): Path<String>,
) -> Redirect {
    let ended = backend.end_session(&id).await;
    leave(&session, ended, "The session is over.").await
}

/// Leaves the result of a form for the page, and leads there.
async fn leave(session: &Session, result: Result<(), ConsoleError>, done: &str) -> Redirect {
    let notice = match result {
        Ok(()) => Notice::good(done),
        Err(ConsoleError::Invalid { problems }) => {
            let problems = problems.iter();
            let problems = problems.map(|problem| format!("{}: {}", problem.field(), problem.msg));
            Notice::bad(problems.collect::<Vec<_>>().join(" · "))
        }
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(session, &notice).await;
    Redirect::to("/console/access")
}
