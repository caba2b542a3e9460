//! Connections of a page to something in a sandbox, over execd: a terminal, or a program's port.
//!
//! Messages are relayed unread ([`relay`]). The bridge's own close codes ([`close_code`]) say why there
//! is no connection.

mod relay;

use std::time::Duration;

use axum::{
    Extension,
    extract::{
        FromRequestParts, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use osb_client::{ExecdClient, execd::ExecdSocket};
use osb_forward::Lease;
use osb_protocol::{SandboxId, execd::pty::close_code};
use tokio::time::timeout;
use tower_sessions::Session;

use self::relay::relay;
use super::{
    super::audited::Noted,
    ConsoleState,
    execd::ExecdError,
    session::{self, Admitted},
};
use crate::{audit::Act, identity::Scope};

/// Longest message of a page, in bytes. Pages send more in pieces.
const INPUT_MAX: usize = 1024 * 1024;
/// Longest wait for execd to attach what is wanted.
const ATTACH: Duration = Duration::from_secs(15);
/// Longest close reason, in bytes (RFC 6455 §5.5).
pub(super) const REASON_MAX: usize = 123;

/// Who asks for a connection.
pub(super) struct Visit {
    session: Session,
    admitted: Admitted,
    /// The place that the server keeps for it.
    lease: Option<Extension<Lease>>,
    /// Its entry in the trail.
    act: Option<Act>,
}

impl FromRequestParts<ConsoleState> for Visit {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &ConsoleState,
    ) -> Result<Self, Self::Rejection> {
        let session = Session::from_request_parts(parts, state).await;
        let admitted = <Extension<Admitted>>::from_request_parts(parts, state).await;
        let Extension(admitted) = admitted.map_err(IntoResponse::into_response)?;
        let lease = <Option<Extension<Lease>>>::from_request_parts(parts, state).await;
        let Ok(Noted(act)) = Noted::from_request_parts(parts, state).await;
        if let Some(act) = &act {
            // The WebSocket opens in any case; whether execd lets it through shows later.
            act.defer();
        }
        Ok(Self {
            session: session.map_err(IntoResponse::into_response)?,
            admitted,
            lease: lease.map_err(IntoResponse::into_response)?,
            act,
        })
    }
}

/// Opens the WebSocket of a page, and relays it to what `attach` gets from the sandbox's execd.
pub(super) fn open<F, A>(
    upgrade: WebSocketUpgrade,
    visit: Visit,
    state: ConsoleState,
    sandbox: SandboxId,
    attach: A,
) -> Response
where
    A: FnOnce(ExecdClient) -> F + Send + 'static,
    F: Future<Output = Result<ExecdSocket, Refusal>> + Send,
{
    let Visit {
        session,
        admitted,
        lease,
        act,
    } = visit;
    upgrade
        .max_message_size(INPUT_MAX)
        .max_frame_size(INPUT_MAX)
        .on_upgrade(move |mut page| async move {
            let _held = lease;
            let scope = &admitted.principal().scope;
            let attached = async {
                let execd = state.execds.client(&sandbox, scope)?;
                match timeout(ATTACH, attach(execd)).await {
                    Ok(attached) => attached,
                    Err(late) => Err(ExecdError::from(late).into()),
                }
            };
            let work = async {
                let attached = attached.await;
                if let Some(act) = act {
                    let error = attached.as_ref().err().map(|refusal| &refusal.error);
                    finish(&act, &state, scope, &sandbox, error);
                }
                serve(&mut page, &sandbox, attached).await;
            };
            let end = session::while_open(&session, &state, &admitted, work).await;
            end.close(&mut page).await;
        })
}

async fn serve(page: &mut WebSocket, id: &SandboxId, attached: Result<ExecdSocket, Refusal>) {
    match attached {
        Ok(execd) => relay(page, execd).await,
        Err(Refusal { code, error }) => {
            tracing::debug!(sandbox = %id, code, error = &error as &dyn std::error::Error, "not connected");
            let close = CloseFrame {
                code,
                reason: close_reason(&error.to_string()).into(),
            };
            // The page may be gone already.
            let _ = page.send(Message::Close(Some(close))).await;
        }
    }
}

/// Records whether the connection was opened, and to whose sandbox.
fn finish(
    act: &Act,
    state: &ConsoleState,
    scope: &Scope,
    id: &SandboxId,
    error: Option<&ExecdError>,
) {
    if let Some(tenant) = state.execds.tenant(id, scope) {
        act.set_tenant(tenant.as_deref());
    }
    match error {
        None => act.finish(StatusCode::SWITCHING_PROTOCOLS.as_u16(), None),
        Some(error) => {
            let (status, code) = state.execds.answer_to(error);
            act.finish(status.as_u16(), Some(code));
        }
    }
}

/// Why there is no connection, with the close code for the page.
pub(super) struct Refusal {
    pub(super) code: u16,
    pub(super) error: ExecdError,
}

impl From<ExecdError> for Refusal {
    fn from(error: ExecdError) -> Self {
        let code = match error.status() {
            Some(StatusCode::NOT_FOUND) => close_code::UNKNOWN_SESSION,
            Some(StatusCode::CONFLICT) => close_code::HELD,
            _ => close_code::REFUSED,
        };
        Self { code, error }
    }
}

/// The text, cut to what a close frame holds.
fn close_reason(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_MAX)]
}
