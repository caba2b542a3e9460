//! The terminal bridge: `/console/terminal/{sandbox}?pty=…&since=…&takeover=1&view=1`.
//!
//! The page speaks execd's PTY protocol (contract: execd §9). The bridge attaches to the PTY, which
//! it creates when the page has none, and relays messages unread ([`relay`]). Its own close codes
//! ([`close_code`]) say why the page could not attach.

mod relay;

use std::time::Duration;

use axum::{
    Extension,
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::StatusCode,
    response::Response,
};
use osb_client::execd::{Attach, PtySocket};
use osb_forward::Lease;
use osb_protocol::{
    SandboxId,
    execd::pty::{NewPty, PtyRole, close_code},
};
use serde::Deserialize;
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

/// Longest message of a page, in bytes. Pages send a paste in smaller pieces.
const INPUT_MAX: usize = 1024 * 1024;
/// Output on its way to a page that the page has not shown: as much as it shows in a few frames.
const WINDOW: u64 = 128 * 1024;
/// Longest wait for execd to create and attach a terminal.
const ATTACH: Duration = Duration::from_secs(15);
/// Longest close reason, in bytes (RFC 6455 §5.5).
const REASON_MAX: usize = 123;

/// Query of the page.
#[derive(Debug, Deserialize)]
pub(super) struct AttachQuery {
    /// Id of the PTY; absent: create one.
    pty: Option<String>,
    /// Offset from which earlier output is repeated.
    #[serde(default)]
    since: u64,
    /// 1: take the place of the client that holds the PTY.
    #[serde(default)]
    takeover: u8,
    /// 1: only watch the PTY.
    #[serde(default)]
    view: u8,
}

/// Opens the WebSocket of one terminal.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    session: Session,
    Extension(admitted): Extension<Admitted>,
    (Path(sandbox), Query(query)): (Path<SandboxId>, Query<AttachQuery>),
    lease: Option<Extension<Lease>>,
    Noted(act): Noted,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Some(act) = &act {
        // The WebSocket opens in any case; whether there is a terminal shows later.
        act.defer();
    }
    upgrade
        .max_message_size(INPUT_MAX)
        .max_frame_size(INPUT_MAX)
        .on_upgrade(move |mut page| async move {
            let _held = lease;
            let scope = &admitted.principal().scope;
            let work = serve(&mut page, &state, scope, &sandbox, &query, act);
            let end = session::while_open(&session, &state, &admitted, work).await;
            end.close(&mut page).await;
        })
}

async fn serve(
    page: &mut WebSocket,
    state: &ConsoleState,
    scope: &Scope,
    id: &SandboxId,
    query: &AttachQuery,
    act: Option<Act>,
) {
    let attached = match timeout(ATTACH, attach(state, scope, id, query)).await {
        Ok(attached) => attached,
        Err(late) => Err(ExecdError::from(late).into()),
    };
    if let Some(act) = act {
        let error = attached.as_ref().err().map(|refusal| &refusal.error);
        finish(&act, state, scope, id, error);
    }
    match attached {
        Ok(execd) => relay(page, execd).await,
        Err(Refusal { code, error }) => {
            tracing::debug!(sandbox = %id, code, error = &error as &dyn std::error::Error, "no terminal");
            let close = CloseFrame {
                code,
                reason: close_reason(&error.to_string()).into(),
            };
            // The page may be gone already.
            let _ = page.send(Message::Close(Some(close))).await;
        }
    }
}

/// Records whether a terminal was opened, and in whose sandbox.
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

/// Why there is no terminal, with the close code for the page.
struct Refusal {
    code: u16,
    error: ExecdError,
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

async fn attach(
    state: &ConsoleState,
    scope: &Scope,
    id: &SandboxId,
    query: &AttachQuery,
) -> Result<PtySocket, Refusal> {
    let execd = state.execds.client(id, scope)?;
    let pty = match &query.pty {
        Some(pty) => pty.clone(),
        // A 404 here means an execd without terminals, not a terminal that is gone.
        None => execd
            .create_pty(&NewPty {
                utf8: true,
                ..NewPty::default()
            })
            .await
            .map_err(|error| Refusal {
                code: close_code::REFUSED,
                error: error.into(),
            })?,
    };
    let how = Attach {
        since: query.since,
        takeover: query.takeover == 1,
        role: match query.view {
            1 => PtyRole::Viewer,
            _ => PtyRole::Holder,
        },
        window: Some(WINDOW),
        ..Attach::default()
    };
    let socket = execd.open_pty(&pty, &how).await.map_err(ExecdError::from)?;
    Ok(socket)
}

/// The text, cut to what a close frame holds.
fn close_reason(text: &str) -> &str {
    &text[..text.floor_char_boundary(REASON_MAX)]
}

#[cfg(test)]
mod tests {
    use axum::{
        Json, Router,
        routing::{get, post},
    };
    use futures::StreamExt;
    use osb_protocol::lifecycle::SandboxState;
    use osb_runtime::sim::SimRuntime;
    use serde_json::json;
    use tokio::{net::TcpListener, sync::mpsc};

    use super::{
        super::tests::{Console, closed, closed_with_reason, running},
        *,
    };

    /// An execd with one terminal, which reports when its client is gone.
    fn execd(left: mpsc::Sender<()>) -> Router {
        let attach = async move |upgrade: WebSocketUpgrade| {
            upgrade.on_upgrade(async move |mut shell: WebSocket| {
                let connected =
                    r#"{"type":"connected","session_id":"p","mode":"pty","role":"holder"}"#;
                shell.send(Message::text(connected)).await.unwrap();
                while let Some(Ok(_)) = shell.recv().await {}
                left.send(()).await.unwrap();
            })
        };
        let created = async || (StatusCode::CREATED, r#"{"session_id":"p"}"#);
        Router::new()
            .route("/pty", post(created))
            .route("/pty/p/ws", get(attach))
    }

    #[tokio::test]
    async fn a_logout_takes_the_shell_away() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
        let known = console.service.get(&SandboxId::from("a")).unwrap();
        assert_eq!(known.sandbox.status.state, SandboxState::Running);
        let (left, mut leaves) = mpsc::channel(1);
        console.serve(listener, execd(left));
        let mut page = console.socket("/console/terminal/a").await;
        let first = page.next().await.unwrap().unwrap();
        assert!(first.to_text().unwrap().contains("connected"), "{first}");
        console.post("/console/logout", "").await;
        assert_eq!(closed(page).await, Some(close_code::SIGNED_OUT));
        leaves.recv().await.unwrap();
        // The page's next attempt ends the same way.
        let again = console.socket("/console/terminal/a").await;
        assert_eq!(closed(again).await, Some(close_code::SIGNED_OUT));
    }

    #[tokio::test]
    async fn a_page_learns_why_there_is_no_terminal() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
        let refuse = |status: StatusCode, code: &str, message: &str| {
            let body = json!({ "code": code, "message": message });
            get(async move || (status, Json(body.clone())))
        };
        let long = "ä".repeat(REASON_MAX);
        let execd = Router::new()
            .route(
                "/pty",
                refuse(StatusCode::NOT_FOUND, "NOT_FOUND", "no such route"),
            )
            .route(
                "/pty/held/ws",
                refuse(StatusCode::CONFLICT, "ALREADY_CONNECTED", "held"),
            )
            .route(
                "/pty/broken/ws",
                refuse(StatusCode::INTERNAL_SERVER_ERROR, "RUNTIME_ERROR", &long),
            );
        console.serve(listener, execd);
        let refusal = async |path: &str| {
            let page = console.socket(path).await;
            closed_with_reason(page).await.expect("a close code")
        };
        let (code, _) = refusal("/console/terminal/a").await;
        assert_eq!(code, close_code::REFUSED, "no terminals at all");
        let (code, _) = refusal("/console/terminal/a?pty=gone").await;
        assert_eq!(code, close_code::UNKNOWN_SESSION);
        let (code, reason) = refusal("/console/terminal/a?pty=held").await;
        assert_eq!((code, &*reason), (close_code::HELD, "held"));
        let (code, reason) = refusal("/console/terminal/a?pty=broken").await;
        assert_eq!(code, close_code::REFUSED);
        assert_eq!(reason, "ä".repeat(REASON_MAX / 2), "cut between characters");
        let (code, reason) = refusal("/console/terminal/none").await;
        assert_eq!(
            (code, &*reason),
            (close_code::REFUSED, "sandbox none not found")
        );
    }
}
