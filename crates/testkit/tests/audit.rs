//! The audit trail: an entry for every act and every denial, none for reads.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use osb_protocol::identity::Role;
use osb_runtime::{
    EXECD_PORT,
    sim::{Faults, Options, SimRuntime},
};
use osb_server::{
    audit::Action,
    http::{Effect, effect},
};
use osb_testkit::{API_KEY, CannedProgram, Schema, TestServer, running_at, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};
use tokio::{io::AsyncWriteExt, net::TcpStream};

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

async fn key(server: &TestServer, body: Value) -> (String, String) {
    let request = server.request(Method::POST, "/v1/api-keys").json(&body);
    let (status, body) = answer(request).await;
    assert_eq!(status, 201, "{body}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&body["apiKey"]["id"]), text(&body["secret"]))
}

/// Entries of a query, oldest first.
async fn entries(server: &TestServer, query: &str) -> Vec<Value> {
    let path = format!("/v1/audit?limit=1000&{query}");
    let (status, page) = answer(server.request(Method::GET, &path)).await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(page.get("next"), None, "one page holds them all");
    let mut items = page["items"].as_array().unwrap().clone();
    items.reverse();
    items
}

/// The entries with the id of a request, once there is one. What was recorded before a later act that
/// is stored, is stored as well, so an act as a mark shows that no further entry follows.
async fn of_request(server: &TestServer, id: &str) -> Vec<Value> {
    let mark = format!("mark-{id}");
    let request = server.request(Method::DELETE, "/v1/users/none");
    answer(request.header("x-request-id", &mark)).await;
    let look = || entries(server, "");
    let has_mark = |all: &Vec<Value>| all.iter().any(|it| it["requestId"] == json!(mark));
    let all = wait_until("the mark", look, has_mark).await;
    let own = all.into_iter().filter(|it| it["requestId"] == json!(id));
    own.collect()
}

/// Documented routes, and those of features that the runtime may lack.
async fn routes(server: &TestServer) -> Vec<(Method, String)> {
    let (_, document) = answer(server.bare(Method::GET, "/openapi.json")).await;
    let mut routes = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/v1/") {
            continue;
        }
        for method in item.as_object().unwrap().keys() {
            let method = method.to_ascii_uppercase();
            if let "GET" | "PUT" | "POST" | "DELETE" | "PATCH" = method.as_str() {
                routes.push((method.parse().unwrap(), path.clone()));
            }
        }
    }
    for (methods, path) in [
        ("POST", "/v1/sandboxes/{id}/snapshots"),
        ("DELETE", "/v1/snapshots/{id}"),
        ("POST", "/v1/pools"),
        ("PUT DELETE", "/v1/pools/{name}"),
        ("POST", "/v1/templates"),
        ("DELETE", "/v1/templates/{id}"),
        ("PUT PATCH DELETE", "/v1/sandboxes/{id}/networkpolicy"),
    ] {
        for method in methods.split(' ') {
            let route = (method.parse().unwrap(), path.to_owned());
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
    }
    routes
}

/// What a request to a route should leave behind.
fn outcome_of(status: StatusCode) -> &'static str {
    match status.as_u16() {
        ..=399 => "succeeded",
        401 | 403 => "denied",
        _ => "failed",
    }
}

async fn every_route_leaves_what_it_should(options: Options) {
    let (server, _sim) = TestServer::sim_with(options).await.unwrap();
    let routes = routes(&server).await;
    assert!(routes.len() > 20, "{routes:?}");
    let (operator, secret) = key(&server, json!({"name": "op", "role": "operator"})).await;
    let (reader, reading) = key(&server, json!({"name": "r", "role": "read_only"})).await;
    let mut sent = Vec::new();
    for (number, (method, pattern)) in routes.iter().enumerate() {
        // The route itself: what is no read has a name, or is known to read.
        let known = effect(method, pattern);
        let known = known.unwrap_or_else(|| panic!("{method} {pattern} has no row"));
        let reads = *method == Method::GET || pattern == "/v1/metrics/events";
        assert_eq!(known == Effect::Reads, reads, "{method} {pattern}");
        let path = pattern.replace("{id}", "none").replace("{name}", "none");
        let path = path.replace("{port}", "80");
        for (actor, key) in [(&operator, &secret), (&reader, &reading)] {
            let id = format!("request-{number}-{actor}");
            let request = server.request_as(key, method.clone(), &path);
            let request = request.header("x-request-id", &id).json(&json!({}));
            let (status, body) = answer(request).await;
            sent.push((id, actor, method, pattern, known, status, body));
        }
    }
    of_request(&server, "last").await;
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in entries(&server, "").await {
        let id = entry["requestId"].as_str().unwrap_or_default().to_owned();
        found.entry(id).or_default().push(entry);
    }
    for (id, actor, method, pattern, known, status, body) in sent {
        let found = found.remove(&id).unwrap_or_default();
        let route = format!("{method} {pattern}: {status}: {found:?}");
        let Effect::Acts(action) = known else {
            let denied = found.iter().all(|it| it["action"] == "access.denied");
            assert!(found.len() <= 1 && denied, "{route}");
            assert!(status == 403 || found.is_empty(), "{route}");
            continue;
        };
        let [entry] = &found[..] else {
            panic!("{} entries: {route}", found.len());
        };
        assert_eq!(entry["action"], action.name(), "{route}");
        assert_eq!(entry["object"]["kind"], action.object(), "{route}");
        if pattern.contains('{') {
            assert_eq!(entry["object"]["id"], "none", "{route}");
        }
        assert_eq!(entry["outcome"], outcome_of(status), "{route}");
        assert_eq!(entry["status"], status.as_u16(), "{route}");
        assert_eq!(entry["code"], body["code"], "{route}");
        let seen = (&entry["actor"]["kind"], &entry["actor"]["id"]);
        assert_eq!(seen, (&json!("api_key"), &json!(actor)), "{route}");
        assert_eq!(entry["address"], "127.0.0.1", "{route}");
        assert_eq!(entry["count"], 1, "{route}");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_route_leaves_one_entry_of_each_act_on_a_runtime_with_all_powers() {
    every_route_leaves_what_it_should(Options {
        powers: true,
        ..Options::default()
    })
    .await;
}

#[tokio::test]
async fn every_route_leaves_one_entry_of_each_act_on_a_runtime_without_powers() {
    every_route_leaves_what_it_should(Options::default()).await;
}

/// Sends a request with this id; its entry.
async fn entry_of(server: &TestServer, id: &str, request: RequestBuilder) -> Value {
    let (status, body) = answer(request.header("x-request-id", id)).await;
    let mut found = of_request(server, id).await;
    assert_eq!(found.len(), 1, "{status} {body}: {found:?}");
    found.remove(0)
}

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
async fn accounts_are_recorded_without_secrets() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let zoe = json!({"name": "zoe", "password": "hunter2 hunter2", "tenant": "a"});
    let add = server.request(Method::POST, "/v1/users").json(&zoe);
    let added = entry_of(&server, "add", add).await;
    assert_eq!(
        (&added["changes"]["name"], &added["tenant"]),
        (&json!("zoe"), &json!("a"))
    );
    let path = format!("/v1/users/{}", added["object"]["id"].as_str().unwrap());
    let edit = json!({"role": "operator", "disabled": true, "password": "hunter3 hunter3"});
    let edit = server.request(Method::PATCH, &path).json(&edit);
    let edited = entry_of(&server, "edit", edit).await;
    let changes = json!({
        "name": "zoe",
        "role": {"before": "read_only", "after": "operator"},
        "disabled": {"before": false, "after": true},
        "passwordChanged": true,
    });
    assert_eq!(edited["changes"], changes);
    let delete = server.request(Method::DELETE, &path);
    let deleted = entry_of(&server, "delete", delete).await;
    assert_eq!(deleted["changes"]["name"], "zoe");
    let (id, secret) = key(&server, json!({"name": "ci"})).await;
    let revoke = server.request(Method::DELETE, &format!("/v1/api-keys/{id}"));
    let revoked = entry_of(&server, "revoke", revoke).await;
    assert_eq!(revoked["changes"]["name"], "ci");
    let all = json!(entries(&server, "").await).to_string();
    assert!(!all.contains("hunter") && !all.contains(&secret), "{all}");
    server.stop().await;
}

#[tokio::test]
async fn wrong_keys_are_counted_together_and_the_right_one_reads_unseen() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for _ in 0..20 {
        let request = server.request_as("hunter2", Method::GET, "/v1/sandboxes");
        assert_eq!(answer(request).await.0, 401);
        answer(server.request(Method::GET, "/v1/sandboxes")).await;
    }
    assert_eq!(
        answer(server.bare(Method::POST, "/v1/sandboxes")).await.0,
        401
    );
    of_request(&server, "last").await;
    let denied = entries(&server, "outcome=denied").await;
    let seen: Vec<_> = denied
        .iter()
        .map(|it| (it["action"].as_str().unwrap(), it["code"].as_str().unwrap()))
        .collect();
    let expected = [
        ("access.denied", "INVALID_API_KEY"),
        ("sandbox.create", "MISSING_API_KEY"),
    ];
    assert_eq!(seen, expected, "the others wait for the end of the window");
    assert_eq!(denied[0]["actor"]["kind"], "unknown");
    assert!(!json!(denied).to_string().contains("hunter"), "{denied:?}");
    server.stop().await;
}

#[tokio::test]
async fn what_the_server_does_by_itself_is_its_own() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let create = server.request(Method::POST, "/v1/sandboxes");
    let created = entry_of(&server, "create", create.json(&TestServer::good_create())).await;
    let id = created["object"]["id"].as_str().unwrap().to_owned();
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(300);
    let renew = server.request(
        Method::POST,
        &format!("/v1/sandboxes/{id}/renew-expiration"),
    );
    let (status, body) = answer(renew.json(&json!({"expiresAt": soon.to_string()}))).await;
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
async fn entries_survive_a_restart_and_an_export_has_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap()
    };
    let server = start().await;
    let acts = 1_203;
    for number in 0..acts {
        let path = format!("/v1/users/=cmd|{number}");
        answer(server.request(Method::DELETE, &path)).await;
    }
    server.stop().await;
    drop(server);
    let server = start().await;
    for (query, accept) in [("?format=csv", "*/*"), ("", "text/csv")] {
        let request = server.request(Method::GET, &format!("/v1/audit{query}"));
        let response = request.header("accept", accept).send().await.unwrap();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(kind.starts_with("text/csv"), "{kind}");
        let text = response.text().await.unwrap();
        let rows: Vec<_> = text.split_terminator("\r\n").collect();
        assert_eq!(rows.len(), acts + 1, "with the names of the columns");
        assert!(
            rows[1].contains(&format!(",\"'=cmd|{}\",", acts - 1)),
            "{}",
            rows[1]
        );
        assert!(rows[0].starts_with("id,at,action,outcome,"), "{}", rows[0]);
    }
    let request = server.request(Method::GET, "/v1/audit?format=jsonl&action=user.delete");
    let text = request.send().await.unwrap().text().await.unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(lines.len(), acts);
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let path = format!("/v1/audit?limit=500{cursor}");
        let (status, page) = answer(server.request(Method::GET, &path)).await;
        assert_eq!(status, 200, "{page}");
        seen.extend(page["items"].as_array().unwrap().clone());
        // Entries that come meanwhile neither hide nor repeat others.
        answer(server.request(Method::DELETE, "/v1/users/meanwhile")).await;
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, lines);
    server.stop().await;
}

#[tokio::test]
async fn a_query_is_checked_and_needs_an_administrator() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let bad = "since=x&until=y&outcome=z&cursor=-1&limit=0&format=xml";
    let (status, body) = answer(server.request(Method::GET, &format!("/v1/audit?{bad}"))).await;
    assert_eq!(status, 422, "{body}");
    let fields = body["detail"].as_array().unwrap().iter();
    let mut fields: Vec<_> = fields.map(|it| it["loc"][1].as_str().unwrap()).collect();
    fields.sort_unstable();
    let expected = ["cursor", "format", "limit", "outcome", "since", "until"];
    assert_eq!(fields, expected, "{body}");
    for role in Role::ALL {
        let (_, secret) = key(&server, json!({"name": role, "role": role})).await;
        let (status, _) = answer(server.request_as(&secret, Method::GET, "/v1/audit")).await;
        let expected = if role == Role::ServiceAdmin { 200 } else { 403 };
        assert_eq!(status, expected, "{role}");
    }
    let (status, _) = answer(server.request_as(API_KEY, Method::GET, "/v1/audit")).await;
    assert_eq!(status, 200);
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_kept_when_it_is_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    for (more, expected) in [("[audit]\nenabled = false", 0), ("", 0), ("", 1)] {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
        let server = server.unwrap();
        assert_eq!(entries(&server, "").await.len(), expected, "{more}");
        answer(server.request(Method::DELETE, "/v1/users/none")).await;
        server.stop().await;
    }
}

#[test]
fn every_action_can_be_found_in_the_documentation() {
    let page = include_str!("../../../docs/operations.md");
    for action in Action::ALL {
        let name = format!("`{}`", action.name());
        assert!(page.contains(&name), "docs/operations.md lacks {name}");
    }
}

const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 62));
const UPGRADED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

#[tokio::test]
async fn ways_into_a_sandbox_are_recorded_and_what_goes_through_them_is_not() {
    let program = CannedProgram::start(INSIDE, UPGRADED).await.unwrap();
    let execd = (INSIDE, EXECD_PORT).into();
    let _execd = CannedProgram::start_at(execd, ANSWER).await.unwrap();
    let mut sandbox = running_at("a", INSIDE, Some("token-of-a"));
    sandbox.origin.tenant = Some(Arc::from("team"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let port = program.address.port();
    let upgrade = |request: RequestBuilder| {
        let request = request.header("connection", "upgrade");
        request.header("upgrade", "x")
    };
    let path = format!("/v1/sandboxes/a/proxy/{port}/secret-path");
    let opened = upgrade(server.request(Method::GET, &path));
    let opened = entry_of(&server, "tunnel", opened).await;
    let tunnel = (
        &opened["action"],
        &opened["object"]["id"],
        &opened["changes"]["port"],
    );
    assert_eq!(tunnel, (&json!("tunnel.open"), &json!("a"), &json!(port)));
    assert_eq!(
        (&opened["actor"]["kind"], &opened["tenant"]),
        (&json!("configured_key"), &json!("team"))
    );
    let keyless = upgrade(server.bare(Method::GET, &path));
    let keyless = entry_of(&server, "keyless", keyless).await;
    assert_eq!(keyless["actor"]["kind"], "unknown");
    let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
    for id in ["first", "second", "third"] {
        let request = server
            .request(Method::POST, &command)
            .header("x-request-id", id);
        answer(request.json(&json!({"command": "secret"}))).await;
        answer(server.request(Method::GET, &command)).await;
    }
    of_request(&server, "last").await;
    let entered = entries(&server, "action=sandbox.enter").await;
    let [entered] = &entered[..] else {
        panic!("{entered:?}");
    };
    assert_eq!(
        entered["requestId"], "first",
        "the others wait for the end of the hour"
    );
    let all = json!(entries(&server, "sandbox=a").await).to_string();
    assert!(!all.contains("secret") && !all.contains("token"), "{all}");
    server.stop().await;
}

const REFUSED: &str =
    "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno";

#[tokio::test]
async fn a_client_without_a_key_cannot_fill_the_trail() {
    const PLAIN: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 63));
    const TUNNEL: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 64));
    let plain = CannedProgram::start(PLAIN, ANSWER).await.unwrap();
    let tunnel = CannedProgram::start(TUNNEL, UPGRADED).await.unwrap();
    let sandboxes = [
        running_at("plain", PLAIN, Some("token")),
        running_at("tunnel", TUNNEL, Some("token")),
    ];
    let server = TestServer::around(sandboxes, "").await.unwrap();
    for number in 0..10 {
        let path = format!("/v1/sandboxes/invented-{number}");
        let denied = answer(server.bare(Method::DELETE, &path)).await;
        assert_eq!(denied.0, 401);
        for (id, program, status) in [("plain", &plain, 200), ("tunnel", &tunnel, 101)] {
            let path = format!("/v1/sandboxes/{id}/proxy/{}/", program.address.port());
            let request = server.bare(Method::GET, &path);
            let request = request.header("connection", "upgrade");
            let response = request.header("upgrade", "x").send().await.unwrap();
            assert_eq!(response.status(), status);
        }
    }
    of_request(&server, "last").await;
    let all = entries(&server, "").await;
    let seen: Vec<_> = all
        .iter()
        .filter(|it| it["actor"]["kind"] == "unknown")
        .map(|it| {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            (text(&it["action"]), text(&it["object"]["id"]))
        })
        .collect();
    let expected = [("sandbox.delete", "invented-0"), ("tunnel.open", "tunnel")];
    let expected = expected.map(|(action, id)| (action.to_owned(), id.to_owned()));
    assert_eq!(
        seen, expected,
        "the others wait for the end of their windows"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_use_that_execd_refuses_is_no_success() {
    const AWAY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 65));
    let execd = (AWAY, EXECD_PORT).into();
    let _execd = CannedProgram::start_at(execd, REFUSED).await.unwrap();
    let mut sandbox = running_at("a", AWAY, Some("token-of-a"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let command = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
    let entered = entry_of(&server, "refused", server.bare(Method::POST, &command)).await;
    let seen = (&entered["action"], &entered["outcome"], &entered["status"]);
    let expected = (&json!("sandbox.enter"), &json!("denied"), &json!(401));
    assert_eq!(seen, expected);
    server.stop().await;
}

/// Locks the database as another process would.
#[tokio::test]
async fn a_store_that_is_locked_while_the_server_stops_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    if Schema::of(folder.path()).unwrap().is_some() {
        eprintln!("SKIPPED: only a file can be locked");
        return;
    }
    let sim = Arc::new(SimRuntime::new());
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap()
    };
    let server = start().await;
    let file = SqliteConnectOptions::new().filename(folder.path().join("store.db"));
    let mut other = file.connect().await.unwrap();
    let lock = sqlx::query("BEGIN IMMEDIATE").execute(&mut other);
    lock.await.unwrap();
    answer(server.request(Method::DELETE, "/v1/users/last")).await;
    let unlock = async {
        // Longer than two writes wait for the lock.
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        let unlock = sqlx::query("ROLLBACK").execute(&mut other);
        unlock.await.unwrap();
    };
    tokio::join!(server.stop(), unlock);
    drop(server);
    let server = start().await;
    let stored = entries(&server, "action=user.delete").await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    other.close().await.unwrap();
    server.stop().await;
}

/// Locks the database as another process would.
#[tokio::test]
async fn acts_go_on_while_the_store_is_away_and_are_stored_later_in_order() {
    let folder = tempfile::tempdir().unwrap();
    if Schema::of(folder.path()).unwrap().is_some() {
        eprintln!("SKIPPED: only a file can be locked");
        return;
    }
    let sim = Arc::new(SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    let file = SqliteConnectOptions::new().filename(folder.path().join("store.db"));
    let mut other = file.connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    for number in 0..20 {
        let path = format!("/v1/sandboxes/{number}/metadata");
        let request = server
            .request(Method::PATCH, &path)
            .json(&json!({"a": "b"}));
        assert_eq!(answer(request).await.0, 404);
    }
    assert_eq!(entries(&server, "").await, [] as [Value; 0]);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    let look = || entries(&server, "");
    let all = wait_until("the entries", look, |all: &Vec<Value>| all.len() == 20).await;
    let ids: Vec<_> = all
        .iter()
        .map(|it| it["object"]["id"].as_str().unwrap())
        .collect();
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(ids, expected);
    other.close().await.unwrap();
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
