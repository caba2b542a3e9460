//! Live topics: `/console/live`, one WebSocket per tab. The messages are `osb_app::live`'s.
//!
//! ```text
//! registry ── broadcast ──▶ Hub: one frame per change, kept in a ring ── broadcast ──▶ tabs
//! ```
//!
//! The output and the resource use of single sandboxes have a [`followers`] task each while tabs watch.
//!
//! A change is encoded once for all tabs. A tab that lags behind the broadcast gets a snapshot
//! instead, so slow tabs do not grow the server's memory.

mod changes;
mod commands;
mod events;
mod followers;
mod hub;
mod logs;
mod metrics;
mod overview;
mod published;
mod socket;
#[cfg(test)]
mod tests;
mod usage;

pub(super) use hub::Hub;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{State, WebSocketUpgrade},
    response::Response,
};
use osb_forward::Lease;
use tower_sessions::Session;

use super::{
    ConsoleState,
    session::{self, Admitted},
};

/// Longest command of a tab: one with the ids of a page of the list.
const COMMAND_MAX: usize = 8 * 1024;

/// Opens the WebSocket of one tab.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    session: Session,
    Extension(admitted): Extension<Admitted>,
    lease: Option<Extension<Lease>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let principal = Arc::clone(admitted.principal());
    upgrade
        .max_message_size(COMMAND_MAX)
        .max_frame_size(COMMAND_MAX)
        .on_upgrade(move |socket| async move {
            let _held = lease;
            let mut tab = socket::Tab::new(socket, Arc::clone(&state.hub), principal);
            let end = session::while_open(&session, &state, &admitted, tab.run()).await;
            end.close(&mut tab.socket).await;
        })
}
