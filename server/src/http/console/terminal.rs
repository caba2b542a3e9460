//! The terminal bridge: `/console/terminal/{sandbox}?pty=…&since=…&takeover=1&view=1`.
//!
//! The page speaks execd's PTY protocol (contract: execd §9). The server attaches it to the PTY, which
//! it creates when the page has none, with `program`, `user` and `cwd`.

use std::time::Duration;

use async_trait::async_trait;
use axum::{
    extract::{Path, Query, State, WebSocketUpgrade},
    http::StatusCode,
    response::Response,
};
use osb_app::{error::ConsoleError, terminal::backend::ShellBackend};
use osb_client::{
    ExecdClient,
    execd::{Attach, ExecdSocket},
};
use osb_protocol::{
    SandboxId,
    error::code,
    execd::pty::{NewPty, PtyRole, close_code},
};
use serde::Deserialize;
use tokio::time::timeout;

use super::{
    super::audited::Noted,
    ConsoleState,
    bridge::{self, Refusal, Visit},
    daemons::{DaemonFailure, Daemons},
    execd::ExecdError,
    for_request::ForRequest,
    session::Admitted,
};

/// Longest time that execd may take to end a shell.
const ANSWER: Duration = Duration::from_secs(10);

/// Output on its way to a page that the page has not shown: as much as it shows in a few frames.
const WINDOW: u64 = 128 * 1024;

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
    /// Program of a new PTY, in the place of execd's default shell.
    program: Option<String>,
    /// User of a new PTY.
    user: Option<String>,
    /// Directory of a new PTY.
    cwd: Option<String>,
}

/// The PTY that a page asks for. execd starts a shell, which a program or `su` replaces.
fn new_pty(query: &AttachQuery) -> Result<NewPty, String> {
    let given = |text: &Option<String>| {
        let text = text.as_deref().map(str::trim);
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let name = |field: &str, text: &Option<String>| match given(text) {
        Some(name) if !is_name(&name) => Err(format!(
            "{field}: only letters, digits and . _ / + -, and not - at the beginning"
        )),
        name => Ok(name),
    };
    let (program, user) = (name("shell", &query.program)?, name("user", &query.user)?);
    let command = match (program, user) {
        (None, None) => None,
        (Some(program), None) => Some(format!("exec {program}")),
        (None, Some(user)) => Some(format!("exec su {user}")),
        // Without a path, `su` would look for the program in the directory.
        (Some(program), Some(user)) => Some(format!(
            "exec su -s \"$(command -v {program} || echo {program})\" {user}"
        )),
    };
    Ok(NewPty {
        cwd: given(&query.cwd),
        command,
        utf8: Some(true),
    })
}

/// Whether a shell takes this as one word that is no option.
fn is_name(text: &str) -> bool {
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"._/+-".contains(&it);
    text.bytes().all(is_plain) && !text.starts_with('-')
}

/// Opens the WebSocket of one terminal.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    visit: Visit,
    (Path(sandbox), Query(query)): (Path<SandboxId>, Query<AttachQuery>),
    upgrade: WebSocketUpgrade,
) -> Response {
    let attach = async move |execd: ExecdClient| attach(&execd, &query).await;
    bridge::open(upgrade, visit, state, sandbox, attach)
}

async fn attach(execd: &ExecdClient, query: &AttachQuery) -> Result<ExecdSocket, Refusal> {
    let pty = match &query.pty {
        Some(pty) => pty.clone(),
        None => {
            let refuse = |error| Refusal {
                code: close_code::REFUSED,
                error,
            };
            let new = new_pty(query).map_err(|message| {
                refuse(ExecdError::Refused(osb_client::ApiError {
                    status: StatusCode::UNPROCESSABLE_ENTITY,
                    code: code::INVALID_PARAMETER.to_owned(),
                    message,
                    request_id: None,
                }))
            })?;
            // A 404 here means an execd without terminals, not a terminal that is gone.
            let created = execd.create_pty(&new).await;
            created.map_err(|error| refuse(error.into()))?
        }
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

/// [`ShellBackend`] over execd.
pub(super) struct Shells {
    daemons: Daemons,
}

impl ForRequest for Shells {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            daemons: Daemons::for_request(state, admitted, noted),
        }
    }
}

impl Shells {
    async fn ended(&self, id: &SandboxId, pty: &str) -> Result<(), DaemonFailure> {
        self.daemons.set_object(id);
        let execd = self.daemons.execd(id)?;
        match timeout(ANSWER, execd.delete_pty(pty)).await? {
            Err(osb_client::Error::Api(refusal)) if refusal.status == StatusCode::NOT_FOUND => {
                Ok(())
            }
            ended => Ok(ended?),
        }
    }
}

#[async_trait]
impl ShellBackend for Shells {
    async fn end(&self, id: &SandboxId, pty: &str) -> Result<(), ConsoleError> {
        let ended = self.ended(id, pty).await;
        self.daemons.settle(&ended);
        ended.map_err(|failure| failure.shown(|error| error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        Json, Router,
        extract::ws::{Message, WebSocket},
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

    fn asked(program: &str, user: &str, cwd: &str) -> AttachQuery {
        let given = |text: &str| Some(text.to_owned());
        AttachQuery {
            pty: None,
            since: 0,
            takeover: 0,
            view: 0,
            program: given(program),
            user: given(user),
            cwd: given(cwd),
        }
    }

    #[test]
    fn a_new_shell_has_the_program_the_user_and_the_directory_of_the_page() {
        for (program, user, command) in [
            ("", " ", None),
            ("zsh", "", Some("exec zsh")),
            ("", "www-data", Some("exec su www-data")),
            (
                "zsh",
                "app",
                Some("exec su -s \"$(command -v zsh || echo zsh)\" app"),
            ),
        ] {
            let new = new_pty(&asked(program, user, "")).unwrap();
            assert_eq!(new.command.as_deref(), command);
            assert_eq!((new.cwd, new.utf8), (None, Some(true)));
        }
        let new = new_pty(&asked("", "", " /srv ")).unwrap();
        assert_eq!(new.cwd.as_deref(), Some("/srv"));
    }

    #[test]
    fn names_are_no_code() {
        for name in ["a b", "-c", "$(id)", "a;b", "a`b`", "a\"b", "ä", "a\nb"] {
            let why = new_pty(&asked(name, "", "")).unwrap_err();
            assert!(why.starts_with("shell: "), "{why}");
            let why = new_pty(&asked("", name, "")).unwrap_err();
            assert!(why.starts_with("user: "), "{why}");
        }
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
        let long = "ä".repeat(bridge::REASON_MAX);
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
        assert_eq!(
            reason,
            "ä".repeat(bridge::REASON_MAX / 2),
            "cut between characters"
        );
        let (code, reason) = refusal("/console/terminal/none").await;
        assert_eq!(
            (code, &*reason),
            (close_code::REFUSED, "sandbox none not found")
        );
        let (code, reason) = refusal("/console/terminal/a?user=a%3Bb").await;
        assert_eq!(code, close_code::REFUSED);
        assert!(reason.starts_with("user: "), "{reason}");
    }
}
