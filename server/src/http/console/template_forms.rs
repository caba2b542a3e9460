//! The forms about templates, for browsers without script. The one that adds a template comes back with
//! its problems if it is refused; the other redirects to a page with a notice.

use std::sync::Arc;

use axum::{
    Form, Router,
    extract::{FromRequest, Path, Request, State},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use osb_app::{
    backend::TemplateBackend,
    deletion::Deletion,
    error::ConsoleError,
    templates::{TemplateDraft, TemplateForm},
    view::{Notice, kin_names},
};
use tower_sessions::Session;

use super::{ConsoleState, for_request::Backend, forms, pages, session};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 2] {
    [
        ("/console/templates", post(create)),
        (
            "/console/templates/{id}/delete",
            get(ask_to_delete).post(delete),
        ),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The templates for the principal who sends the form.
type Templates = Backend<Arc<dyn TemplateBackend>>;

async fn create(
    State(state): State<ConsoleState>,
    Backend(templates): Templates,
    session: Session,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let form = match Form::<TemplateForm>::from_request(request, &state).await {
        Ok(Form(form)) => form,
        Err(rejection) => return rejection.into_response(),
    };
    let (problems, refusal) = match form.submit(&*templates).await {
        Ok(id) => {
            let notice = Notice::good("The template is being made");
            session::leave_notice(&session, &notice).await;
            return Redirect::to(&page_of(&id)).into_response();
        }
        Err(ConsoleError::Invalid { problems }) => (problems, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let draft = TemplateDraft {
        form,
        problems,
        refusal,
    };
    pages::render_draft(&state, parts, draft).await
}

/// Asks whether a template is to be deleted. The page of one that is gone says so.
async fn ask_to_delete(
    State(state): State<ConsoleState>,
    Backend(templates): Templates,
    Path(id): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match templates.template(&id).await {
        Ok(Some(detail)) => {
            let row = detail.row;
            let deletion = Deletion::Template {
                title: row.title().to_owned(),
                phase: row.phase,
                users: kin_names(&row.users, row.user_count),
                id: row.id,
            };
            pages::render_deletion(&state, parts, deletion).await
        }
        _ => Redirect::to(&page_of(&id)).into_response(),
    }
}

async fn delete(
    Backend(templates): Templates,
    session: Session,
    Path(id): Path<String>,
) -> Redirect {
    let (notice, page) = match templates.delete(&id).await {
        Ok(()) => (
            Notice::good("The template is deleted"),
            "/console/templates".to_owned(),
        ),
        Err(error) => (Notice::bad(error.to_string()), page_of(&id)),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page)
}

fn page_of(id: &str) -> String {
    forms::page_in("templates", id)
}
