//! Forms for browsers without script: each acts, then redirects to a page with a notice.

use std::{collections::HashSet, sync::Arc};

use axum::{
    Form, Router,
    extract::{FromRequest, Path, RawForm, Request, State},
    http::StatusCode,
    response::{IntoResponse, Redirect, Response},
    routing::{MethodRouter, get, post},
};
use osb_app::{
    backend::ConsoleBackend,
    create::{self, CreateForm, Draft},
    deletion::Deletion,
    error::ConsoleError,
    sandbox::{patch_of, rows_of_form},
    sandboxes::run_bulk,
    view::{BulkAct, BulkEnd, BulkResult, Notice, bulk_summary, in_seconds, title},
};
use osb_protocol::{SandboxId, error::code};
use serde::Deserialize;
use tower_sessions::Session;

use super::{super::audited::Noted, ConsoleState, for_request::Backend, pages, session};

/// Address of the list.
const LIST: &str = "/console/sandboxes";
/// Most sandboxes of a bulk action whose reasons a notice has.
const NAMED: usize = 10;

/// Addresses of the forms.
pub(super) fn routes() -> [(&'static str, MethodRouter<ConsoleState>); 12] {
    [
        ("/console/create", post(create_sandbox)),
        ("/console/test", post(start_trial)),
        ("/console/sandboxes/{id}/renew", post(renew)),
        ("/console/sandboxes/{id}/pause", post(pause)),
        ("/console/sandboxes/{id}/resume", post(resume)),
        ("/console/sandboxes/{id}/labels", post(change_labels)),
        (
            "/console/sandboxes/{id}/delete",
            get(ask_to_delete).post(delete),
        ),
        ("/console/sandboxes/bulk/extend", post(extend_all)),
        ("/console/sandboxes/bulk/pause", post(pause_all)),
        ("/console/sandboxes/bulk/resume", post(resume_all)),
        ("/console/sandboxes/bulk/delete", post(delete_all)),
        (
            "/console/sandboxes/bulk/confirm-delete",
            post(ask_to_delete_all),
        ),
    ]
}

/// Routes of the forms.
pub(super) fn router() -> Router<ConsoleState> {
    let add = |router: Router<ConsoleState>, (path, form)| router.route(path, form);
    routes().into_iter().fold(Router::new(), add)
}

/// The domain of the principal who sends the form.
type Domain = Backend<Arc<dyn ConsoleBackend>>;

async fn create_sandbox(
    State(state): State<ConsoleState>,
    Backend(backend): Domain,
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
                &Notice::good(format!("{} is being created", draft.form.title(&id))),
            )
            .await;
            return Redirect::to(&page_of(&id)).into_response();
        }
        Err(ConsoleError::Invalid { problems }) => draft.problems = problems,
        Err(error) => draft.refusal = Some(error.to_string()),
    }
    draft.form.forget_password();
    pages::render_draft(&state, parts, draft).await
}

/// Creates a sandbox that tests this installation. Its page shows the stages; it expires by itself.
async fn start_trial(Backend(backend): Domain, session: Session) -> Redirect {
    let (notice, page) = match create::start_trial(&*backend).await {
        Ok(test) => {
            let news = format!(
                "{} is being created, and expires in a minute",
                test.id.short()
            );
            (Notice::good(news), page_of(&test.id))
        }
        Err(error) => (Notice::bad(error.to_string()), "/console".to_owned()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page)
}

#[derive(Deserialize)]
struct Renewal {
    seconds: i64,
    /// Whether the sandbox may expire earlier than before.
    #[serde(default)]
    shorten: bool,
}

async fn renew(
    Backend(backend): Domain,
    session: Session,
    Path(id): Path<SandboxId>,
    Form(Renewal { seconds, shorten }): Form<Renewal>,
) -> Redirect {
    let renewed = match in_seconds(seconds) {
        Ok(at) => backend.renew(&id, at, shorten).await,
        Err(error) => Err(error),
    };
    let notice = match renewed {
        Ok(at) => {
            let name = name_of(&*backend, &id).await;
            Notice::good(format!("{name} expires at {at}"))
        }
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(&page_of(&id))
}

async fn pause(Backend(backend): Domain, session: Session, Path(id): Path<SandboxId>) -> Redirect {
    let paused = backend.pause(&id).await;
    leave_result(&*backend, &session, &id, paused, "is paused").await
}

async fn resume(Backend(backend): Domain, session: Session, Path(id): Path<SandboxId>) -> Redirect {
    let resumed = backend.resume(&id).await;
    leave_result(&*backend, &session, &id, resumed, "runs again").await
}

/// Changes labels. What is wrong with the rows is in the notice.
async fn change_labels(
    Backend(backend): Domain,
    session: Session,
    Path(id): Path<SandboxId>,
    noted: Noted,
    RawForm(form): RawForm,
) -> Redirect {
    let pairs: Vec<_> = url::form_urlencoded::parse(&form).collect();
    let rows = rows_of_form(pairs.iter().map(|(field, text)| (&**field, &**text)));
    let changed = match patch_of(&rows) {
        Ok(patch) => backend.change_labels(&id, patch).await,
        Err(problems) => {
            noted.settle(Some((
                StatusCode::BAD_REQUEST,
                code::INVALID_METADATA_LABEL,
            )));
            let texts: Vec<_> = problems.into_iter().map(|(_, text)| text).collect();
            Err(ConsoleError::Refused {
                message: texts.join(" "),
            })
        }
    };
    leave_result(&*backend, &session, &id, changed, "has new labels").await
}

/// What a notice calls a sandbox: its title.
async fn name_of(backend: &dyn ConsoleBackend, id: &SandboxId) -> String {
    match backend.sandbox(id).await {
        Ok(detail) => title(&detail.sandbox).to_owned(),
        Err(_) => id.short().to_owned(),
    }
}

/// Leaves the result of an action for the sandbox's page, and leads there.
async fn leave_result(
    backend: &dyn ConsoleBackend,
    session: &Session,
    id: &SandboxId,
    result: Result<(), ConsoleError>,
    done: &str,
) -> Redirect {
    let notice = match result {
        Ok(()) => Notice::good(format!("{} {done}", name_of(backend, id).await)),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(session, &notice).await;
    Redirect::to(&page_of(id))
}

/// Asks whether a sandbox is to be deleted. The page of one that is gone says so.
async fn ask_to_delete(
    State(state): State<ConsoleState>,
    Backend(backend): Domain,
    Path(id): Path<SandboxId>,
    request: Request,
) -> Response {
    let (parts, _) = request.into_parts();
    match backend.sandbox(&id).await {
        Ok(detail) if detail.ended.is_none() => {
            let name = title(&detail.sandbox).to_owned();
            pages::render_deletion(&state, parts, Deletion::One(id, name)).await
        }
        _ => Redirect::to(&page_of(&id)).into_response(),
    }
}

/// Asks whether the selected sandboxes are to be deleted. Those that are gone are left out.
async fn ask_to_delete_all(
    State(state): State<ConsoleState>,
    Backend(backend): Domain,
    session: Session,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let form = Request::from_parts(parts.clone(), body);
    let RawForm(form) = match RawForm::from_request(form, &state).await {
        Ok(form) => form,
        Err(rejection) => return rejection.into_response(),
    };
    let ids: HashSet<SandboxId> = Selected::of(&form).ids.into_iter().collect();
    let rows = backend.sandboxes().into_iter();
    let chosen = rows.filter(|row| ids.contains(row.id()));
    let chosen: Vec<_> = chosen
        .map(|row| (row.id().clone(), title(&row.sandbox).to_owned()))
        .collect();
    if chosen.is_empty() {
        let notice = Notice::bad("No sandbox is selected, or those that were are gone.");
        session::leave_notice(&session, &notice).await;
        return Redirect::to(LIST).into_response();
    }
    pages::render_deletion(&state, parts, Deletion::Several(chosen)).await
}

async fn delete(Backend(backend): Domain, session: Session, Path(id): Path<SandboxId>) -> Redirect {
    let name = name_of(&*backend, &id).await;
    let notice = match backend.delete(&id).await {
        Ok(()) => Notice::good(format!("{name} is being deleted")),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(&session, &notice).await;
    Redirect::to(LIST)
}

/// The form of the selected rows of the list.
#[derive(Default)]
struct Selected {
    ids: Vec<SandboxId>,
    /// Time until the new expiry, in seconds.
    seconds: Option<i64>,
    /// The list on which they were selected, with its filter.
    list: Option<String>,
}

impl Selected {
    fn of(form: &[u8]) -> Self {
        let mut selected = Self::default();
        for (name, value) in url::form_urlencoded::parse(form) {
            match &*name {
                "id" => selected.ids.push(SandboxId::new(value)),
                "seconds" => selected.seconds = value.parse().ok(),
                "list" => selected.list = Some(value.into_owned()),
                _ => {}
            }
        }
        selected
    }
}

async fn extend_all(
    Backend(backend): Domain,
    session: Session,
    RawForm(form): RawForm,
) -> Redirect {
    let Selected { ids, seconds, list } = Selected::of(&form);
    let until = seconds.map(in_seconds).unwrap_or_else(|| {
        Err(ConsoleError::Refused {
            message: "seconds: must be a whole number".to_owned(),
        })
    });
    let results = match until {
        Ok(until) => run_bulk(&*backend, BulkAct::Extend(until), ids).await,
        Err(error) => Err(error),
    };
    leave_results(&session, results, "extended", list).await
}

async fn pause_all(Backend(backend): Domain, session: Session, RawForm(form): RawForm) -> Redirect {
    let Selected { ids, list, .. } = Selected::of(&form);
    let results = run_bulk(&*backend, BulkAct::Pause, ids).await;
    leave_results(&session, results, "paused", list).await
}

async fn resume_all(
    Backend(backend): Domain,
    session: Session,
    RawForm(form): RawForm,
) -> Redirect {
    let Selected { ids, list, .. } = Selected::of(&form);
    let results = run_bulk(&*backend, BulkAct::Resume, ids).await;
    leave_results(&session, results, "resumed", list).await
}

async fn delete_all(
    Backend(backend): Domain,
    session: Session,
    RawForm(form): RawForm,
) -> Redirect {
    let Selected { ids, list, .. } = Selected::of(&form);
    let results = run_bulk(&*backend, BulkAct::Delete, ids).await;
    leave_results(&session, results, "deleted", list).await
}

/// Leaves what a bulk action did for the list, and leads there: to the same filter, if the form names
/// it.
async fn leave_results(
    session: &Session,
    results: Result<Vec<BulkResult>, ConsoleError>,
    done: &str,
    list: Option<String>,
) -> Redirect {
    let notice = match results {
        Ok(results) => notice_of(&results, done),
        Err(error) => Notice::bad(error.to_string()),
    };
    session::leave_notice(session, &notice).await;
    Redirect::to(list.as_deref().filter(|it| is_list(it)).unwrap_or(LIST))
}

/// Whether this is the address of the list with a filter: a form could name any other.
fn is_list(address: &str) -> bool {
    let query = address.strip_prefix(LIST).unwrap_or_default();
    query.starts_with('?') && query.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The summary, with the first of those that were not done.
fn notice_of(results: &[BulkResult], done: &str) -> Notice {
    let mut text = bulk_summary(results.iter().map(|it| &it.end), done);
    let reasons = results.iter().filter_map(|it| match &it.end {
        BulkEnd::Done => None,
        BulkEnd::Skipped(why) | BulkEnd::Failed(why) => Some((it.id.short(), why)),
    });
    for (short, why) in reasons.take(NAMED) {
        text.push_str(&format!(" — {short}: {why}"));
    }
    match results
        .iter()
        .any(|it| matches!(it.end, BulkEnd::Failed(_)))
    {
        true => Notice::bad(text),
        false => Notice::good(text),
    }
}

pub(super) fn page_of(id: &SandboxId) -> String {
    page_in("sandboxes", id.as_str())
}

/// The page of something in a list. Its name is any text that a client sends, so it is escaped.
pub(super) fn page_in(list: &str, name: &str) -> String {
    let name: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("/console/{list}/{name}")
}
