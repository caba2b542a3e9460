//! The way from the console to a preview with an origin of its own.

use std::{collections::HashSet, num::NonZeroU16, sync::Arc};

use axum::{
    Extension,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use osb_protocol::SandboxId;
use osb_store::Store;

use super::{
    super::{audited::Noted, proxy::Previews},
    ConsoleState,
    session::{self, Admitted},
};

/// Leads the browser to the origin of a port, with a ticket for it.
pub(super) async fn open(
    State(state): State<ConsoleState>,
    Extension(admitted): Extension<Admitted>,
    Path((sandbox, port)): Path<(SandboxId, NonZeroU16)>,
    noted: Noted,
    headers: HeaderMap,
) -> Response {
    let principal = admitted.principal();
    let tenant = state.execds.tenant(&sandbox, &principal.scope);
    let Some(tenant) = tenant else {
        return (StatusCode::NOT_FOUND, "There is no such sandbox.").into_response();
    };
    let Some(previews) = &state.previews else {
        let why = "This server serves no previews with storage: set console.preview_address.";
        return (StatusCode::NOT_IMPLEMENTED, why).into_response();
    };
    noted.set_object(sandbox.as_str(), tenant.as_deref());
    // A link on a foreign page opens nothing.
    let site = headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return (StatusCode::FORBIDDEN, "Open the preview from the console.").into_response();
    }
    let at = (sandbox, port.get());
    match previews.address(at, Arc::clone(principal), admitted.session()) {
        Some(address) => (StatusCode::SEE_OTHER, [(header::LOCATION, address)]).into_response(),
        None => {
            let why = "This port cannot have an origin of its own.";
            (StatusCode::UNPROCESSABLE_ENTITY, why).into_response()
        }
    }
}

/// Ends previews with the session that opened them.
pub(super) fn follow_sessions(previews: Previews, state: &ConsoleState, store: Arc<dyn Store>) {
    let (keys, mut ends) = (Arc::clone(&state.keys), state.logouts.subscribe());
    let stopping = state.tasks.stopping().clone();
    state.tasks.spawn("previews", async move {
        loop {
            let has_ended = tokio::select! {
                () = stopping.cancelled() => return,
                ended = ends.changed() => match ended {
                    Ok(()) => true,
                    Err(_) => return,
                },
                // One may expire, and nothing reports that.
                () = tokio::time::sleep(session::WATCH) => false,
            };
            if !previews.is_used() {
                continue;
            }
            let open = match session::list(&*store, &keys, None).await {
                Ok(open) => open.into_iter().map(|session| session.id).collect(),
                Err(error) if has_ended => {
                    tracing::warn!(%error, "sessions cannot be read: all previews end");
                    HashSet::new()
                }
                Err(error) => {
                    tracing::debug!(%error, "sessions cannot be read");
                    continue;
                }
            };
            previews.retain(&open);
        }
    });
}
