//! Runs a command for a page: `/console/run/{sandbox}`, and shows one that began before:
//! `/console/output/{sandbox}?began=`, in Unix microseconds. The messages are in `osb_app::run`.
//!
//! The server is ready, the page sends its order, and the events of execd follow until the command
//! ends. A page that takes no more stops the reads from execd, which keeps the output meanwhile. When
//! the page leaves, the command goes on.

use std::time::Duration;

use axum::{
    Extension,
    extract::{
        Path, Query, State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    http::StatusCode,
    response::Response,
};
use osb_app::run::{RunMessage, RunOrder, RunRequest, SECONDS_MAX};
use osb_client::{ExecdClient, execd::Events};
use osb_forward::Lease;
use osb_protocol::{
    SandboxId, WireTime,
    execd::{command::RunCommand, history::CommandKind},
};
use serde::Deserialize;
use tokio::time::timeout;
use tower_sessions::Session;

use super::{
    super::audited::Noted,
    ConsoleState,
    command_output::{self, Interrupts, send},
    execd::ExecdError,
    session::{self, Admitted},
};
use crate::{audit::Act, sandbox};

/// Longest message of a page, in bytes: what execd takes as a command fits.
const INPUT_MAX: usize = 1024 * 1024;
/// Longest wait for the page's order, and for execd to start the command.
const START: Duration = Duration::from_secs(15);
/// Longest message of a page that only follows, in bytes: it has nothing to say.
const FOLLOWER_MAX: usize = 1024;

/// Opens the WebSocket of one command.
pub(super) async fn upgrade(
    State(state): State<ConsoleState>,
    session: Session,
    Extension(admitted): Extension<Admitted>,
    Path(sandbox): Path<SandboxId>,
    lease: Option<Extension<Lease>>,
    Noted(act): Noted,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Some(act) = &act {
        // The WebSocket opens in any case; whether a command starts shows later.
        act.defer();
    }
    upgrade
        .max_message_size(INPUT_MAX)
        .max_frame_size(INPUT_MAX)
        .on_upgrade(move |mut page| async move {
            let _held = lease;
            let work = serve(&mut page, &state, &admitted, &sandbox, act);
            let end = session::while_open(&session, &state, &admitted, work).await;
            end.close(&mut page).await;
        })
}

async fn serve(
    page: &mut WebSocket,
    state: &ConsoleState,
    admitted: &Admitted,
    id: &SandboxId,
    act: Option<Act>,
) {
    let scope = &admitted.principal().scope;
    let started = match order(page).await {
        Ok(Some(order)) => {
            let started = start(state, admitted, id, &order).await;
            started.map(|(execd, events)| Some((execd, events, order.background)))
        }
        Ok(None) => Ok(None),
        Err(refusal) => Err(refusal),
    };
    if let Some(act) = act {
        if let Some(tenant) = state.execds.tenant(id, scope) {
            act.set_tenant(tenant.as_deref());
        }
        match &started {
            Ok(Some(_)) => act.finish(StatusCode::SWITCHING_PROTOCOLS.as_u16(), None),
            Ok(None) => act.finish(StatusCode::BAD_REQUEST.as_u16(), None),
            Err(Refusal::Order(_)) => act.finish(StatusCode::UNPROCESSABLE_ENTITY.as_u16(), None),
            Err(Refusal::Execd(error)) => {
                let (status, code) = state.execds.answer_to(error);
                act.finish(status.as_u16(), Some(code));
            }
        }
    }
    match started {
        Ok(Some((execd, events, background))) => {
            let service = state.domains.service(scope);
            service.note_command(id);
            if background {
                command_output::launched(page, &execd, events).await;
            } else {
                command_output::pass_on(page, &execd, events, Interrupts::Obeyed).await;
            }
            // It ended, or the page left.
            service.note_command(id);
        }
        Ok(None) => {}
        Err(refusal) => {
            let message = match refusal {
                Refusal::Order(message) => message,
                Refusal::Execd(error) => error.to_string(),
            };
            // The page may be gone already.
            let _ = send(page, &RunMessage::Refused { message }).await;
        }
    }
}

/// Why no command was started.
enum Refusal {
    /// The order cannot be read.
    Order(String),
    /// There is no execd, or it refuses.
    Execd(ExecdError),
}

/// Asks the page for its order; `None` when it leaves.
async fn order(page: &mut WebSocket) -> Result<Option<RunCommand>, Refusal> {
    if !send(page, &RunMessage::Ready).await {
        return Ok(None);
    }
    let text = loop {
        match timeout(START, page.recv()).await {
            Ok(Some(Ok(Message::Text(text)))) => break text,
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            _ => return Ok(None),
        }
    };
    match serde_json::from_str(&text) {
        Ok(RunRequest::Run(order)) => command(order).map(Some).map_err(Refusal::Order),
        Ok(RunRequest::Interrupt) => Err(Refusal::Order("nothing runs yet".to_owned())),
        Err(error) => Err(Refusal::Order(format!("the order cannot be read: {error}"))),
    }
}

/// The command of an order.
fn command(order: RunOrder) -> Result<RunCommand, String> {
    if order.command.trim().is_empty() {
        return Err("command: must not be empty".to_owned());
    }
    let timeout = match order.seconds {
        None => None,
        Some(seconds @ 1..=SECONDS_MAX) => Some(i64::from(seconds) * 1_000),
        Some(_) => return Err(format!("seconds: must be from 1 to {SECONDS_MAX}")),
    };
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
    if !order.envs.keys().all(|name| is_name(name)) {
        return Err("envs: each variable needs a name without =".to_owned());
    }
    Ok(RunCommand {
        command: Some(order.command),
        cwd: order.cwd,
        uid: order.uid,
        timeout,
        envs: order.envs,
        background: order.background,
        ..RunCommand::default()
    })
}

async fn start(
    state: &ConsoleState,
    admitted: &Admitted,
    id: &SandboxId,
    command: &RunCommand,
) -> Result<(ExecdClient, Events), Refusal> {
    let scope = &admitted.principal().scope;
    let execd = state.execds.client(id, scope).map_err(Refusal::Execd)?;
    let started = match timeout(START, execd.run(command)).await {
        Ok(started) => started.map_err(ExecdError::from),
        Err(late) => Err(late.into()),
    };
    let events = started.map_err(Refusal::Execd)?;
    Ok((execd, events))
}

/// Query of a page that follows a command.
#[derive(Debug, Deserialize)]
pub(super) struct FollowQuery {
    /// When the command began, in Unix microseconds: the list of commands says so.
    began: i64,
}

/// Opens the WebSocket of a command that began before.
pub(super) async fn follow(
    State(state): State<ConsoleState>,
    session: Session,
    Extension(admitted): Extension<Admitted>,
    (Path(sandbox), Query(query)): (Path<SandboxId>, Query<FollowQuery>),
    lease: Option<Extension<Lease>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    upgrade
        .max_message_size(FOLLOWER_MAX)
        .max_frame_size(FOLLOWER_MAX)
        .on_upgrade(move |mut page| async move {
            let _held = lease;
            let work = show(&mut page, &state, &admitted, &sandbox, query.began);
            let end = session::while_open(&session, &state, &admitted, work).await;
            end.close(&mut page).await;
        })
}

async fn show(
    page: &mut WebSocket,
    state: &ConsoleState,
    admitted: &Admitted,
    id: &SandboxId,
    began: i64,
) {
    if let Err(error) = shown(page, state, admitted, id, began).await {
        let message = command_output::why_not(&error);
        // The page may be gone already.
        let _ = send(page, &RunMessage::Refused { message }).await;
    }
}

async fn shown(
    page: &mut WebSocket,
    state: &ConsoleState,
    admitted: &Admitted,
    id: &SandboxId,
    began: i64,
) -> Result<(), ExecdError> {
    let scope = &admitted.principal().scope;
    let none = || sandbox::Error::NoSuchCommand(id.clone());
    let began = WireTime::from_unix_us(began).ok_or_else(none)?;
    let service = state.domains.service(scope);
    let entry = service.reported_command(id, began).await?;
    let run = entry.id.ok_or_else(none)?;
    let execd = state.execds.client(id, scope)?;
    if entry.kind == CommandKind::Background {
        command_output::follow_log(page, &execd, &run, Interrupts::Ignored).await;
    } else {
        let events = timeout(START, execd.events(&run, 0)).await??;
        command_output::pass_on(page, &execd, events, Interrupts::Ignored).await;
    }
    service.note_command(id);
    Ok(())
}

#[cfg(test)]
mod tests {
    use axum::{
        Router,
        routing::{get, post},
    };
    use futures::{SinkExt, StreamExt};
    use osb_protocol::audit::AuditOutcome;
    use osb_runtime::sim::SimRuntime;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite;

    use super::{
        super::tests::{Console, running},
        *,
    };

    #[test]
    fn a_wrong_order_names_its_field() {
        let refuse = |order| command(order).unwrap_err();
        assert!(refuse(RunOrder::default()).starts_with("command: "));
        let order = RunOrder {
            command: "true".to_owned(),
            seconds: Some(0),
            ..RunOrder::default()
        };
        assert!(refuse(order).starts_with("seconds: "));
    }

    /// A page that sends `first`; the messages that it gets.
    async fn dialogue(console: &Console, path: &str, first: &str) -> Vec<Value> {
        let mut page = console.socket(path).await;
        let mut got = Vec::new();
        while let Some(Ok(message)) = page.next().await {
            let tungstenite::Message::Text(text) = message else {
                continue;
            };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["kind"] == "ready" {
                page.send(first.into()).await.unwrap();
            } else {
                got.push(message);
            }
        }
        got
    }

    #[tokio::test]
    async fn a_command_is_run_and_recorded() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sandbox = running("a", listener.local_addr().unwrap().port());
        sandbox.origin.tenant = Some("team".into());
        let console = Console::open_over(SimRuntime::with([sandbox])).await;
        let run = async |body: axum::Json<Value>| {
            assert_eq!(body["command"], "echo a");
            assert_eq!(body["cwd"], "/srv");
            let events = [
                json!({ "type": "init", "text": "id", "timestamp": 1 }),
                json!({ "type": "stdout", "text": "a", "timestamp": 2 }),
                json!({ "type": "execution_complete", "execution_time": 7, "timestamp": 3 }),
            ];
            let text: String = events.iter().map(|event| format!("{event}\n\n")).collect();
            ([("content-type", "text/event-stream")], text)
        };
        console.serve(listener, Router::new().route("/command", post(run)));
        let order = json!({ "op": "run", "command": "echo a", "cwd": "/srv" }).to_string();
        for (path, order, outcome, status, expected) in [
            (
                "a",
                &*order,
                AuditOutcome::Succeeded,
                101,
                json!([
                    { "kind": "started" },
                    { "kind": "output", "lines": [["o", "a"]] },
                    { "kind": "ended", "exit_code": 0, "millis": 7, "error": null },
                ]),
            ),
            (
                "none",
                &*order,
                AuditOutcome::Failed,
                404,
                json!([{ "kind": "refused", "message": "sandbox none not found" }]),
            ),
            (
                "a",
                r#"{"op":"run","command":" "}"#,
                AuditOutcome::Failed,
                422,
                json!([{ "kind": "refused", "message": "command: must not be empty" }]),
            ),
        ] {
            let mut got = Vec::new();
            let left = console.left_by(async {
                got = dialogue(&console, &format!("/console/run/{path}"), order).await;
            });
            let left = left.await;
            assert_eq!(json!(got), expected);
            // Tabs that follow the commands read those of the sandbox at once.
            let sandbox = SandboxId::from(path);
            let noted = timeout(Duration::ZERO, console.service.command_noted(&sandbox)).await;
            assert_eq!(noted.is_ok(), status == 101, "{path}: {status}");
            let [act] = &left[..] else {
                panic!("{path}: {left:?}");
            };
            assert_eq!(act.action, "command.run");
            assert_eq!((act.outcome, act.status), (outcome, Some(status)));
            assert_eq!(act.object.id, path);
        }
    }

    #[tokio::test]
    async fn what_a_command_wrote_is_shown_later() {
        const START: i64 = 1_767_225_600_000_000;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
        let entry = |number: i64, id: &str, kind: &str| {
            let started_at = WireTime::from_unix_us(START + number).unwrap().to_string();
            json!({
                "number": number, "revision": number, "id": id, "kind": kind, "command": "x",
                "started_at": started_at,
            })
        };
        let entries = [
            entry(1, "fore", "foreground"),
            entry(2, "back", "background"),
            entry(3, "gone", "foreground"),
            entry(4, "dropped", "background"),
            entry(5, "forgotten", "background"),
            entry(6, "grows", "background"),
        ];
        let page = json!({ "epoch": 1, "more": false, "entries": entries });
        let events = async || {
            let events = [
                json!({ "type": "init", "text": "fore", "timestamp": 1 }),
                json!({ "type": "stderr", "text": "e", "timestamp": 2 }),
                json!({ "type": "execution_complete", "execution_time": 7, "timestamp": 3 }),
            ];
            let text: String = events.iter().map(|event| format!("{event}\n\n")).collect();
            ([("content-type", "text/event-stream")], text)
        };
        let gone = async || {
            let why = json!({ "code": "GONE", "message": "the events are no longer kept" });
            (StatusCode::GONE, axum::Json(why))
        };
        let status = json!({
            "id": "back", "content": "x", "running": false, "exit_code": 3,
            "started_at": "2026-01-01T00:00:00Z", "finished_at": "2026-01-01T00:00:01Z",
        });
        let logs = async |Query(query): Query<std::collections::HashMap<String, usize>>| {
            let log = "a\nb";
            (
                [("execd-commands-tail-cursor", "3")],
                &log[query["cursor"]..],
            )
        };
        // As execd answers about a log that it dropped.
        let dropped = async || {
            let why = json!({
                "code": "INVALID_REQUEST_BODY",
                "message": "the output of command dropped is no longer kept",
            });
            (StatusCode::BAD_REQUEST, axum::Json(why))
        };
        // A process that the command left behind writes on.
        let growing = async |Query(query): Query<std::collections::HashMap<String, u64>>| {
            let end = query["cursor"] + 2;
            ([("execd-commands-tail-cursor", end.to_string())], "x\n")
        };
        let ended = status.clone();
        let ended = get(async move || axum::Json(ended.clone()));
        let execd = Router::new()
            .route(
                "/commands/history",
                get(async move || axum::Json(page.clone())),
            )
            .route("/command/fore/events", get(events))
            .route("/command/gone/events", get(gone))
            .route(
                "/command/status/back",
                get(async move || axum::Json(status.clone())),
            )
            .route("/command/back/logs", get(logs))
            .route("/command/status/dropped", ended.clone())
            .route("/command/dropped/logs", get(dropped))
            .route("/command/status/grows", ended)
            .route("/command/grows/logs", get(growing));
        console.serve(listener, execd);
        let shown = async |number: i64| {
            let path = format!("/console/output/a?began={}", START + number);
            json!(dialogue(&console, &path, "").await)
        };
        let started = json!({ "kind": "started" });
        let lines = |lines: Value| json!({ "kind": "output", "lines": lines });
        let end = |code: i32, millis: i32| json!({ "kind": "ended", "exit_code": code, "millis": millis, "error": null });
        let fore = json!([started, lines(json!([["e", "e"]])), end(0, 7)]);
        assert_eq!(shown(1).await, fore);
        let (first, last) = (lines(json!([["o", "a"]])), lines(json!([["o", "b"]])));
        assert_eq!(shown(2).await, json!([started, first, last, end(3, 1_000)]));
        let message = "The sandbox no longer keeps the output of this command.";
        let refused = json!([{ "kind": "refused", "message": message }]);
        assert_eq!(shown(3).await, refused);
        assert_eq!(shown(4).await, refused, "the log was dropped");
        assert_eq!(shown(5).await, refused, "execd has forgotten the command");
        let line = lines(json!([["o", "x"]]));
        assert_eq!(shown(6).await, json!([started, line, line, end(3, 1_000)]));
        assert_eq!(shown(9).await, refused, "no such command");
    }

    #[test]
    fn a_variable_needs_a_name() {
        for (name, is_good) in [("A", true), ("", false), ("A=B", false)] {
            let order = RunOrder {
                command: "true".to_owned(),
                envs: [(name.to_owned(), "1".to_owned())].into(),
                background: true,
                ..RunOrder::default()
            };
            match command(order) {
                Ok(command) => assert!(is_good && command.background, "{command:?}"),
                Err(why) => assert!(!is_good && why.starts_with("envs: "), "{name}: {why}"),
            }
        }
    }
}
