//! The forms about pools, for browsers without script. One that is refused comes back with its problems;
//! the others redirect to a page with a notice.

use std::sync::Arc;

use axum::{
    Form, Router,
    extract::{FromRequest, Path, Request, State},
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use osb_app::{
    backend::PoolBackend,
    deletion::Deletion,
    error::ConsoleError,
    pools::{CapacityForm, PoolDraft, PoolForm},
    view::Notice,
};
use tower_sessions::Session;

use super::{ConsoleState, for_request::Backend, forms, pages, session};

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 3] {
    [
        ("/console/pools", post(create)),
        ("/console/pools/{id}/capacity", post(resize)),
        (
            "/console/pools/{id}/delete",
            get(ask_to_delete).post(delete),
        ),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The pools for the principal who sends the form.
type Pools = Backend<Arc<dyn PoolBackend>>;

async fn create(
    State(state): State<ConsoleState>,
    Backend(pools): Pools,
    session: Session,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), body);
    let form = match Form::<PoolForm>::from_request(request, &state).await {
        Ok(Form(form)) => form,
        Err(rejection) => return rejection.into_response(),
    };
    let (problems, refusal) = match form.submit(&*pools).await {
        Ok(name) => {
            let notice = Notice::good(format!("The pool {name} is added"));
            session::leave_notice(&session, &notice).await;
            return Redirect::to(&page_of(&name)).into_response();
        }
        Err(ConsoleError::Invalid { problems }) => (problems, None),
        Err(error) => (Vec::new(), Some(error.to_string())),
    };
    let draft = PoolDraft {
        form,
        problems,
        refusal,
    };
    pages::render_draft(&state, parts, draft).await
}

async fn resize(
    Backend(pools): Pools,
    session: Session,
    Path(name): Path<String>,
    Form(form): Form<CapacityForm>,
) -> Redirect {
    let notice = match form.submit(&name, &*pools).await {
        Ok(()) => Notice::good("The capacity is changed"),
        Err(ConsoleError::Invalid { problems }) => {
            let problems = problems.iter().map(CapacityForm::problem_text);
            Notice::bad(problems.collect::<Vec<_>>().join(" · "))
        }
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page_of(&name))
}

/// Asks whether a pool is to be deleted. The page of one that is gone says so.
async fn ask_to_delete(
    State(state): State<ConsoleState>,
    Backend(pools): Pools,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match pools.pool(&name).await {
        Ok(Some(detail)) => {
            let deletion = Deletion::Pool {
                name: detail.row.name,
                claimed: detail.row.numbers.claimed,
            };
            pages::render_deletion(&state, parts, deletion).await
        }
        _ => Redirect::to(&page_of(&name)).into_response(),
    }
}

async fn delete(Backend(pools): Pools, session: Session, Path(name): Path<String>) -> Redirect {
    let (notice, page) = match pools.delete(&name).await {
        Ok(()) => (
            Notice::good(format!("The pool {name} is deleted")),
            "/console/pools".to_owned(),
        ),
        Err(error) => (Notice::bad(error.to_string()), page_of(&name)),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page)
}

fn page_of(name: &str) -> String {
    forms::page_in("pools", name)
}
