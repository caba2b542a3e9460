//! Terminals: the handshake and typed frames both ways.

use axum::{
    Json, Router,
    extract::{
        RawQuery, WebSocketUpgrade,
        ws::{CloseFrame, Message, WebSocket},
    },
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use futures::StreamExt;
use osb_client::{
    Error,
    execd::{Attach, PtyFrame},
    protocol::execd::pty::{ClientFrame, NewPty, PtyMode, PtyRole, ServerFrame},
};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{PATIENCE, answer_raw, execd, execd_at};

async fn shell(mut socket: WebSocket) {
    socket
        .send(Message::Binary(
            b"\x03\0\0\0\0\0\0\0\x07old".as_slice().into(),
        ))
        .await
        .unwrap();
    let connected = r#"{"type":"connected","session_id":"p1","mode":"pty","role":"holder"}"#;
    socket
        .send(Message::text(format!("{connected}\n")))
        .await
        .unwrap();
    while let Some(Ok(message)) = socket.recv().await {
        match message {
            Message::Binary(bytes) => {
                assert_eq!(bytes[0], 0);
                let echo = [&[1], &bytes[1..]].concat();
                socket.send(Message::Binary(echo.into())).await.unwrap();
            }
            Message::Text(text) => {
                let frame: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(frame, json!({"type": "resize", "cols": 100, "rows": 30}));
                socket.send(Message::Ping("p".into())).await.unwrap();
                socket
                    .send(Message::text(r#"{"type":"exit","exit_code":-1}"#))
                    .await
                    .unwrap();
                let close = CloseFrame {
                    code: 1000,
                    reason: "process exited".into(),
                };
                socket.send(Message::Close(Some(close))).await.unwrap();
            }
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => {}
        }
    }
}

#[tokio::test]
async fn a_session_from_create_to_exit() {
    let router = Router::new()
        .route(
            "/pty",
            post(async |Json(body): Json<Value>| {
                assert_eq!(body, json!({"cwd": "/w"}));
                (StatusCode::CREATED, Json(json!({"session_id": "p1"})))
            }),
        )
        .route(
            "/pty/{id}",
            get(async || Json(json!({"session_id": "p1", "running": false, "output_offset": 9})))
                .delete(async || ()),
        )
        .route(
            "/pty/{id}/ws",
            get(
                async |headers: HeaderMap, RawQuery(query): RawQuery, upgrade: WebSocketUpgrade| {
                    assert_eq!(headers["x-execd-access-token"], "token");
                    assert_eq!(query.as_deref(), Some("since=7&takeover=1"));
                    upgrade.on_upgrade(shell)
                },
            ),
        );
    let execd = execd(router).await;
    let new = NewPty {
        cwd: Some("/w".to_owned()),
        command: None,
        ..NewPty::default()
    };
    let id = execd.create_pty(&new).await.unwrap();
    assert_eq!(execd.pty_status(&id).await.unwrap().output_offset, 9);
    let how = Attach {
        since: 7,
        takeover: true,
        ..Attach::default()
    };
    let (mut input, mut output) = execd.attach_pty(&id, &how).await.unwrap();
    let mut next = async || {
        timeout(PATIENCE, output.next())
            .await
            .unwrap()
            .map(Result::unwrap)
    };
    let replay = PtyFrame::Replay {
        offset: 7,
        bytes: "old".into(),
    };
    assert_eq!(next().await, Some(replay));
    let connected = ServerFrame::Connected {
        session_id: id.clone(),
        mode: PtyMode::Pty,
        role: PtyRole::Holder,
        window: None,
    };
    assert_eq!(next().await, Some(PtyFrame::Control(connected)));
    input.write(b"ls\n").await.unwrap();
    assert_eq!(next().await, Some(PtyFrame::Stdout("ls\n".into())));
    let resize = ClientFrame::Resize {
        cols: 100,
        rows: 30,
    };
    input.send(&resize).await.unwrap();
    let exit = ServerFrame::Exit { exit_code: -1 };
    assert_eq!(next().await, Some(PtyFrame::Control(exit)));
    let closed = PtyFrame::Closed {
        code: 1000,
        reason: "process exited".to_owned(),
    };
    assert_eq!(next().await, Some(closed));
    assert_eq!(next().await, None);
    execd.delete_pty(&id).await.unwrap();
}

#[tokio::test]
async fn a_held_terminal_is_an_api_error() {
    let held = async || {
        let body = json!({"code": "ALREADY_CONNECTED", "message": "another client"});
        (StatusCode::CONFLICT, Json(body))
    };
    let execd = execd(Router::new().route("/pty/{id}/ws", get(held))).await;
    let error = execd
        .attach_pty("p1", &Attach::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Some("ALREADY_CONNECTED"));
}

#[tokio::test]
async fn an_upgrade_to_something_else_is_refused() {
    let switching = "HTTP/1.1 101 Switching\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                     sec-websocket-accept: bm90IG91cnM=\r\n\r\n";
    let execd = execd_at(&answer_raw(switching).await.to_string());
    let error = execd
        .attach_pty("p1", &Attach::default())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
}
