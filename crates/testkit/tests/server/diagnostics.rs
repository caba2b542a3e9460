//! Diagnostics over a simulated runtime: forms, bounds and errors of the routes.

use std::{net::IpAddr, sync::Arc, time::Duration};

use osb_protocol::SandboxId;
use osb_runtime::{
    Address, EXECD_PORT,
    sim::{Faults, Options, SimRuntime},
};
use osb_testkit::{CannedProgram, TestServer, wait_until};
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    sync::Notify,
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
    let tail = server.service.log_tail(&id, 10).await.unwrap();
    assert_eq!(tail.last().map(String::as_str), Some("token=***;"));
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
    let id = server.service.recent_history(0, 1).await.unwrap()[0]
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

/// A message of an engine for each common cause of a failed start, and what the answer advises.
const FAILED_STARTS: [(&str, &str); 16] = [
    (
        "the engine did not answer in time",
        "Look at the engine's log",
    ),
    (
        "mkdir /var/lib/docker/overlay2/x: no space left on device",
        "Free space",
    ),
    (
        "exec format error: unknown",
        "Use an image for this host's platform",
    ),
    (
        "Bind for 127.0.0.1:40000 failed: port is already allocated",
        "keep other programs out of",
    ),
    ("no free port in 40000-40001", "Widen docker.port_range_min"),
    (
        "The name \"/osb-1\" is already in use by container \"c1\"",
        "Try again",
    ),
    ("network ours not found", "docker network create"),
    (
        "opening seccomp profile (/etc/ours.json) failed",
        "Load the profile",
    ),
    ("Unknown runtime specified runsc", "Install the runtime"),
    (
        "could not select device driver \"\" with capabilities: [[gpu]]",
        "leave out `gpu`",
    ),
    (
        "bind source path does not exist: /srv/cache",
        "docker.sandbox_binds",
    ),
    (
        "Range of CPUs is from 0.01 to 2.00",
        "Ask for less in `resourceLimits`",
    ),
    (
        "fork/exec /proc/self/exe: cannot allocate memory",
        "Raise `resourceLimits.memory`",
    ),
    ("execd cannot be provided: broken", "OPENSANDBOX_EXECD_PATH"),
    (
        "exec: \"nope\": executable file not found in $PATH",
        "Check `entrypoint` and the PATH",
    ),
    (
        "exec: \"/etc/passwd\": permission denied",
        "Check `entrypoint`, the file's mode",
    ),
];

#[tokio::test]
async fn every_failed_start_is_explained_in_the_answer_and_afterwards() {
    let (server, sim) = start().await;
    for (message, advice) in FAILED_STARTS {
        sim.set_faults(Faults {
            start_fails: Some(message.to_owned()),
            ..Faults::default()
        });
        let request = server.request(Method::POST, "/v1/sandboxes");
        let request = request.json(&TestServer::good_create());
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        let text = answer["message"].as_str().unwrap();
        assert!(text.contains(advice), "{message}: {answer}");
        let failed = server.service.recent_history(0, 1).await.unwrap();
        let id = &failed[0].id;
        for part in ["events", "inspect", "summary"] {
            let path = format!("/v1/sandboxes/{id}/diagnostics/{part}");
            let (status, _, text) = ask(&server, &path).await;
            assert_eq!(status, 200, "{text}");
            let is_explained = text.contains("START_FAILED") && text.contains(advice);
            assert!(is_explained, "{part} of {message}: {text}");
        }
        let (_, _, events) = ask(&server, &format!("/v1/sandboxes/{id}/diagnostics/events")).await;
        for (stage, is_reached) in [("Created", true), ("Network", false)] {
            let has = events
                .lines()
                .any(|line| line.contains(&format!("  {stage} ")));
            assert_eq!(has, is_reached, "{stage}: {events}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_create_in_progress_shows_the_stages_that_it_has_reached() {
    let (server, sim) = start().await;
    let (image, started) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    sim.set_faults(Faults {
        image_gate: Some(Arc::clone(&image)),
        start_gate: Some(Arc::clone(&started)),
        ..Faults::default()
    });
    let request = server.request(Method::POST, "/v1/sandboxes");
    let create = request.json(&TestServer::good_create()).send();
    let look = async {
        let pending = async || {
            let (records, _) = server.service.registry().snapshot();
            records.first().map(|it| it.facts.origin.id.clone())
        };
        let id = wait_until("the record", pending, Option::is_some)
            .await
            .unwrap();
        let path = |part: &str| format!("/v1/sandboxes/{id}/diagnostics/{part}");
        let (status, _, logs) = ask(&server, &path("logs")).await;
        assert_eq!((status, logs.as_str()), (200, "(no logs)"));
        let (_, _, events) = ask(&server, &path("events")).await;
        assert!(
            events.contains("Accepted") && !events.contains("Image "),
            "{events}"
        );
        let (status, _, page) = ask(&server, &path("inspect")).await;
        assert!(status == 200 && page.contains("Pending"), "{page}");
        image.notify_one();
        let events = async || ask(&server, &path("events")).await.2;
        let events = wait_until("the container", events, |it| it.contains("Created ")).await;
        assert!(
            events.contains("Image ") && !events.contains("Network "),
            "{events}"
        );
        assert!(events.contains("Pending ("), "{events}");
        started.notify_one();
        id
    };
    let (created, id) = tokio::join!(create, look);
    assert_eq!(created.unwrap().status(), 202);
    let path = format!("/v1/sandboxes/{id}/diagnostics/summary");
    let (_, _, text) = ask(&server, &path).await;
    assert!(
        text.contains("Ready ") && text.contains("Running ("),
        "{text}"
    );
    server.stop().await;
}

/// Creates a sandbox at an address where no execd answers.
async fn created_without_execd(server: &TestServer, sim: &SimRuntime, ip: IpAddr) -> SandboxId {
    sim.set_address(Address {
        ip: Some(ip),
        ..Address::default()
    });
    let id = created(server).await;
    let message = message(server, &id).await;
    assert!(message.contains("execd does not answer"), "{message}");
    id
}

/// Message of a sandbox's state.
async fn message(server: &TestServer, id: &SandboxId) -> String {
    let (_, _, text) = ask(server, &format!("/v1/sandboxes/{id}")).await;
    let body: Value = serde_json::from_str(&text).unwrap();
    body["status"]["message"].as_str().unwrap().to_owned()
}

/// Starts an execd, and waits until its sandbox is no longer reported as without one.
async fn is_noticed(server: &TestServer, id: &SandboxId, ip: IpAddr) {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let execd = CannedProgram::start_at((ip, EXECD_PORT).into(), answer);
    let _execd = execd.await.unwrap();
    let look = || message(server, id);
    let is_fine = |message: &String| message == "The sandbox is running.";
    wait_until("the report to end", look, is_fine).await;
}

#[tokio::test]
async fn a_late_execd_is_noticed_after_a_pause() {
    let (server, sim) = start().await;
    let ip = IpAddr::from([127, 0, 93, 1]);
    let id = created_without_execd(&server, &sim, ip).await;
    let change = async |verb: &str| {
        let request = server.request(Method::POST, &format!("/v1/sandboxes/{id}/{verb}"));
        assert_eq!(request.send().await.unwrap().status(), 202, "{verb}");
    };
    change("pause").await;
    // Longer than the pause between two attempts, so that one finds the sandbox frozen.
    tokio::time::sleep(Duration::from_secs(2)).await;
    change("resume").await;
    is_noticed(&server, &id, ip).await;
    server.stop().await;
}

#[tokio::test]
async fn an_execd_that_is_late_by_an_hour_is_noticed() {
    let (server, sim) = start().await;
    let ip = IpAddr::from([127, 0, 93, 2]);
    let id = created_without_execd(&server, &sim, ip).await;
    for _ in 0..12 {
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(300)).await;
        tokio::time::resume();
        let still = message(&server, &id).await;
        assert!(still.contains("execd does not answer"), "{still}");
    }
    is_noticed(&server, &id, ip).await;
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
