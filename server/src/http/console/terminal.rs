//! The terminal bridge: `/console/terminal/{sandbox}?pty=…&since=…&takeover=1`.
//!
//! The page speaks the frames of execd's PTY (contract: execd §9); this side finds the sandbox's
//! execd, brings its token, makes a PTY when the page has none, and passes frames both ways. The
//! token and execd's address never reach the browser.
//!
//! Nothing is buffered here: a side that is slow holds up the other, and execd holds up the shell.
//! The bridge's own close codes tell the page why it could not attach:
//!
//! | Code | Why |
//! |---|---|
//! | 4400 | it cannot be opened; the reason says why |
//! | 4401 | nobody is logged in (any more); [`session`] says it |
//! | 4404 | execd does not know this PTY (any more) |
//! | 4409 | another page holds this PTY |

use std::time::Duration;

use axum::{
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::StatusCode,
    response::Response,
};
use bytes::{BufMut, Bytes, BytesMut};
use futures::{SinkExt, Stream, StreamExt};
use osb_client::{
    ExecdClient,
    execd::{Attach, PtyFrame, PtyInput, PtyOutput},
};
use osb_protocol::{
    SandboxId,
    execd::pty::{ClientFrame, NewPty, REPLAY, STDERR, STDIN, STDOUT},
    headers::EXECD_ACCESS_TOKEN,
    lifecycle::Endpoint,
};
use secrecy::ExposeSecret;
use serde::Deserialize;
use tokio::time::timeout;
use tower_sessions::Session;

use super::{ConsoleState, session};
use crate::sandbox::Service;

/// Longest message of a page: a paste.
const INPUT_MAX: usize = 1024 * 1024;
/// Longest wait for execd to take or give a terminal.
const ATTACH: Duration = Duration::from_secs(15);
/// A page that takes nothing for this long is gone; its shell goes on.
const STUCK: Duration = Duration::from_secs(60);
/// Longest close reason (RFC 6455 §5.5: 123 bytes).
const REASON_MAX: usize = 120;

/// What the page asks for.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    pty: Option<String>,
    #[serde(default)]
    since: u64,
    #[serde(default)]
    takeover: u8,
}

/// Opens the WebSocket of one terminal.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    session: Session,
    Path(sandbox): Path<SandboxId>,
    Query(wanted): Query<Wanted>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade
        .max_message_size(INPUT_MAX)
        .max_frame_size(INPUT_MAX)
        .on_upgrade(move |mut page| async move {
            let work = serve(&mut page, &state, &sandbox, &wanted);
            let end = session::while_open(&session, &state, work).await;
            end.tell(&mut page).await;
        })
}

async fn serve(page: &mut WebSocket, state: &ConsoleState, sandbox: &SandboxId, wanted: &Wanted) {
    let attached = timeout(ATTACH, attach(state, sandbox, wanted));
    let attached = attached
        .await
        .unwrap_or_else(|_| Err(Refusal::other("execd does not answer")));
    match attached {
        Ok((input, output)) => relay(page, input, output).await,
        Err(Refusal { code, reason }) => {
            let reason = reason
                .chars()
                .take(REASON_MAX)
                .filter(char::is_ascii)
                .collect::<String>();
            let close = CloseFrame {
                code,
                reason: reason.into(),
            };
            // The page may be gone already.
            let _ = page.send(Message::Close(Some(close))).await;
        }
    }
}

/// Why there is no terminal.
struct Refusal {
    code: u16,
    reason: String,
}

impl Refusal {
    fn other(reason: impl Into<String>) -> Self {
        Self {
            code: 4400,
            reason: reason.into(),
        }
    }
}

impl From<osb_client::Error> for Refusal {
    fn from(error: osb_client::Error) -> Self {
        let code = match error.status() {
            Some(StatusCode::NOT_FOUND) => 4404,
            Some(StatusCode::CONFLICT) => 4409,
            _ => 4400,
        };
        Self {
            code,
            reason: error.to_string(),
        }
    }
}

async fn attach(
    state: &ConsoleState,
    sandbox: &SandboxId,
    wanted: &Wanted,
) -> Result<(PtyInput, PtyOutput), Refusal> {
    let execd = execd(&state.service, state.http.clone(), sandbox)?;
    let pty = match &wanted.pty {
        Some(pty) => pty.clone(),
        // A 404 here is an execd without terminals, not a terminal that is gone.
        None => execd
            .create_pty(&NewPty::default())
            .await
            .map_err(|error| Refusal::other(error.to_string()))?,
    };
    let how = Attach {
        since: wanted.since,
        takeover: wanted.takeover == 1,
        ..Attach::default()
    };
    Ok(execd.attach_pty(&pty, &how).await?)
}

fn execd(
    service: &Service,
    http: reqwest::Client,
    sandbox: &SandboxId,
) -> Result<ExecdClient, Refusal> {
    let execd = service
        .execd(sandbox)
        .map_err(|error| Refusal::other(error.to_string()))?;
    let token = execd.token.map(|token| token.expose_secret().to_owned());
    let endpoint = Endpoint {
        endpoint: execd.authority,
        headers: token
            .map(|token| (EXECD_ACCESS_TOKEN.to_owned(), token))
            .into_iter()
            .collect(),
    };
    Ok(ExecdClient::with_http(http, "http", &endpoint)?)
}

/// Passes frames until either side ends.
async fn relay(page: &mut WebSocket, mut input: PtyInput, mut output: PtyOutput) {
    let (mut to_page, mut from_page) = page.split();
    let down = async {
        while let Some(Ok(frame)) = output.next().await {
            let (message, is_last) = for_page(frame);
            match timeout(STUCK, to_page.send(message)).await {
                Ok(Ok(())) if !is_last => {}
                _ => return,
            }
        }
    };
    let up = async { while pass_input(&mut from_page, &mut input).await.is_some() {} };
    tokio::select! {
        () = down => {}
        () = up => {}
    }
    // Either may be closed already.
    let _ = to_page.close().await;
    let _ = input.close().await;
}

/// One message of the page; `None` at the end.
async fn pass_input(
    from_page: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    input: &mut PtyInput,
) -> Option<()> {
    match from_page.next().await?.ok()? {
        Message::Binary(bytes) => match bytes.split_first() {
            Some((&STDIN, typed)) => input.write(typed).await.ok(),
            _ => Some(()),
        },
        Message::Text(text) => match serde_json::from_str::<ClientFrame>(&text) {
            Ok(frame) => input.send(&frame).await.ok(),
            Err(_) => Some(()),
        },
        Message::Close(_) => None,
        Message::Ping(_) | Message::Pong(_) => Some(()),
    }
}

/// A frame of execd as the page reads it, and whether it is the last.
fn for_page(frame: PtyFrame) -> (Message, bool) {
    match frame {
        PtyFrame::Stdout(bytes) => (tagged(STDOUT, &[], &bytes), false),
        PtyFrame::Stderr(bytes) => (tagged(STDERR, &[], &bytes), false),
        PtyFrame::Replay { offset, bytes } => {
            (tagged(REPLAY, &offset.to_be_bytes(), &bytes), false)
        }
        PtyFrame::Control(frame) => {
            let text = serde_json::to_string(&frame).unwrap_or_default();
            (Message::Text(text.into()), false)
        }
        // 1005 stands for no code and must not be sent (RFC 6455 §7.4.1).
        PtyFrame::Closed {
            code: 1005 | 1006, ..
        } => (Message::Close(None), true),
        PtyFrame::Closed { code, reason } => (
            Message::Close(Some(CloseFrame {
                code,
                reason: reason.into(),
            })),
            true,
        ),
    }
}

fn tagged(tag: u8, head: &[u8], data: &Bytes) -> Message {
    let mut frame = BytesMut::with_capacity(1 + head.len() + data.len());
    frame.put_u8(tag);
    frame.put_slice(head);
    frame.put_slice(data);
    Message::Binary(frame.freeze())
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        routing::{get, post},
    };
    use osb_app::live::CLOSE_SIGNED_OUT;
    use osb_protocol::{WireTime, lifecycle::SandboxState};
    use osb_runtime::{Address, Observed, Origin, Phase, Ports, Source, Status, sim::SimRuntime};
    use tokio::{net::TcpListener, sync::mpsc};

    use super::{
        super::tests::{Console, closed},
        *,
    };

    /// A sandbox that runs, with its execd at this port.
    fn sandbox(execd: u16) -> Observed {
        let now = WireTime::from_unix_ms(osb_app::browser::now_ms()).unwrap();
        let address = Address {
            ports: Ports {
                execd: Some(execd),
                http: None,
            },
            ..Address::default()
        };
        Observed {
            origin: Origin::new("a", Source::Image("debian:12".into()), now),
            status: Status {
                address,
                ..Status::new(Phase::Running, now)
            },
        }
    }

    /// An execd with one terminal, which says when that is left alone.
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
        let console = Console::open_over(SimRuntime::with([sandbox(port)])).await;
        let known = console.service.get(&SandboxId::from("a")).unwrap();
        assert_eq!(known.sandbox.status.state, SandboxState::Running);
        let (left, mut leaves) = mpsc::channel(1);
        console.serve(listener, execd(left));
        let mut page = console.socket("/console/terminal/a").await;
        let first = page.next().await.unwrap().unwrap();
        assert!(first.to_text().unwrap().contains("connected"), "{first}");
        console.post("/console/logout", "").await;
        assert_eq!(closed(page).await, Some(CLOSE_SIGNED_OUT));
        leaves.recv().await.unwrap();
        // The page's next attempt is told the same, and no shell is looked for.
        let again = console.socket("/console/terminal/a").await;
        assert_eq!(closed(again).await, Some(CLOSE_SIGNED_OUT));
    }

    #[test]
    fn frames_reach_the_page_as_execd_sent_them() {
        let replay = PtyFrame::Replay {
            offset: 5,
            bytes: Bytes::from_static(b"hi"),
        };
        let want = Bytes::from_static(b"\x03\0\0\0\0\0\0\0\x05hi");
        assert_eq!(for_page(replay), (Message::Binary(want), false));
        let data = PtyFrame::Stdout(Bytes::from_static(b"x"));
        assert_eq!(
            for_page(data),
            (Message::Binary(Bytes::from_static(b"\x01x")), false)
        );
        let none = PtyFrame::Closed {
            code: 1005,
            reason: String::new(),
        };
        assert_eq!(for_page(none), (Message::Close(None), true));
    }
}
