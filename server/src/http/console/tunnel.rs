//! `/console/tunnel/{sandbox}/{port}`: a TCP connection to a program of a sandbox, for pages that show
//! what does not speak HTTP, such as a desktop over VNC.

use axum::{
    extract::{Path, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use osb_client::ExecdClient;
use osb_protocol::{SandboxId, execd::pty::close_code};

use super::{
    ConsoleState,
    bridge::{self, Refusal, Visit},
    execd::ExecdError,
};

/// Opens the WebSocket of one connection.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    visit: Visit,
    Path((sandbox, port)): Path<(SandboxId, u16)>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let attach = async move |execd: ExecdClient| {
        let opened = execd.open_tunnel(port).await.map_err(ExecdError::from);
        opened.map_err(|error| Refusal {
            code: match error.status() {
                // An execd without tunnels.
                Some(StatusCode::NOT_FOUND) => close_code::UNSUPPORTED,
                _ => close_code::REFUSED,
            },
            error,
        })
    };
    bridge::open(upgrade, visit, state, sandbox, attach)
}
