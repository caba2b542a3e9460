//! Quotas of users and stored API keys, and disk. Those of tenants are in `tenants.rs`.

use std::{sync::Arc, time::Duration};

use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_server::{identity::Scope, sandbox::quota::Owner};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn key(server: &TestServer, body: Value) -> String {
    let request = server.request(Method::POST, "/v1/api-keys").json(&body);
    let (status, body) = answer(request).await;
    assert_eq!(status, 201, "{body}");
    body["secret"].as_str().unwrap().to_owned()
}

async fn operator(server: &TestServer, name: &str) -> String {
    key(server, json!({"name": name, "role": "operator"})).await
}

async fn create(server: &TestServer, key: &str) -> (StatusCode, Value) {
    let request = server.request_as(key, Method::POST, "/v1/sandboxes");
    answer(request.json(&TestServer::good_create())).await
}

async fn quotas(server: &TestServer, key: &str) -> Value {
    let (status, body) = answer(server.request_as(key, Method::GET, "/v1/quotas")).await;
    assert_eq!(status, 200, "{body}");
    body["items"].clone()
}

fn refused(answer: &(StatusCode, Value)) -> &str {
    let (status, body) = answer;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (403, &json!("SANDBOX::QUOTA_EXCEEDED")), "{body}");
    body["message"].as_str().unwrap()
}

#[tokio::test]
async fn creates_at_once_do_not_exceed_the_quota_of_their_key() {
    let more = "[quotas.key]\nsandboxes = 5\n[quotas.keys.big]\nsandboxes = 8\ncpu = '2'";
    let server = TestServer::around([], more).await.unwrap();
    let (small, other) = (
        operator(&server, "small").await,
        operator(&server, "small").await,
    );
    let big = operator(&server, "big").await;
    let at_once = |key: String, number: usize| {
        let server = &server;
        let creates = (0..number).map(move |_| {
            let key = key.clone();
            async move { create(server, &key).await }
        });
        futures::future::join_all(creates)
    };
    let answers = at_once(small.clone(), 20).await;
    let made = answers.iter().filter(|(status, _)| *status == 202).count();
    assert_eq!(made, 5, "{answers:?}");
    for answer in answers.iter().filter(|(status, _)| *status != 202) {
        let message = "the API key small has a quota of 5 for sandboxes: 5 in use, 1 asked for";
        assert_eq!(refused(answer), message);
    }
    assert_eq!(
        create(&server, &other).await.0,
        202,
        "another key of the name"
    );
    let answers = at_once(big.clone(), 10).await;
    let made = answers.iter().filter(|(status, _)| *status == 202).count();
    assert_eq!(made, 4, "four halves of a core: {answers:?}");
    let full = answers.iter().find(|(status, _)| *status != 202).unwrap();
    let message = "the API key big has a quota of 2000m for cpu: 2000m in use, 500m asked for";
    assert_eq!(refused(full), message);
    let mut endless = TestServer::good_create();
    endless["resourceLimits"] = json!({});
    let request = server.request_as(&big, Method::POST, "/v1/sandboxes");
    let (status, body) = answer(request.json(&endless)).await;
    assert_eq!(status, 400, "{body}");
    let message = "resourceLimits.cpu: is required, because the API key big has a quota for it";
    assert_eq!(body["message"], message);
    assert_eq!(
        create(&server, osb_testkit::API_KEY).await.0,
        202,
        "no quota"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_deleted_sandbox_makes_room_and_a_restart_forgets_no_owner() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let more = "[quotas.key]\nsandboxes = 1";
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
        server.unwrap()
    };
    let server = start().await;
    let secret = operator(&server, "ci").await;
    let (status, made) = create(&server, &secret).await;
    assert_eq!(status, 202, "{made}");
    refused(&create(&server, &secret).await);
    server.stop().await;
    drop(server);
    let server = start().await;
    let look = || create(&server, &secret);
    let full = wait_until("the runtime", look, |(status, _)| *status != 503).await;
    refused(&full);
    let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
    let delete = server.request_as(&secret, Method::DELETE, &path);
    assert_eq!(answer(delete.header("prefer", "wait")).await.0, 204);
    assert_eq!(create(&server, &secret).await.0, 202);
    server.stop().await;
}

/// A client that has its 204 counts on the room.
#[tokio::test]
async fn a_create_waits_for_the_removal_that_alone_hinders_it() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let more = "[quotas.key]\nsandboxes = 2\ncpu = '1'";
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more);
    let server = server.await.unwrap();
    server.wait_until_up().await.unwrap();
    let secret = operator(&server, "ci").await;
    let (_, first) = create(&server, &secret).await;
    let (_, second) = create(&server, &secret).await;
    let leave = async |made: &Value| {
        let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
        let delete = server.request_as(&secret, Method::DELETE, &path);
        assert_eq!(answer(delete).await.0, 204);
    };
    let slow = Faults {
        remove_delay: Duration::from_millis(500),
        ..Faults::default()
    };
    sim.set_faults(slow.clone());
    leave(&first).await;
    let third = create(&server, &secret).await;
    assert_eq!(third.0, 202, "{third:?}");
    // Two removals, and two creates that each need one of them.
    leave(&second).await;
    leave(&third.1).await;
    let both = tokio::join!(create(&server, &secret), create(&server, &secret));
    assert_eq!(
        (both.0.0.as_u16(), both.1.0.as_u16()),
        (202, 202),
        "{both:?}"
    );
    // What does not fit without the one that leaves either is refused.
    leave(&both.0.1).await;
    let mut big = TestServer::good_create();
    big["resourceLimits"]["cpu"] = json!("600m");
    let request = server.request_as(&secret, Method::POST, "/v1/sandboxes");
    refused(&answer(request.json(&big)).await);
    let path = format!("/v1/sandboxes/{}", both.0.1["id"].as_str().unwrap());
    let look = || answer(server.request(Method::GET, &path));
    wait_until("the removal", look, |(status, _)| *status == 404).await;
    // And what waits for a removal that fails.
    sim.set_faults(Faults {
        remove_fails: Some("device busy".to_owned()),
        ..slow
    });
    let fourth = create(&server, &secret).await;
    assert_eq!(fourth.0, 202, "{fourth:?}");
    leave(&fourth.1).await;
    refused(&create(&server, &secret).await);
    sim.set_faults(Faults::default());
    server.stop().await;
}

#[tokio::test]
async fn a_user_has_a_quota_apart_from_the_tenant() {
    let more = "[quotas]\nsandboxes = 2\n[quotas.user]\nsandboxes = 1";
    let server = TestServer::around([], more).await.unwrap();
    let create = async |user: &str| {
        let service = server.service.within(&Scope::of(Some("a")));
        let service = service.owned_by(Some(Owner::user(user, user)));
        service.accept(TestServer::good_create()).await
    };
    create("zoe").await.unwrap();
    let refused = async |user: &str| create(user).await.unwrap_err().to_string();
    let message = "the user zoe has a quota of 1 for sandboxes: 1 in use, 1 asked for";
    assert_eq!(refused("zoe").await, message);
    create("adam").await.unwrap();
    let message = "the tenant a has a quota of 2 for sandboxes: 2 in use, 1 asked for";
    assert_eq!(refused("eve").await, message);
    server.stop().await;
}

#[tokio::test]
async fn a_caller_reads_its_own_quotas_and_an_administrator_all() {
    let more = "[quotas]\nmemory = '1Gi'\n[quotas.keys.ci]\nsandboxes = 3\ncpu = '1500m'";
    let server = TestServer::around([], more).await.unwrap();
    let ci = key(
        &server,
        json!({"name": "ci", "role": "operator", "tenant": "a"}),
    )
    .await;
    let other = key(&server, json!({"name": "other", "tenant": "b"})).await;
    assert_eq!(create(&server, &ci).await.0, 202);
    let own = quotas(&server, &ci).await;
    let used = json!({"sandboxes": 1, "cpuMillis": 500, "memoryBytes": 256 << 20});
    let id = own[1]["id"].clone();
    assert!(id.is_string(), "{own}");
    let expected = json!([
        {"kind": "tenant", "name": "a", "limits": {"memoryBytes": 1 << 30}, "used": used},
        {
            "kind": "api_key", "id": id, "name": "ci",
            "limits": {"sandboxes": 3, "cpuMillis": 1500}, "used": used,
        },
    ]);
    assert_eq!(own, expected);
    let unused = json!({"sandboxes": 0, "cpuMillis": 0, "memoryBytes": 0});
    let theirs = json!([
        {"kind": "tenant", "name": "b", "limits": {"memoryBytes": 1 << 30}, "used": unused},
    ]);
    assert_eq!(quotas(&server, &other).await, theirs, "nothing of others");
    assert_eq!(quotas(&server, osb_testkit::API_KEY).await, expected);
    server.stop().await;
}

#[tokio::test]
async fn disk_that_is_used_up_stops_new_creates_only() {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let (folder, sim) = (
        tempfile::tempdir().unwrap(),
        Arc::new(SimRuntime::with_options(options)),
    );
    let more = "[quotas.key]\ndisk = '1Gi'";
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
        server.unwrap()
    };
    let server = start().await;
    let secret = operator(&server, "ci").await;
    let (status, made) = create(&server, &secret).await;
    assert_eq!(status, 202, "{made}");
    let id = made["id"].as_str().unwrap();
    server.stop().await;
    drop(server);
    // A start measures at once.
    sim.set_layer_size(&SandboxId::from(id), 3 << 29);
    let server = start().await;
    let look = || quotas(&server, &secret);
    let is_measured = |items: &Value| items[0]["used"]["diskBytes"] == json!(3 << 29);
    let seen = wait_until("the measurement", look, is_measured).await;
    assert_eq!(seen[0]["limits"], json!({"diskBytes": 1 << 30}));
    let full = create(&server, &secret).await;
    let message = "the API key ci has a quota of 1024 MiB for disk: 1536 MiB in use; delete files or \
                   sandboxes";
    assert_eq!(refused(&full), message);
    let path = format!("/v1/sandboxes/{id}");
    let (status, body) = answer(server.request_as(&secret, Method::GET, &path)).await;
    assert_eq!(
        (status.as_u16(), &body["status"]["state"]),
        (200, &json!("Running"))
    );
    assert_eq!(
        create(&server, &operator(&server, "other").await).await.0,
        202
    );
    let delete = server.request_as(&secret, Method::DELETE, &path);
    assert_eq!(answer(delete.header("prefer", "wait")).await.0, 204);
    assert_eq!(
        create(&server, &secret).await.0,
        202,
        "its disk is free again"
    );
    server.stop().await;
}

#[tokio::test]
async fn snapshots_count_for_disk() {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let sim = Arc::new(SimRuntime::with_options(options));
    let folder = tempfile::tempdir().unwrap();
    let more = "[quotas.key]\ndisk = '1500'";
    let server = TestServer::over(sim as _, folder.path(), more).await;
    let server = server.unwrap();
    let secret = operator(&server, "ci").await;
    let (status, made) = create(&server, &secret).await;
    assert_eq!(status, 202, "{made}");
    let path = format!("/v1/sandboxes/{}/snapshots", made["id"].as_str().unwrap());
    let take = async |key: &str| answer(server.request_as(key, Method::POST, &path)).await;
    let mut taken = String::new();
    for _ in 0..2 {
        // Each has 1,000 bytes.
        let (status, snapshot) = take(&secret).await;
        assert_eq!(status, 202, "{snapshot}");
        taken = format!("/v1/snapshots/{}", snapshot["id"].as_str().unwrap());
        let look = async || answer(server.request(Method::GET, &taken)).await.1;
        let is_ready = |seen: &Value| seen["status"]["state"] == "Ready";
        wait_until("the snapshot", look, is_ready).await;
    }
    let full = take(&secret).await;
    let message = refused(&full);
    assert!(
        message.starts_with("the API key ci has a quota of") && message.contains("snapshots"),
        "{message}"
    );
    assert_eq!(take(osb_testkit::API_KEY).await.0, 202, "no quota");
    let delete = server.request_as(&secret, Method::DELETE, &taken);
    assert_eq!(answer(delete).await.0, 204);
    assert_eq!(take(&secret).await.0, 202, "there is room again");
    server.stop().await;
}

#[tokio::test]
async fn built_templates_count_for_disk() {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let sim = Arc::new(SimRuntime::with_options(options));
    let folder = tempfile::tempdir().unwrap();
    let more = "[quotas.key]\ndisk = '1500'\n[templates]\nallow_builds = true";
    let server = TestServer::over(sim as _, folder.path(), more).await;
    let server = server.unwrap();
    let secret = operator(&server, "ci").await;
    let add = async || {
        let body = json!({"build": {"dockerfile": "FROM a"}, "publish": "p"});
        let request = server.request_as(&secret, Method::POST, "/v1/templates");
        answer(request.json(&body)).await
    };
    for _ in 0..2 {
        // Each has 1,000 bytes.
        let (status, added) = add().await;
        assert_eq!(status, 201, "{added}");
        let path = format!("/v1/templates/{}", added["templateId"].as_str().unwrap());
        let look = async || answer(server.request(Method::GET, &path)).await.1;
        let is_made = |seen: &Value| seen["status"]["phase"] == "Succeeded";
        wait_until("the template", look, is_made).await;
    }
    let full = add().await;
    let message = refused(&full);
    assert!(message.contains("snapshots and templates"), "{message}");
    server.stop().await;
}
