//! The log of a sandbox, and a report of its state, as files.

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use osb_protocol::SandboxId;
use osb_service::ErrorChain;

use super::{ConsoleState, session::Admitted};
use crate::sandbox::Error;

/// Most lines of the file: the last ones.
const LINES: usize = 100_000;
const NO_ROOM: &str = "As many logs are read as the server has room for. Try again shortly.";

/// Lines of the log in a report.
const REPORT_LINES: usize = 1_000;
/// Health checks in a report.
const REPORT_CHECKS: usize = 50;

/// Sends a report: settings, events and the end of the log. Also of a sandbox whose create failed.
pub(super) async fn report(
    State(state): State<ConsoleState>,
    Extension(admitted): Extension<Admitted>,
    Path(id): Path<SandboxId>,
) -> Response {
    let Some(room) = state.room.log(admitted.principal()) else {
        return (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM).into_response();
    };
    let service = state.domains.service(&admitted.principal().scope);
    let report = service.diagnostic_summary(&id, REPORT_LINES, REPORT_CHECKS);
    match report.await {
        Ok(text) => (file(&id, "txt"), room.hold(text)).into_response(),
        Err(Error::NotFound(_)) => (StatusCode::NOT_FOUND, "No such sandbox.").into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, ErrorChain(&error).to_string()).into_response(),
    }
}

/// Headers of a file of text.
fn file(id: &SandboxId, extension: &str) -> [(HeaderName, String); 2] {
    let name = format!("attachment; filename=\"{}.{extension}\"", id.short());
    [
        (header::CONTENT_TYPE, "text/plain; charset=utf-8".to_owned()),
        (header::CONTENT_DISPOSITION, name),
    ]
}

/// Sends the end of a sandbox's log, a few MiB at most, each line with its time.
pub(super) async fn download(
    State(state): State<ConsoleState>,
    Extension(admitted): Extension<Admitted>,
    Path(id): Path<SandboxId>,
) -> Response {
    let Some(room) = state.room.log(admitted.principal()) else {
        return (StatusCode::SERVICE_UNAVAILABLE, NO_ROOM).into_response();
    };
    let service = state.domains.service(&admitted.principal().scope);
    match service.diagnostic_log(&id, LINES, None).await {
        Ok(log) => (file(&id, "log"), room.hold(log.text)).into_response(),
        Err(Error::NotFound(_)) => (StatusCode::NOT_FOUND, "No such log.").into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, ErrorChain(&error).to_string()).into_response(),
    }
}
