//! Diagnostics of real containers, and reasons of real failures.

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, ask, body, create, delete, docker, get, ready};

async fn text(server: &TestServer, id: &str, rest: &str) -> (u16, bool, String) {
    let path = format!("/v1/sandboxes/{id}/diagnostics/{rest}");
    let response = server.request(Method::GET, &path).send().await.unwrap();
    let deprecated = response.headers().get("deprecation");
    let deprecated = deprecated.is_some_and(|value| value == "true");
    let status = response.status().as_u16();
    (status, deprecated, response.text().await.unwrap())
}

async fn described(server: &TestServer, id: &str, rest: &str) -> Value {
    let path = format!("/v1/sandboxes/{id}/diagnostics/{rest}");
    let (status, body) = answer(server.request(Method::GET, &path)).await;
    assert_eq!(status, 200, "{body}");
    body
}

/// Creates a sandbox and waits until its entry point has ended. Returns the message of its state.
async fn ended(server: &TestServer, entrypoint: Value) -> (String, String) {
    let mut short = body();
    short["entrypoint"] = entrypoint;
    let id = create(server, &short).await;
    let is_over = |seen: &(StatusCode, Value)| seen.1["status"]["state"] != "Running";
    let (_, seen) = wait_until("the end", || get(server, &id), is_over).await;
    (id, seen["status"]["message"].as_str().unwrap().to_owned())
}

/// A client that reaches for a sandbox that ended, at once or later, learns why.
#[tokio::test(flavor = "multi_thread")]
async fn the_endpoints_of_what_ended_say_why() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let later = "echo before; while [ ! -e /go ]; do sleep 0.05; done; echo last words >&2; exit 3";
    for (entrypoint, has_secure_access, words) in [
        (
            json!(["bash", "/no/such.sh"]),
            false,
            ["exit code 127", "/no/such.sh: No such file or directory"],
        ),
        (
            json!(["bash", "/no/such.sh"]),
            true,
            ["exit code 127", "/no/such.sh: No such file or directory"],
        ),
        (json!(["/no/such"]), false, ["exit code 127", "/no/such"]),
        (
            json!(["sh", "-c", later]),
            false,
            ["exit code 3", "last words"],
        ),
    ] {
        let mut short = body();
        short["entrypoint"] = entrypoint.clone();
        if has_secure_access {
            short["secureAccess"] = true.into();
        }
        let id = create(&server, &short).await;
        if words[1] == "last words" {
            docker(&["exec", &stage.container_of(&id), "touch", "/go"]);
        }
        let is_over = |seen: &(StatusCode, Value)| seen.1["status"]["state"] == "Failed";
        wait_until("the end", || get(&server, &id), is_over).await;
        for path in [
            format!("/v1/sandboxes/{id}/endpoints/44772"),
            format!("/v1/sandboxes/{id}/endpoints/18080"),
            format!("/v1/sandboxes/{id}/endpoints/8080"),
            format!("/v1/sandboxes/{id}/endpoints/8000?use_server_proxy=true"),
            format!("/v1/sandboxes/{id}/proxy/44772/ping"),
            format!("/v1/sandboxes/{id}/proxy/8000/"),
        ] {
            let (status, seen) = answer(server.request(Method::GET, &path)).await;
            assert_eq!(status, 500, "{path}: {seen}");
            assert_eq!(seen["code"], "DOCKER::NETWORK_MODE_ENDPOINT_UNAVAILABLE");
            let message = seen["message"].as_str().unwrap();
            for word in words {
                assert!(message.contains(word), "{path} of {entrypoint}: {message}");
            }
        }
        // Who only knows the id does not read what the sandbox wrote.
        let path = format!("/v1/sandboxes/{id}/proxy/8000/");
        let (status, seen) = answer(server.bare(Method::GET, &path)).await;
        let message = seen["message"].as_str().unwrap();
        assert_eq!(status, 500, "{message}");
        assert!(message.contains(words[0]), "{message}");
        assert!(!message.contains("Its last output"), "{message}");
        delete(&server, &id).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logs_events_and_settings_of_a_container_are_readable_and_hold_no_secret() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut talker = body();
    talker["entrypoint"] = json!([
        "sh",
        "-c",
        "for i in $(seq 1 150); do echo line-$i; done; sleep 600"
    ]);
    talker["env"] = json!({"PLAIN": "v4lue-of-env", "DB_PASSWORD": "hunter2"});
    let id = create(&server, &talker).await;
    let look = || text(&server, &id, "logs?tail=10000");
    let (status, deprecated, all) =
        wait_until("the output", look, |seen| seen.2.contains("line-150")).await;
    assert_eq!((status, deprecated), (200, true));
    assert_eq!(all.lines().count(), 150, "{all}");
    assert!(
        all.lines().all(|line| line.starts_with("20")),
        "times: {all}"
    );
    let (_, _, last) = text(&server, &id, "logs?tail=1&since=1h").await;
    assert!(last.trim_end().ends_with("line-150"), "{last}");
    assert_eq!(last.lines().count(), 1);

    let logs = described(&server, &id, "logs?scope=%20Container").await;
    let content = logs["content"].as_str().unwrap();
    assert_eq!(content.lines().count(), 100);
    assert!(
        content.lines().next().unwrap().ends_with("line-51"),
        "{content}"
    );
    assert_eq!(logs["truncated"], true);
    assert_eq!(logs["contentLength"], content.len());
    assert_eq!(
        (&logs["scope"], logs.get("warnings")),
        (&json!("container"), None)
    );

    let (status, deprecated, page) = text(&server, &id, "inspect").await;
    assert_eq!((status, deprecated), (200, false));
    let container = stage.container_of(&id);
    for part in [
        &container[..12],
        IMAGE,
        "Running:       true",
        "Memory: 256 MiB",
        "CPU: 0.50",
        "DB_PASSWORD=***",
        "PLAIN=***",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (_, _, events) = text(&server, &id, "events").await;
    for part in [
        "Accepted",
        "Image",
        "Network",
        "Execd",
        "Ready",
        "Running (CONTAINER_RUNNING)",
    ] {
        assert!(events.contains(part), "{part} in {events}");
    }
    let events = described(&server, &id, "events?scope=all").await;
    assert_eq!(events["warnings"].as_array().unwrap().len(), 1, "{events}");
    let (_, _, summary) = text(&server, &id, "summary?tail=2").await;
    assert!(
        summary.contains("line-150") && !summary.contains("line-148"),
        "{summary}"
    );
    let format = "{{index .Config.Labels \"opensandbox.io/execd-access-token\"}}";
    let token = docker(&["inspect", "--format", format, &container]);
    assert!(!token.is_empty());
    for secret in ["v4lue-of-env", "hunter2", &token] {
        for answer in [&all, &page, &summary, &events.to_string()] {
            assert!(!answer.contains(secret), "{secret} in {answer}");
        }
    }
    delete(&server, &id).await;
    assert_eq!(text(&server, &id, "logs").await.0, 404);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_of_an_entry_point_has_a_reason_and_a_fix() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    for (entrypoint, reason, fix) in [
        (
            json!(["/no/such/program"]),
            "the command was not found in the image",
            "Check `entrypoint`",
        ),
        (
            json!(["/etc/passwd"]),
            "the command cannot be executed",
            "Check `entrypoint`",
        ),
        (
            json!(["true"]),
            "exit code 0",
            "such as `tail -f /dev/null`",
        ),
        (
            json!(["sh", "-c", "exit 3"]),
            "exit code 3",
            "look at its output",
        ),
        (
            json!(["sh", "-c", "kill -KILL $$"]),
            "it was killed",
            "whether the host ran out of memory",
        ),
        (
            json!(["sh", "-c", "kill -TERM $$"]),
            "it was terminated by SIGTERM",
            "Create a new sandbox",
        ),
    ] {
        let (id, message) = ended(&server, entrypoint).await;
        assert!(
            message.contains(reason) && message.contains(fix),
            "{message}"
        );
        let (_, _, page) = text(&server, &id, "summary").await;
        assert!(
            page.contains(reason) && page.contains("Exit Code"),
            "{page}"
        );
        delete(&server, &id).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_the_engine_refuses_has_a_reason_and_a_fix() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut unknown = body();
    unknown["image"]["uri"] = "registry.invalid/opensandbox/nope:1".into();
    let request = server.request(Method::POST, "/v1/sandboxes").json(&unknown);
    let (status, refused) = answer(request).await;
    assert_eq!(status, 500, "{refused}");
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("Check the registry's name"), "{message}");

    let failed = server.service.recent_history(0, 1).await.unwrap();
    let id = failed[0].id.as_str();
    let (status, _, events) = text(&server, id, "events").await;
    assert_eq!(status, 200, "{events}");
    for part in ["Accepted", "IMAGE_PULL_FAILED", "Check the registry's name"] {
        assert!(events.contains(part), "{part} in {events}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_ran_in_a_sandbox_is_known_after_its_end() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    let commands = async || {
        let path = format!("/v1/sandboxes/{id}/commands");
        answer(server.request(Method::GET, &path)).await
    };
    assert_eq!(commands().await.1["commands"], json!([]));
    let run = async |command: &str| {
        let request = json!({"command": command, "envs": {"NAME": "s3cret-value"}});
        ask(&server, &id, Method::POST, "/command", Some(request)).await
    };
    run("echo one; exit 3").await;
    let (status, seen) = commands().await;
    assert_eq!(status, 200, "{seen}");
    assert_eq!(seen["reportedBy"], "sandbox");
    assert_eq!(seen["commands"][0]["command"], "echo one; exit 3");
    assert_eq!(seen["commands"][0]["exitCode"], 3);
    run("echo two").await;
    delete(&server, &id).await;
    let (status, seen) = commands().await;
    assert_eq!(status, 200, "{seen}");
    let texts = seen["commands"].as_array().unwrap().iter();
    let texts: Vec<_> = texts.map(|it| &it["command"]).collect();
    assert_eq!(texts, ["echo two", "echo one; exit 3"]);
    assert!(!seen.to_string().contains("s3cret-value"), "{seen}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_use_of_a_real_container_is_sampled() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let mut busy = body();
    busy["entrypoint"] = json!(["sh", "-c", "while :; do :; done"]);
    let id = create(&server, &busy).await;
    let path = format!("/v1/sandboxes/{id}/metrics");
    let look = || answer(server.request(Method::GET, &path));
    let is_busy = |seen: &(StatusCode, Value)| {
        let cores = seen.1["cpuCores"].as_array();
        cores.is_some_and(|cores| cores.iter().any(|it| it.as_f64() > Some(0.1)))
    };
    let (_, seen) = wait_until("a busy processor", look, is_busy).await;
    let last = |name: &str| seen[name].as_array().unwrap().last().unwrap().as_u64();
    assert!(last("memoryBytes") > Some(100 << 10), "{seen}");
    assert!(last("processes") >= Some(2), "{seen}");
    assert!(last("networkReceivedBytesPerSecond").is_some(), "{seen}");
    delete(&server, &id).await;
    server.stop().await;
}
