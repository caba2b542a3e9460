//! Commands: streams in chunks of any size, and failing runs.

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{Path, RawQuery},
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::{get, post},
};
use futures::{StreamExt, stream};
use osb_client::{
    Error, ExecdClient,
    protocol::execd::{command::RunCommand, event::EventKind},
};
use serde_json::{Value, json};

use crate::support::{answer_raw, execd, execd_at};

const STREAM: [(header::HeaderName, &str); 1] = [(header::CONTENT_TYPE, "text/event-stream")];

const FAILING: &str = "{\"type\":\"init\",\"text\":\"c1\",\"timestamp\":1}\n\n\
    {\"type\":\"ping\",\"text\":\"pong\",\"timestamp\":1}\n\n\
    {\"type\":\"stdout\",\"text\":\"a\",\"timestamp\":2}\n\n\
    {\"type\":\"stdout\",\"text\":\"\\n\",\"timestamp\":2}\n\n\
    {\"type\":\"stderr\",\"text\":\"ü\u{2028}\",\"timestamp\":2,\"seq\":4}\n\n\
    {\"type\":\"stdout\",\"text\":\"b\",\"timestamp\":2}\n\n\
    {\"type\":\"error\",\"timestamp\":3,\"error\":{\"ename\":\"CommandExecError\",\"evalue\":\"3\",\
    \"traceback\":[\"exit status 3\"]}}\n\n";

fn command(text: &str) -> RunCommand {
    RunCommand {
        command: Some(text.to_owned()),
        ..RunCommand::default()
    }
}

/// An execd whose runs answer with `text`, sent `size` bytes at a time.
async fn streaming(text: &'static str, size: usize) -> ExecdClient {
    let run = async move |headers: HeaderMap, Json(body): Json<Value>| {
        assert_eq!(headers["accept"], "text/event-stream");
        assert_eq!(headers["x-execd-access-token"], "token");
        assert_eq!(body, json!({"command": "x", "background": false}));
        let chunks = text.as_bytes().chunks(size).map(Bytes::from_static);
        let chunks: Vec<_> = chunks.map(Ok::<_, std::io::Error>).collect();
        (STREAM, Body::from_stream(stream::iter(chunks)))
    };
    execd(Router::new().route("/command", post(run))).await
}

#[tokio::test]
async fn a_run_is_collected_however_its_stream_is_cut() {
    for size in [1, 2, 7, 64, FAILING.len()] {
        let execd = streaming(FAILING, size).await;
        let output = execd.run_to_end(&command("x")).await.unwrap();
        assert_eq!(output.id.as_deref(), Some("c1"));
        assert_eq!(output.stdout, "a\n\nb");
        assert_eq!(output.stderr, "ü\u{2028}");
        assert_eq!(output.exit_code, Some(3));
        assert_eq!(output.error.unwrap().ename, "CommandExecError");
        assert!(output.ended && !output.truncated);
    }
}

#[tokio::test]
async fn a_run_without_end_has_no_exit_code() {
    let execd = streaming("{\"type\":\"init\",\"text\":\"c\",\"timestamp\":1}\n\n", 9).await;
    let output = execd.run_to_end(&command("x")).await.unwrap();
    assert_eq!((output.exit_code, output.ended), (None, false));
}

#[tokio::test]
async fn events_come_before_the_stream_ends() {
    let run = async || {
        let first = Bytes::from_static(b"{\"type\":\"init\",\"text\":\"c\",\"timestamp\":1}\n\n");
        let never_ends = stream::iter([Ok::<_, std::io::Error>(first)]).chain(stream::pending());
        (STREAM, Body::from_stream(never_ends))
    };
    let execd = execd(Router::new().route("/command", post(run))).await;
    let mut events = execd.run(&command("x")).await.unwrap();
    assert_eq!(events.next().await.unwrap().unwrap().kind, EventKind::Init);
}

#[tokio::test]
async fn a_background_run_is_left_at_its_completion() {
    let run = async |Json(body): Json<Value>| {
        assert_eq!(body["background"], true);
        let text = "{\"type\":\"init\",\"text\":\"c9\",\"timestamp\":1}\n\n\
                    {\"type\":\"execution_complete\",\"timestamp\":1}\n\n";
        let text = Bytes::from_static(text.as_bytes());
        let open = stream::iter([Ok::<_, std::io::Error>(text)]).chain(stream::pending());
        (STREAM, Body::from_stream(open))
    };
    let execd = execd(Router::new().route("/command", post(run))).await;
    assert_eq!(execd.start(&command("x")).await.unwrap(), "c9");
}

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
                    transfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn a_connection_that_breaks_is_an_error_only_before_the_end_of_the_run() {
    let unfinished = "{\"type\":\"init\",\"text\":\"c\",\"timestamp\":1}\n\n";
    let finished = "{\"type\":\"execution_complete\",\"timestamp\":1}\n\n";
    for (event, breaks) in [(unfinished, true), (finished, false)] {
        let body = format!("{:x}\r\n{event}\r\n", event.len());
        let response: &'static str = format!("{HEAD}{body}").leak();
        let execd = execd_at(&answer_raw(response).await.to_string());
        let mut events = execd.run(&command("x")).await.unwrap();
        assert!(events.next().await.unwrap().is_ok());
        match events.next().await {
            Some(Err(Error::Transport(_))) => assert!(breaks),
            None => assert!(!breaks),
            other => panic!("{other:?}"),
        }
        assert!(events.next().await.is_none());
    }
}

#[tokio::test]
async fn a_refused_run_is_an_api_error_and_other_answers_are_refused() {
    let run = async || {
        let body = json!({"code": "INVALID_REQUEST_BODY", "message": "working directory"});
        (StatusCode::BAD_REQUEST, Json(body)).into_response()
    };
    let refusing = execd(Router::new().route("/command", post(run))).await;
    let error = refusing.run(&command("x")).await.unwrap_err();
    assert_eq!(error.code(), Some("INVALID_REQUEST_BODY"));
    let run = async || Json(json!({}));
    let strange = execd(Router::new().route("/command", post(run))).await;
    let error = strange.run(&command("x")).await.unwrap_err();
    assert!(matches!(error, Error::Unexpected(_)), "{error:?}");
}

#[tokio::test]
async fn status_logs_interrupt_and_metrics() {
    let router = Router::new()
        .route(
            "/command/status/{id}",
            get(async |Path(id): Path<String>| {
                Json(json!({"id": id, "content": "x", "running": true, "started_at": "2026-01-01T00:00:00.1Z"}))
            }),
        )
        .route(
            "/command/{id}/logs",
            get(async |RawQuery(query): RawQuery| match query.as_deref() {
                Some("cursor=0") => ([("EXECD-COMMANDS-TAIL-CURSOR", "9")], "text").into_response(),
                Some("cursor=9") => "more".into_response(),
                other => panic!("{other:?}"),
            }),
        )
        .route(
            "/command",
            axum::routing::delete(async |RawQuery(query): RawQuery| {
                assert_eq!(query.as_deref(), Some("id=c1"));
            }),
        )
        .route(
            "/metrics",
            get(async || {
                Json(json!({"cpu_count": 2, "cpu_used_pct": 1.5, "mem_total_mib": 9.0, "mem_used_mib": 4.0, "timestamp": 7}))
            }),
        );
    let execd = execd(router).await;
    assert!(execd.status("c1").await.unwrap().running);
    let logs = execd.logs("c1", 0).await.unwrap();
    assert_eq!((&logs.bytes[..], logs.next), (&b"text"[..], 9));
    let logs = execd.logs("c1", 9).await.unwrap();
    assert_eq!((&logs.bytes[..], logs.next), (&b"more"[..], 13));
    execd.interrupt("c1").await.unwrap();
    assert_eq!(execd.metrics().await.unwrap().cpu_count, 2);
}
