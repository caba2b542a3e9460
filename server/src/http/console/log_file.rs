//! The log of a sandbox as a file.

use axum::{
    Extension,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use osb_protocol::SandboxId;
use osb_service::ErrorChain;

use super::{ConsoleState, session::Admitted};
use crate::sandbox::Error;

/// Most lines of the file: the last ones.
const LINES: usize = 100_000;

/// Sends the end of a sandbox's log, a few MiB at most, each line with its time.
pub(super) async fn download(
    State(state): State<ConsoleState>,
    Extension(admitted): Extension<Admitted>,
    Path(id): Path<SandboxId>,
) -> Response {
    let Some(room) = state.room.log() else {
        let message = "As many logs are read as the server has room for. Try again shortly.";
        return (StatusCode::SERVICE_UNAVAILABLE, message).into_response();
    };
    let service = state.domains.service(&admitted.principal().scope);
    match service.diagnostic_log(&id, LINES, None).await {
        Ok(log) => {
            let name = format!("attachment; filename=\"{}.log\"", id.short());
            let headers = [
                (header::CONTENT_TYPE, "text/plain; charset=utf-8"),
                (header::CONTENT_DISPOSITION, name.as_str()),
            ];
            (headers, room.hold(log.text)).into_response()
        }
        Err(Error::NotFound(_)) => (StatusCode::NOT_FOUND, "No such log.").into_response(),
        Err(error) => (StatusCode::BAD_GATEWAY, ErrorChain(&error).to_string()).into_response(),
    }
}
