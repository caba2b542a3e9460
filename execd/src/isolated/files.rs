//! Files of a session (contract: execd A5): the daemon relays requests to a process inside, which
//! serves them with the routes for the sandbox's own files.

use axum::{
    body::Body,
    extract::{Path, Request, State},
    response::Response,
};
use http::{Method, Uri};
use osb_forward::after_segments;
use osb_protocol::execd::file::Move;
use tracing::warn;

use super::{Isolation, quota, session::Session, store::unavailable};
use crate::{
    error::{ApiError, ApiResult},
    file_worker::{relay::relay, slots::WorkerSlots},
    json, limits,
    view::View,
};

/// Limit of concurrent workers in all sessions.
static WORKERS: WorkerSlots = WorkerSlots::new(limits::FILE_WORKERS);

/// Segments before the route: `v1`, `isolated`, `session` and the id.
const SEGMENTS: usize = 4;

/// Handles every route of files and directories.
pub(super) async fn serve(
    State(isolation): State<Isolation>,
    Path(parameters): Path<Vec<(String, String)>>,
    request: Request,
) -> ApiResult<Response> {
    let id = parameters.iter().find(|(name, _)| name == "id");
    let session = isolation.sessions.get(id.map_or("", |(_, id)| id))?;
    let target: Uri = after_segments(request.uri(), SEGMENTS).into();
    let writes = request.method() != Method::GET;
    let follows = matches!(
        target.path(),
        "/files/download" | "/files/upload" | "/files/permissions" | "/files/replace"
    ) || (target.path() == "/directories" && request.method() == Method::POST);
    let view = session.view(writes, follows);
    if writes && request.method() != Method::DELETE {
        quota::check(&isolation).await?;
    }
    let mut request = match target.path() {
        "/files/mv" => within_one_overlay(request, &view).await?,
        _ => request,
    };
    *request.uri_mut() = match target.path() {
        // One official client needs the counts but does not request them.
        "/files/replace" => Uri::from_static("/files/replace?verbose=true"),
        _ => target,
    };
    forward(&isolation, &session, view, request).await
}

/// Rejects moves between overlays.
async fn within_one_overlay(request: Request, view: &View) -> ApiResult<Request> {
    let (head, body) = request.into_parts();
    let body = json::bytes(body).await?;
    for Move { src, dest } in json::list::<Move>(&body)? {
        let ((from, _), (to, _)) = (view.locate(src.as_ref())?, view.locate(dest.as_ref())?);
        if from != to {
            let message = format!("{src} and {dest} are in different overlays");
            return Err(ApiError::invalid(message));
        }
    }
    Ok(Request::from_parts(head, Body::from(body)))
}

async fn forward(
    isolation: &Isolation,
    session: &Session,
    view: View,
    request: Request,
) -> ApiResult<Response> {
    let over =
        |why: &dyn std::fmt::Display| unavailable(format!("session files unavailable: {why}"));
    let link = session
        .link()
        .await
        .ok_or_else(|| over(&"the session is over"))?;
    let slot = WORKERS.acquire().await?;
    let socket = link.files(view).map_err(|error| over(&error))?;
    let free = async move { drop(slot) };
    let tasks = &isolation.base.tasks;
    let answer = relay(tasks, socket, request, "isolated files", free).await;
    answer.map_err(|error| {
        warn!(id = session.id, %error, "a file worker ended without an answer");
        over(&"its worker ended without an answer")
    })
}
