//! Warm sidecars: creates with a network policy that need not start one.

use std::time::Duration;

use osb_runtime::docker::{DockerConfig, EgressConfig};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{Stage, answer, ask, body, containers_with, create, delete, docker, get, ready};

/// The image of the sidecar.
const IMAGE: &str = "opensandbox/egress:latest";

/// Sandboxes with a policy have the real sidecar, and one is warm.
pub(super) fn warm(config: &mut DockerConfig) {
    config.egress = Some(EgressConfig {
        image: IMAGE.to_owned(),
        mode: "dns+nft".to_owned(),
        disable_ipv6: true,
        otlp_endpoint: None,
        dns_upstreams: vec!["192.0.2.53".to_owned()],
        readiness_timeout: Duration::from_secs(60),
        warm: 1,
    });
}

pub(super) fn set() -> Stage {
    let image = docker(&["image", "inspect", "--format", "{{.Id}}", IMAGE]);
    assert!(
        !image.is_empty(),
        "needs the image {IMAGE}: run `cargo xtask test`"
    );
    Stage::set()
}

pub(super) fn with_policy() -> Value {
    let mut body = body();
    body["networkPolicy"] = json!({"egress": [{"action": "allow", "target": "198.51.100.7"}]});
    body
}

/// Ids of running sidecars whose sandbox does not exist.
fn waiting(stage: &Stage) -> Vec<String> {
    let label = format!("label=opensandbox.io/server={}", stage.instance);
    let format = "{{.ID}} {{.Label \"opensandbox.io/id\"}} {{.Label \"opensandbox.io/role\"}}";
    let list = docker(&["ps", "--no-trunc", "--filter", &label, "--format", format]);
    let all: Vec<Vec<&str>> = list.lines().map(|it| it.split(' ').collect()).collect();
    let has_main = |id: &str| all.iter().any(|it| it[1] == id && it[2].is_empty());
    let alone = all
        .iter()
        .filter(|it| it[2] == "egress" && !has_main(it[1]));
    alone.map(|it| it[0].to_owned()).collect()
}

/// Waits until the server counts one sidecar that waits, and returns its container.
async fn warmed(stage: &Stage, server: &TestServer) -> String {
    let count = async || server.service.warm_sidecars().unwrap().waiting;
    wait_until("a warm sidecar", count, |seen| *seen == 1).await;
    let [container] = waiting(stage).try_into().unwrap();
    container
}

/// Hits, misses and failures.
fn claims(server: &TestServer) -> [u64; 3] {
    let warm = server.service.warm_sidecars().unwrap();
    [warm.hits, warm.misses, warm.failures]
}

/// Network mode of the main container of a sandbox.
fn network(id: &str) -> String {
    let main = &containers_with(&format!("opensandbox.io/id={id}"))[0];
    docker(&["inspect", "--format", "{{.HostConfig.NetworkMode}}", main])
}

async fn policy(server: &TestServer, id: &str) -> Value {
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let (status, shown) = answer(server.request(Method::GET, &path)).await;
    assert_eq!(status, 200, "{shown}");
    shown["policy"]["egress"].clone()
}

/// How a connection to an address ends, in a sandbox.
async fn connect(server: &TestServer, id: &str, address: &str) -> String {
    let command = format!("timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/80'; true");
    let body = json!({"command": command});
    let (status, events) = ask(server, id, Method::POST, "/command", Some(body)).await;
    assert_eq!(status, 200, "{events}");
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_sidecar_is_that_of_its_sandbox_in_every_respect() {
    let mut stage = set();
    stage.engine.up().unwrap();
    let server = stage.server_tuned(warm).await;
    ready(&server).await;
    let sidecar = warmed(&stage, &server).await;
    let id = create(&server, &with_policy()).await;
    assert_eq!(network(&id), format!("container:{sidecar}"));
    assert_eq!(claims(&server), [1, 0, 0]);
    let mut group = containers_with(&format!("opensandbox.io/id={id}"));
    assert!(group.len() == 2 && group.contains(&sidecar), "{group:?}");
    group.retain(|it| *it != sidecar);

    let rule = json!({"action": "allow", "target": "198.51.100.7"});
    assert_eq!(policy(&server, &id).await, json!([rule]));
    let refused = connect(&server, &id, "198.51.100.8").await;
    assert!(refused.contains("Connection refused"), "{refused}");
    let path = format!("/v1/sandboxes/{id}/networkpolicy");
    let more = json!([{"action": "deny", "target": "a.example"}]);
    let patch = server.request(Method::PATCH, &path).json(&more);
    assert_eq!(answer(patch).await.0, 200);
    let endpoint = format!("/v1/sandboxes/{id}/endpoints/44772");
    let (_, endpoint) = answer(server.request(Method::GET, &endpoint)).await;
    let ping = format!("http://{}/ping", endpoint["endpoint"].as_str().unwrap());
    assert_eq!(reqwest::get(ping).await.unwrap().status(), 200);

    let state = |container: &str| docker(&["inspect", "--format", "{{.State.Status}}", container]);
    for (action, after) in [("pause", "paused"), ("resume", "running")] {
        let path = format!("/v1/sandboxes/{id}/{action}");
        let (status, shown) = answer(server.request(Method::POST, &path)).await;
        assert!(status.is_success(), "{shown}");
        wait_until(
            after,
            async || [&sidecar, &group[0]].map(|it| state(it)),
            |seen| seen.iter().all(|it| it == after),
        )
        .await;
    }
    assert_eq!(policy(&server, &id).await[0], more[0], "it is the same one");

    // Its place is taken again, and a sandbox whose sidecar ends is lost.
    let next = warmed(&stage, &server).await;
    assert_ne!(next, sidecar);
    docker(&["kill", &sidecar]);
    let failed = |seen: &(StatusCode, Value)| seen.1["status"]["reason"] == "EGRESS_LOST";
    wait_until("the loss", || get(&server, &id), failed).await;
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [next]);
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_needs_another_sidecar_starts_it() {
    let mut stage = set();
    stage.engine.up().unwrap();
    let server = stage.server_tuned(warm).await;
    ready(&server).await;
    let sidecar = warmed(&stage, &server).await;
    let mut special = with_policy();
    special["env"] = json!({"OPENSANDBOX_EGRESS_LOG_LEVEL": "debug"});
    let mut secured = with_policy();
    secured["secureAccess"] = json!(true);
    for body in [special, secured] {
        let id = create(&server, &body).await;
        assert_ne!(network(&id), format!("container:{sidecar}"));
        delete(&server, &id).await;
    }
    assert_eq!(claims(&server), [0, 2, 0]);
    assert_eq!(warmed(&stage, &server).await, sidecar);
    // One that ends while it waits is noticed.
    docker(&["kill", &sidecar]);
    let others = async || waiting(&stage);
    wait_until("another one", others, |seen| {
        seen.len() == 1 && seen[0] != sidecar
    })
    .await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_that_fails_leaves_nothing_of_the_sidecar_that_it_claimed() {
    let mut stage = set();
    stage.engine.up().unwrap();
    let server = stage.server_tuned(warm).await;
    ready(&server).await;
    let sidecar = warmed(&stage, &server).await;
    let mut broken = with_policy();
    broken["image"]["uri"] = "localhost:9/missing:1".into();
    let request = server.request(Method::POST, "/v1/sandboxes").json(&broken);
    let (status, shown) = answer(request).await;
    assert!(!status.is_success(), "{shown}");
    let next = warmed(&stage, &server).await;
    assert_ne!(next, sidecar);
    assert_eq!(stage.containers(), [next]);
    server.stop().await;
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn a_server_that_is_killed_leaves_claimed_sidecars_and_no_others() {
    let mut stage = set();
    let first = tokio::runtime::Runtime::new().unwrap();
    let (id, left) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server_tuned(warm).await;
        ready(&server).await;
        warmed(&stage, &server).await;
        let id = create(&server, &with_policy()).await;
        (id, warmed(&stage, &server).await)
    });
    // Every task of the server is aborted here.
    first.shutdown_timeout(Duration::from_secs(60));
    assert_eq!(waiting(&stage), [left.as_str()]);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = stage.server_tuned(warm).await;
        ready(&server).await;
        let (_, shown) = get(&server, &id).await;
        assert_eq!(shown["status"]["state"], "Running", "{shown}");
        assert_eq!(policy(&server, &id).await.as_array().unwrap().len(), 1);
        server.service.reconcile().await;
        let own = warmed(&stage, &server).await;
        assert_ne!(own, left, "the former server's is removed");
        delete(&server, &id).await;
        assert_eq!(stage.containers(), [own]);
        server.stop().await;
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[test]
fn a_server_that_is_killed_during_a_create_leaves_nothing() {
    let mut stage = set();
    // Before, during and after the claim, as far as the machine is as fast as usual.
    for pause in [0, 40, 80, 160, 320] {
        let first = tokio::runtime::Runtime::new().unwrap();
        first.block_on(async {
            stage.engine.up().unwrap();
            let server = stage.server_tuned(warm).await;
            ready(&server).await;
            warmed(&stage, &server).await;
            let request = server.request(Method::POST, "/v1/sandboxes");
            let create = answer(request.json(&with_policy()));
            // Its client is gone as well.
            let made = tokio::time::timeout(Duration::from_millis(pause), create).await;
            if let Ok((status, made)) = made {
                // The machine was faster: nothing is under way.
                assert!(status.is_success(), "{made}");
                delete(&server, made["id"].as_str().unwrap()).await;
            }
        });
        first.shutdown_timeout(Duration::from_secs(60));
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            stage.engine.cut().unwrap();
            stage.engine.up().unwrap();
            let server = stage.server_tuned(warm).await;
            ready(&server).await;
            let left = async || {
                server.service.reconcile().await;
                (stage.containers(), waiting(&stage))
            };
            wait_until("only one that waits", left, |(all, waiting)| {
                waiting.len() == 1 && all == waiting
            })
            .await;
            server.stop().await;
            stage.engine.cut().unwrap();
        });
        assert_eq!(stage.containers(), [""; 0], "{pause} ms");
    }
}
