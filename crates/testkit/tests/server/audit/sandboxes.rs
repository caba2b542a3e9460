//! What is done to sandboxes, by clients and by the server itself.

use std::sync::Arc;

use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_testkit::{API_KEY, TestServer, soon, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, net::TcpStream};

use super::{answer, entries, entry_of, key, of_request};

#[tokio::test]
async fn the_life_of_a_sandbox_is_recorded_with_what_changed() {
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let (server, _sim) = TestServer::sim_with(options).await.unwrap();
    let mut body = TestServer::good_create();
    body["env"] = json!({"TOKEN": "hunter2"});
    body["image"]["auth"] = json!({"username": "u", "password": "hunter3"});
    body["metadata"] = json!({"team": "a"});
    let create = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let created = entry_of(&server, "create", create).await;
    assert_eq!(
        (
            &created["action"],
            &created["outcome"],
            &created["actor"]["kind"]
        ),
        (
            &json!("sandbox.create"),
            &json!("succeeded"),
            &json!("configured_key")
        )
    );
    let facts = &created["changes"];
    assert_eq!(
        (
            &facts["image"],
            &facts["resources"]["cpu"],
            &facts["metadata"]["team"]
        ),
        (&json!("debian:12"), &json!("500m"), &json!("a"))
    );
    let id = created["object"]["id"].as_str().unwrap().to_owned();
    let path = |rest: &str| format!("/v1/sandboxes/{id}{rest}");
    let renew = server.request(Method::POST, &path("/renew-expiration"));
    let renew = renew.json(&json!({"expiresAt": "2900-01-01T00:00:00Z"}));
    let renewed = entry_of(&server, "renew", renew).await;
    let expiry = json!({"before": facts["expiresAt"], "after": "2900-01-01T00:00:00Z"});
    assert_eq!(renewed["changes"]["expiresAt"], expiry);
    let patch = server.request(Method::PATCH, &path("/metadata"));
    let patch = patch.json(&json!({"team": "b", "new": "c"}));
    let patched = entry_of(&server, "patch", patch).await;
    let changes = json!({
        "metadata.new": {"after": "c"},
        "metadata.team": {"before": "a", "after": "b"},
    });
    assert_eq!(patched["changes"], changes);
    for verb in ["pause", "resume"] {
        let request = server.request(Method::POST, &path(&format!("/{verb}")));
        let entry = entry_of(&server, verb, request).await;
        assert_eq!(entry["action"], format!("sandbox.{verb}"));
        assert_eq!(entry["outcome"], "succeeded");
    }
    answer(server.request(Method::GET, &path(""))).await;
    answer(server.request(Method::GET, "/v1/sandboxes")).await;
    let delete = server.request(Method::DELETE, &path(""));
    entry_of(&server, "delete", delete).await;
    let life = entries(&server, &format!("sandbox={id}")).await;
    let actions: Vec<_> = life
        .iter()
        .map(|it| it["action"].as_str().unwrap())
        .collect();
    let expected = [
        "sandbox.create",
        "sandbox.renew",
        "metadata.patch",
        "sandbox.pause",
        "sandbox.resume",
        "sandbox.delete",
    ];
    assert_eq!(actions, expected, "in order, and no reads");
    let all = entries(&server, "").await;
    assert!(!json!(all).to_string().contains("hunter"), "{all:?}");
    server.stop().await;
}

#[tokio::test]
async fn a_refused_create_says_why_and_an_idempotent_one_which_sandbox() {
    let more = "[quotas]\nsandboxes = 1";
    let server = TestServer::around([], more).await.unwrap();
    let (_, secret) = key(
        &server,
        json!({"name": "k", "role": "operator", "tenant": "a"}),
    )
    .await;
    let create = |body: Value| {
        let request = server.request_as(&secret, Method::POST, "/v1/sandboxes");
        request.header("idempotency-key", "same").json(&body)
    };
    let first = entry_of(&server, "first", create(TestServer::good_create())).await;
    let again = entry_of(&server, "again", create(TestServer::good_create())).await;
    assert_eq!(again["object"], first["object"]);
    assert_eq!(again["changes"], json!({"replayed": true}));
    assert_eq!(first["changes"].get("replayed"), None);
    assert_eq!(
        (&again["tenant"], &again["status"]),
        (&json!("a"), &json!(202))
    );
    let request = server.request_as(&secret, Method::POST, "/v1/sandboxes");
    let full = entry_of(&server, "full", request.json(&TestServer::good_create())).await;
    assert_eq!(
        (&full["outcome"], &full["code"]),
        (&json!("denied"), &json!("SANDBOX::QUOTA_EXCEEDED"))
    );
    let request = server.request_as(&secret, Method::POST, "/v1/sandboxes");
    let bad = entry_of(&server, "bad", request.json(&json!({}))).await;
    assert_eq!(
        (&bad["outcome"], &bad["object"]["id"]),
        (&json!("failed"), &json!(""))
    );
    server.stop().await;
}

#[tokio::test]
async fn what_the_server_does_by_itself_is_its_own() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let create = server.request(Method::POST, "/v1/sandboxes");
    let created = entry_of(&server, "create", create.json(&TestServer::good_create())).await;
    let id = created["object"]["id"].as_str().unwrap().to_owned();
    let renew = server.request(
        Method::POST,
        &format!("/v1/sandboxes/{id}/renew-expiration"),
    );
    let (status, body) = answer(renew.json(&json!({"expiresAt": soon().to_string()}))).await;
    assert_eq!(status, 200, "{body}");
    let query = format!("sandbox={id}&action=sandbox.expire");
    let expired = wait_until(
        "the expiry",
        || entries(&server, &query),
        |found: &Vec<Value>| !found.is_empty(),
    )
    .await;
    assert_eq!(
        (expired.len(), &expired[0]["actor"]["kind"]),
        (1, &json!("system"))
    );
    server.stop().await;
}

#[tokio::test]
async fn an_act_whose_client_is_gone_is_recorded_as_unanswered() {
    let (server, sim) = TestServer::sim().await.unwrap();
    sim.set_faults(Faults {
        start_gate: Some(Arc::default()),
        ..Faults::default()
    });
    let body = TestServer::good_create().to_string();
    let request = format!(
        "POST /v1/sandboxes HTTP/1.1\r\nHost: test\r\nOPEN-SANDBOX-API-KEY: {API_KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(server.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let listed = async || {
        let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
        list["items"].as_array().unwrap().clone()
    };
    let is_pending = |items: &Vec<Value>| !items.is_empty();
    let pending = wait_until("the create", listed, is_pending).await;
    // A reset shows at once.
    client.set_zero_linger().unwrap();
    drop(client);
    let id = pending[0]["id"].as_str().unwrap();
    let query = format!("sandbox={id}");
    let look = || entries(&server, &query);
    let found = wait_until("both entries", look, |found: &Vec<Value>| found.len() == 2).await;
    let of = |action: &str| found.iter().find(|it| it["action"] == action).unwrap();
    let (created, abandoned) = (of("sandbox.create"), of("sandbox.abandon"));
    let seen = (&created["outcome"], &created["code"], created.get("status"));
    assert_eq!(seen, (&json!("failed"), &json!("UNANSWERED"), None));
    assert_eq!(created["actor"]["kind"], "configured_key");
    assert_eq!(abandoned["actor"]["kind"], "system");
    server.stop().await;
}

#[tokio::test]
async fn the_second_of_two_equal_creates_at_once_is_noted_as_a_replay() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let gate = Arc::<tokio::sync::Notify>::default();
    sim.set_faults(Faults {
        start_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    let create = |id: &str| {
        let request = server.request(Method::POST, "/v1/sandboxes");
        let request = request.header("idempotency-key", "same");
        let request = request.header("x-request-id", id);
        answer(request.json(&TestServer::good_create()))
    };
    let open = async {
        let listed = async || {
            let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
            list["items"].as_array().unwrap().clone()
        };
        wait_until("the create", listed, |items: &Vec<Value>| !items.is_empty()).await;
        let joined = create("second");
        let opened = async { gate.notify_one() };
        tokio::join!(joined, opened).0
    };
    let (first, second) = tokio::join!(create("first"), open);
    assert_eq!(
        (first.0, second.0),
        (StatusCode::ACCEPTED, StatusCode::ACCEPTED)
    );
    let created = of_request(&server, "first").await;
    let joined = of_request(&server, "second").await;
    assert_eq!(created[0]["object"], joined[0]["object"]);
    assert_eq!(created[0]["changes"].get("replayed"), None);
    assert_eq!(joined[0]["changes"], json!({"replayed": true}));
    server.stop().await;
}

#[tokio::test]
async fn an_expiry_that_a_restart_repeats_has_one_entry() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap()
    };
    let server = start().await;
    let create = server.request(Method::POST, "/v1/sandboxes");
    let created = entry_of(&server, "create", create.json(&TestServer::good_create())).await;
    let id = created["object"]["id"].as_str().unwrap().to_owned();
    sim.set_faults(Faults {
        remove_fails: Some("busy".to_owned()),
        ..Faults::default()
    });
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    let renew = server.request(Method::POST, &path);
    let renewed = answer(renew.json(&json!({"expiresAt": soon().to_string()}))).await;
    assert_eq!(renewed.0, StatusCode::OK, "{renewed:?}");
    let query = format!("sandbox={id}&action=sandbox.expire");
    let expired = async |server: &TestServer| {
        let look = || entries(server, &query);
        wait_until("the expiry", look, |found: &Vec<Value>| !found.is_empty()).await
    };
    let first = expired(&server).await;
    server.stop().await;
    drop(server);
    // The next server finds the sandbox with the same deadline, and removes it.
    sim.set_faults(Faults::default());
    let server = start().await;
    let path = format!("/v1/sandboxes/{id}");
    let look = async || answer(server.request(Method::GET, &path)).await.0;
    wait_until("its end", look, |seen| *seen == StatusCode::NOT_FOUND).await;
    of_request(&server, "last").await;
    assert_eq!(expired(&server).await, first);
    server.stop().await;
}
