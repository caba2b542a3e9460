//! Diagnostics over a simulated runtime: forms, bounds and errors of the routes.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::{sync::Arc, time::Duration};

use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

async fn start() -> (TestServer, Arc<SimRuntime>) {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let (server, sim) = TestServer::sim_with(options).await.unwrap();
    let look = || async { server.service.available().is_ok() };
    wait_until("the runtime", look, |up| *up).await;
    (server, sim)
}

/// Status, `Deprecation` and body of an answer.
async fn ask(server: &TestServer, path: &str) -> (u16, Option<String>, String) {
    let response = server.request(Method::GET, path).send().await.unwrap();
    let header = response.headers().get("deprecation");
    let header = header.map(|value| value.to_str().unwrap().to_owned());
    let status = response.status().as_u16();
    (status, header, response.text().await.unwrap())
}

async fn created(server: &TestServer) -> SandboxId {
    let request = server.request(Method::POST, "/v1/sandboxes");
    let response = request
        .json(&TestServer::good_create())
        .send()
        .await
        .unwrap();
    let body: Value = response.json().await.unwrap();
    SandboxId::from(body["id"].as_str().unwrap())
}

fn printing(lines: usize) -> Faults {
    Faults {
        output: (1..=lines).map(|line| format!("line-{line}")).collect(),
        ..Faults::default()
    }
}

#[tokio::test]
async fn logs_that_no_client_reads_do_not_fill_the_memory() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    sim.set_faults(Faults {
        output: vec!["x".repeat(400); 9_000],
        ..Faults::default()
    });
    let path = format!("/v1/sandboxes/{id}/diagnostics/logs?tail=10000");
    let ask = async || {
        // Little of the answer fits into the connection.
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        let key = osb_testkit::API_KEY;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             OPEN-SANDBOX-API-KEY: {key}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut head = [0; 12];
        stream.read_exact(&mut head).await.unwrap();
        (head == *b"HTTP/1.1 200", stream)
    };
    let mut unread = Vec::new();
    loop {
        let (served, stream) = ask().await;
        if !served {
            break;
        }
        unread.push(stream);
        assert!(unread.len() < 50, "all are served");
    }
    let refused = server.request(Method::GET, &path).send().await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    drop(unread);
    let room = async || ask().await.0;
    wait_until("room", room, |served| *served).await;
    server.stop().await;
}

#[tokio::test]
async fn a_scope_selects_the_described_form() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    for (kind, own, wrong) in [
        ("logs", "container", "runtime"),
        ("events", "runtime", "container"),
    ] {
        let path = format!("/v1/sandboxes/{id}/diagnostics/{kind}");
        let (status, deprecation, text) = ask(&server, &path).await;
        assert_eq!(
            (status, deprecation.as_deref()),
            (200, Some("true")),
            "{text}"
        );
        for scope in [own, "all", "%20ALL%20"] {
            let (status, deprecation, text) = ask(&server, &format!("{path}?scope={scope}")).await;
            assert_eq!((status, deprecation), (200, None), "{text}");
            let body: Value = serde_json::from_str(&text).unwrap();
            let is_all = scope != own;
            assert_eq!(body["scope"], if is_all { "all" } else { own });
            assert_eq!(body["sandboxId"], id.as_str());
            assert_eq!(
                (&body["kind"], &body["delivery"]),
                (&json!(kind), &json!("inline"))
            );
            assert_eq!(body["contentType"], "text/plain; charset=utf-8");
            assert_eq!(
                body["contentLength"],
                body["content"].as_str().unwrap().len()
            );
            assert_eq!(body["truncated"], false);
            assert_eq!(body.get("warnings").is_some(), is_all, "{body}");
            assert!(body.get("contentUrl").is_none() && body.get("expiresAt").is_none());
        }
        // The scope is checked before the sandbox is looked for.
        for (scope, path) in [
            (wrong, path.clone()),
            ("", path.clone()),
            (
                "lifecycle",
                format!("/v1/sandboxes/none/diagnostics/{kind}"),
            ),
        ] {
            let (status, _, text) = ask(&server, &format!("{path}?scope={scope}")).await;
            let body: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(
                (status, &body["code"]),
                (400, &json!("DIAGNOSTICS_SCOPE_UNSUPPORTED"))
            );
        }
        let (status, _, text) = ask(
            &server,
            &format!("/v1/sandboxes/none/diagnostics/{kind}?scope=all"),
        )
        .await;
        assert_eq!(status, 404, "{text}");
    }
    let (_, _, text) = ask(&server, &format!("/sandboxes/{id}/diagnostics/logs")).await;
    assert_eq!(text, "(no logs)");
    sim.set_faults(printing(101));
    let (_, _, text) = ask(
        &server,
        &format!("/v1/sandboxes/{id}/diagnostics/logs?scope=all&tail=1"),
    )
    .await;
    let body: Value = serde_json::from_str(&text).unwrap();
    let content = body["content"].as_str().unwrap();
    assert_eq!(
        (content.lines().count(), &body["truncated"]),
        (100, &json!(true))
    );
    assert!(
        content.lines().next().unwrap().ends_with("line-2"),
        "{content}"
    );
    sim.set_faults(printing(100));
    let (_, _, text) = ask(
        &server,
        &format!("/v1/sandboxes/{id}/diagnostics/logs?scope=all"),
    )
    .await;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(body["truncated"], false);
    server.stop().await;
}

#[tokio::test]
async fn parameters_have_bounds_also_beside_a_scope() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    sim.set_faults(printing(300));
    let path = |rest: &str| format!("/v1/sandboxes/{id}/diagnostics/{rest}");
    for rest in [
        "logs?tail=0",
        "logs?tail=10001",
        "logs?tail=x",
        "logs?tail=0&scope=all",
        "events?limit=0",
        "events?limit=501&scope=all",
        "summary?tail=0",
        "summary?event_limit=501",
    ] {
        assert_eq!(ask(&server, &path(rest)).await.0, 422, "{rest}");
    }
    for (rest, lines) in [
        ("logs", 100),
        ("logs?tail=7", 7),
        ("logs?tail=10000&container=x", 300),
    ] {
        assert_eq!(
            ask(&server, &path(rest)).await.2.lines().count(),
            lines,
            "{rest}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn large_logs_are_cut_at_a_line() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    let output = (0..10_000).map(|line| format!("{line:01000}"));
    sim.set_faults(Faults {
        output: output.collect(),
        ..Faults::default()
    });
    let path = format!("/v1/sandboxes/{id}/diagnostics/logs?tail=10000");
    let (status, _, text) = ask(&server, &path).await;
    assert_eq!(status, 200);
    assert!((3 << 20..=4 << 20).contains(&text.len()), "{}", text.len());
    assert!(
        text.starts_with("20") && text.trim_end().ends_with("9999"),
        "whole lines"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_token_that_a_program_prints_is_masked() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    let token = sim.spec(&id).unwrap().origin.token.expect("a token");
    let token = token.expose_secret();
    sim.set_faults(Faults {
        output: vec![format!("token={token};")],
        ..Faults::default()
    });
    for rest in ["logs", "logs?scope=all", "summary"] {
        let path = format!("/v1/sandboxes/{id}/diagnostics/{rest}");
        let (status, _, text) = ask(&server, &path).await;
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("token=***;"), "{rest}: {text}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_failed_create_is_explained_after_it_is_gone() {
    let (server, sim) = start().await;
    sim.set_faults(Faults {
        no_image: true,
        stage_delay: Duration::from_millis(20),
        ..Faults::default()
    });
    let request = server.request(Method::POST, "/v1/sandboxes");
    let response = request
        .json(&TestServer::good_create())
        .send()
        .await
        .unwrap();
    let body: Value = response.json().await.unwrap();
    let message = body["message"].as_str().unwrap();
    assert!(message.contains("Check name and tag"), "{message}");
    let id = server.service.recent_history(1).await.unwrap()[0]
        .id
        .clone();
    sim.set_faults(Faults::default());
    for part in ["events", "inspect", "summary"] {
        let (status, _, text) =
            ask(&server, &format!("/v1/sandboxes/{id}/diagnostics/{part}")).await;
        assert_eq!(status, 200, "{text}");
        let known = text.contains("IMAGE_PULL_FAILED") && text.contains("Check name and tag");
        assert!(known, "{text}");
    }
    assert_eq!(
        ask(&server, &format!("/v1/sandboxes/{id}/diagnostics/logs"))
            .await
            .0,
        404
    );

    let deleted = created(&server).await;
    server.service.delete(&deleted, true).await.unwrap();
    let (status, _, _) = ask(
        &server,
        &format!("/v1/sandboxes/{deleted}/diagnostics/events"),
    )
    .await;
    assert_eq!(status, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_section_that_fails_leaves_the_others() {
    let (server, sim) = start().await;
    let id = created(&server).await;
    sim.set_faults(Faults {
        log_fails: Some("s3cret path".to_owned()),
        ..Faults::default()
    });
    let (status, _, text) = ask(&server, &format!("/v1/sandboxes/{id}/diagnostics/summary")).await;
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("INSPECT") && text.contains("Ready"), "{text}");
    assert!(
        text.contains("(not available") && !text.contains("s3cret"),
        "{text}"
    );
    let (status, _, text) = ask(&server, &format!("/v1/sandboxes/{id}/diagnostics/logs")).await;
    let body: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &body["code"]),
        (500, &json!("DOCKER::SANDBOX_QUERY_FAILED"))
    );
    sim.go_down("gone").await;
    let look = || ask(&server, "/v1/sandboxes/none/diagnostics/summary");
    wait_until("the loss", look, |seen| seen.0 == 503).await;
    server.stop().await;
}
