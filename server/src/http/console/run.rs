//! Runs a command for a page: `/console/run/{sandbox}`, messages in `osb_app::run`.
//!
//! The server is ready, the page sends its order, and the events of execd follow until the command
//! ends. A page that takes no more stops the reads from execd, which keeps the output meanwhile. When
//! the page leaves, the command goes on.

use std::time::Duration;

use axum::{
    Extension,
    extract::{
        Path, State, WebSocketUpgrade,
        ws::{Message, WebSocket},
    },
    http::StatusCode,
    response::Response,
};
use bytes::Bytes;
use futures::{StreamExt, stream::FuturesUnordered};
use osb_app::{
    live::LogStream,
    run::{Ended, RunLine, RunMessage, RunOrder, RunRequest, SECONDS_MAX},
};
use osb_client::{ExecdClient, execd::Events};
use osb_forward::Lease;
use osb_protocol::{
    SandboxId,
    execd::{
        command::RunCommand,
        event::{COMMAND_ERROR, Event, EventKind},
    },
};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tower_sessions::Session;

use super::{
    super::audited::Noted,
    ConsoleState,
    execd::ExecdError,
    session::{self, Admitted},
};
use crate::audit::Act;

/// Longest message of a page, in bytes: what execd takes as a command fits.
const INPUT_MAX: usize = 1024 * 1024;
/// Longest wait for the page's order, and for execd to start the command.
const START: Duration = Duration::from_secs(15);
/// Events that are passed on in one message at most.
const BATCH: usize = 64;
/// Interval of pings to the page.
const PING: Duration = Duration::from_secs(30);
/// Longest silence of a page, which at least answers pings.
const SILENCE: Duration = Duration::from_secs(90);
/// Longest time for the page to take one message; then it is gone.
const STUCK: Duration = Duration::from_secs(60);

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
        Ok(Some(order)) => start(state, admitted, id, &order).await.map(Some),
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
        Ok(Some((execd, events))) => pass_on(page, &execd, events).await,
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
    Ok(RunCommand {
        command: Some(order.command),
        cwd: order.cwd,
        uid: order.uid,
        timeout,
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

/// Passes the events of a command on until it ends or the page leaves.
async fn pass_on(page: &mut WebSocket, execd: &ExecdClient, events: Events) {
    let mut batches = events.ready_chunks(BATCH);
    let mut ping = interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let mut run = None::<String>;
    let mut began = None::<i64>;
    let mut interrupts = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = batches.next() => {
                let mut batch: Vec<_> = batch.unwrap_or_default();
                let is_broken = batch.is_empty() || batch.iter().any(Result::is_err);
                batch.retain(Result::is_ok);
                for event in batch.iter().flatten() {
                    if event.kind == EventKind::Init {
                        run = Some(event.text.clone());
                        began = Some(event.timestamp);
                    }
                }
                let (messages, is_over) = messages(batch.into_iter().flatten(), began);
                for message in messages {
                    if !send(page, &message).await {
                        return;
                    }
                }
                if is_over {
                    return;
                }
                if is_broken {
                    let message = "The connection to the sandbox broke. The command may go on.";
                    let lost = RunMessage::Refused { message: message.to_owned() };
                    let _ = send(page, &lost).await;
                    return;
                }
            }
            message = page.recv() => match message {
                Some(Ok(Message::Text(text))) => {
                    heard = Instant::now();
                    if let (Ok(RunRequest::Interrupt), Some(run)) = (serde_json::from_str(&text), &run)
                        && interrupts.is_empty()
                    {
                        let run = run.clone();
                        interrupts.push(async move { execd.interrupt(&run).await });
                    }
                }
                Some(Ok(Message::Close(_))) | Some(Err(_)) | None => return,
                Some(Ok(_)) => heard = Instant::now(),
            },
            // How it ended is in the events.
            Some(_) = interrupts.next() => {}
            _ = ping.tick() => {
                let is_gone = heard.elapsed() > SILENCE;
                let ping = timeout(STUCK, page.send(Message::Ping(Bytes::new()))).await;
                if is_gone || !matches!(ping, Ok(Ok(()))) {
                    return;
                }
            }
        }
    }
}

/// Events of a command that began at this time, in Unix milliseconds, as messages for the page; and
/// whether the last one ends the command.
fn messages(events: impl Iterator<Item = Event>, began: Option<i64>) -> (Vec<RunMessage>, bool) {
    let mut messages = Vec::new();
    let mut lines = Vec::new();
    for event in events {
        let stream = match event.kind {
            EventKind::Init => {
                messages.push(RunMessage::Started);
                continue;
            }
            EventKind::Stdout => LogStream::Output,
            EventKind::Stderr => LogStream::Error,
            EventKind::Error | EventKind::ExecutionComplete => {
                if !lines.is_empty() {
                    messages.push(RunMessage::Output { lines });
                }
                messages.push(RunMessage::Ended(ended(event, began)));
                return (messages, true);
            }
            EventKind::Ping
            | EventKind::Status
            | EventKind::ExecutionCount
            | EventKind::Result
            | EventKind::Unknown => continue,
        };
        lines.push(RunLine(stream, event.text));
    }
    if !lines.is_empty() {
        messages.push(RunMessage::Output { lines });
    }
    (messages, false)
}

fn ended(event: Event, began: Option<i64>) -> Ended {
    // Only the event of a command that ended well has the time.
    let millis = match (event.execution_time, began) {
        (0, Some(began)) => (event.timestamp - began).max(0),
        (millis, _) => millis,
    };
    let exit_code = event.exit_code();
    let error = event.error.map(|error| {
        let why = error.traceback.unwrap_or_default().join("; ");
        match (why.is_empty(), error.ename == COMMAND_ERROR) {
            (false, true) => why,
            (false, false) => format!("{}: {why}", error.ename),
            (true, _) => format!("{}: {}", error.ename, error.evalue),
        }
    });
    Ended {
        exit_code,
        millis,
        error,
    }
}

/// Sends a message; whether the page took it.
async fn send(page: &mut WebSocket, message: &RunMessage) -> bool {
    let text = serde_json::to_string(message).expect("this serialises: it has no maps");
    let sent = timeout(STUCK, page.send(Message::Text(text.into()))).await;
    matches!(sent, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use axum::{Router, routing::post};
    use futures::SinkExt;
    use osb_protocol::audit::AuditOutcome;
    use osb_runtime::sim::SimRuntime;
    use serde_json::{Value, json};
    use tokio::net::TcpListener;
    use tokio_tungstenite::tungstenite;

    use super::{
        super::tests::{Console, running},
        *,
    };

    fn line(text: &str) -> RunLine {
        RunLine(LogStream::Output, text.to_owned())
    }

    fn event(kind: EventKind, text: &str) -> Event {
        let event = json!({ "type": kind, "text": text, "timestamp": 1 });
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn lines_of_one_batch_are_one_message() {
        let batch = [
            event(EventKind::Init, "id"),
            event(EventKind::Stdout, "a"),
            event(EventKind::Ping, ""),
            event(EventKind::Stdout, "b"),
        ];
        let (sent, is_over) = messages(batch.into_iter(), None);
        let lines = vec![line("a"), line("b")];
        assert_eq!(sent, [RunMessage::Started, RunMessage::Output { lines }]);
        assert!(!is_over);
    }

    #[test]
    fn an_end_has_code_and_reason() {
        let event = json!({
            "type": "error", "timestamp": 45,
            "error": { "ename": "CommandExecError", "evalue": "3", "traceback": ["exit status 3"] }
        });
        let (sent, is_over) = messages(
            std::iter::once(serde_json::from_value(event).unwrap()),
            Some(40),
        );
        let ended = Ended {
            exit_code: Some(3),
            millis: 5,
            error: Some("exit status 3".to_owned()),
        };
        assert_eq!((sent, is_over), (vec![RunMessage::Ended(ended)], true));
    }

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
            let [act] = &left[..] else {
                panic!("{path}: {left:?}");
            };
            assert_eq!(act.action, "command.run");
            assert_eq!((act.outcome, act.status), (outcome, Some(status)));
            assert_eq!(act.object.id, path);
        }
    }
}
