//! Tenants: each sees and touches its own sandboxes only, in every route and whatever its role.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use futures::StreamExt;
use osb_protocol::identity::Role;
use osb_runtime::Observed;
use osb_testkit::{CannedProgram, TestServer, connect_from, running_at, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::{
    client_async,
    tungstenite::{Message, client::IntoClientRequest},
};

const TEAMS: &str = "[[tenants]]\nname = 'team-a'\nnamespace = 'ns'\napi_keys = ['key-a', 'key-a2']\n\
    [[tenants]]\nname = 'team-b'\nnamespace = 'ns'\napi_keys = ['key-b']\n";
const INSIDE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 61));
const ANSWER: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\ninside";

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn of_tenant(id: &str, tenant: Option<&str>) -> Observed {
    let mut sandbox = running_at(id, INSIDE, Some("token"));
    sandbox.origin.tenant = tenant.map(Arc::from);
    sandbox
}

fn sandboxes() -> [Observed; 3] {
    [
        of_tenant("of-a", Some("team-a")),
        of_tenant("of-b", Some("team-b")),
        of_tenant("unlabelled", None),
    ]
}

async fn with_file() -> (TestServer, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants(sandboxes(), folder.path()).await;
    (server.unwrap(), folder)
}

async fn ids(server: &TestServer, key: &str) -> Vec<String> {
    let (status, body) = answer(server.request_as(key, Method::GET, "/v1/sandboxes")).await;
    assert_eq!(status, 200, "{body}");
    let items = body["items"].as_array().unwrap().iter();
    let mut ids: Vec<String> = items
        .map(|it| it["id"].as_str().unwrap().to_owned())
        .collect();
    ids.sort();
    assert_eq!(body["pagination"]["totalItems"], json!(ids.len()), "{body}");
    ids
}

/// Every route of one sandbox.
fn routes(id: &str, port: u16) -> Vec<(Method, String, Value)> {
    let route = |method, path: &str, body| (method, format!("/v1/sandboxes/{id}{path}"), body);
    vec![
        route(Method::GET, "", Value::Null),
        route(Method::GET, "/endpoints/80", Value::Null),
        route(Method::GET, &format!("/proxy/{port}/"), Value::Null),
        route(Method::GET, &format!("/proxy/{port}"), Value::Null),
        route(Method::PATCH, "/metadata", json!({"k": "v"})),
        route(
            Method::POST,
            "/renew-expiration",
            json!({"expiresAt": "2900-01-01T00:00:00Z"}),
        ),
        route(Method::DELETE, "", Value::Null),
    ]
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_is_not_found_by_any_role_in_any_route() {
    let program = CannedProgram::start(INSIDE, ANSWER).await.unwrap();
    let server = TestServer::around(sandboxes(), "").await.unwrap();
    let port = program.address.port();
    for (role, tenant) in [
        (Role::ReadOnly, Some("team-a")),
        (Role::Operator, Some("team-a")),
        (Role::ReadOnly, None),
        (Role::Operator, None),
        (Role::ServiceAdmin, None),
    ] {
        let new = json!({"name": "k", "role": role, "tenant": tenant});
        let request = server.request(Method::POST, "/v1/api-keys").json(&new);
        let (_, issued) = answer(request).await;
        let key = issued["secret"].as_str().unwrap();
        let seen = ids(&server, key).await;
        match tenant {
            Some(_) => assert_eq!(seen, ["of-a"]),
            None => assert_eq!(seen, ["of-a", "of-b", "unlabelled"]),
        }
        for id in ["of-b", "unlabelled", "missing"] {
            for (method, path, body) in routes(id, port) {
                if tenant.is_none() && id != "missing" {
                    // The last role would delete it for those after it.
                    continue;
                }
                let request = server.request_as(key, method.clone(), &path).json(&body);
                let (status, body) = answer(request).await;
                let may_ask = role >= Role::Operator || method == Method::GET;
                let expected = if may_ask { 404 } else { 403 };
                assert_eq!(
                    status, expected,
                    "{role} {tenant:?}: {method} {path}: {body}"
                );
                if may_ask {
                    assert_eq!(body["code"], "DOCKER::SANDBOX_NOT_FOUND", "{method} {path}");
                    let message = body["message"].as_str().unwrap().replace(id, "ID");
                    assert_eq!(message, "sandbox ID not found", "as if it did not exist");
                }
            }
        }
        for (method, path, _) in routes("of-a", port) {
            if method == Method::GET && !path.contains("endpoints") {
                let (status, body) = answer(server.request_as(key, method, &path)).await;
                assert_eq!(status, 200, "{role} {tenant:?}: {path}: {body}");
            }
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_of_the_file_works_in_its_own_scope() {
    let (server, _folder) = with_file().await;
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    assert_eq!(ids(&server, "key-a2").await, ["of-a"]);
    let create = server.request_as("key-b", Method::POST, "/v1/sandboxes");
    let (status, made) = answer(create.json(&TestServer::good_create())).await;
    assert_eq!(status, 202, "{made}");
    let id = made["id"].as_str().unwrap();
    assert!(ids(&server, "key-b").await.contains(&id.to_owned()));
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    let path = format!("/v1/sandboxes/{id}");
    let (status, _) = answer(server.request_as("key-a", Method::DELETE, &path)).await;
    assert_eq!(status, 404);
    let (status, _) = answer(server.request_as("key-b", Method::DELETE, &path)).await;
    assert_eq!(status, 204);
    // Root in it could become root on the host, and so reach the other tenants.
    let mut isolated = TestServer::good_create();
    isolated["extensions"] = json!({"bootstrap.execd.isolation": "enable"});
    let create = server.request_as("key-a", Method::POST, "/v1/sandboxes");
    let (status, body) = answer(create.json(&isolated)).await;
    assert_eq!(status, 400, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("never to a tenant"),
        "{body}"
    );
    for path in ["/v1/users", "/v1/api-keys", "/v1/sessions"] {
        let (status, _) = answer(server.request_as("key-a", Method::GET, path)).await;
        assert_eq!(status, 403, "{path}");
    }
    let (status, body) = answer(server.request_as("key-a", Method::GET, "/v1/whoami")).await;
    let seen = (status.as_u16(), &body["tenant"], &body["role"]);
    assert_eq!(seen, (200, &json!("team-a"), &json!("operator")));
    for (key, code) in [("", "MISSING_API_KEY"), ("key-c", "INVALID_API_KEY")] {
        let (status, body) = answer(server.request_as(key, Method::GET, "/v1/sandboxes")).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!(code)),
            "{key}"
        );
    }
    let (status, _) = answer(server.bare(Method::GET, "/health")).await;
    assert_eq!(status, 200);
    server.stop().await;
}

#[tokio::test]
async fn one_idempotency_key_of_two_tenants_makes_two_sandboxes() {
    let (server, _folder) = with_file().await;
    let create = async |key: &str| {
        let request = server.request_as(key, Method::POST, "/v1/sandboxes");
        let request = request.header("idempotency-key", "same");
        let (status, body) = answer(request.json(&TestServer::good_create())).await;
        assert_eq!(status, 202, "{body}");
        body["id"].as_str().unwrap().to_owned()
    };
    let (one, other) = (create("key-a").await, create("key-b").await);
    assert_ne!(one, other);
    assert_eq!(create("key-a").await, one);
    server.stop().await;
}

#[tokio::test]
async fn with_tenants_the_proxy_needs_the_key_of_the_sandboxs_tenant() {
    let program = CannedProgram::start(INSIDE, ANSWER).await.unwrap();
    let (server, _folder) = with_file().await;
    let port = program.address.port();
    let path = format!("/sandboxes/of-a/proxy/{port}/");
    for (key, status, code) in [
        ("key-a", 200, ""),
        ("key-b", 404, "DOCKER::SANDBOX_NOT_FOUND"),
        ("", 401, "MISSING_API_KEY"),
        ("key-c", 401, "INVALID_API_KEY"),
    ] {
        for path in [path.clone(), format!("/v1{path}")] {
            let (seen, body) = answer(server.request_as(key, Method::GET, &path)).await;
            let code_seen = body["code"].as_str().unwrap_or_default();
            assert_eq!((seen.as_u16(), code_seen), (status, code), "{key} {path}");
        }
    }
    // The token of execd alone is not enough, as it is without tenants.
    let request = server.bare(Method::GET, &path);
    let request = request.header("x-execd-access-token", "token");
    assert_eq!(answer(request).await.0, 401);
    for (key, reason) in [
        (None, "missing API key"),
        (Some("key-c"), "invalid API key"),
        (Some("key-b"), "sandbox of-a not found"),
    ] {
        let url = format!("ws://{}{path}", server.address);
        let mut request = url.into_client_request().unwrap();
        if let Some(key) = key {
            let headers = request.headers_mut();
            headers.insert("open-sandbox-api-key", key.parse().unwrap());
        }
        let source = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let stream = connect_from(source, server.address).await.unwrap();
        let (mut socket, _) = client_async(request, stream).await.unwrap();
        let Some(Ok(Message::Close(Some(close)))) = socket.next().await else {
            panic!("the WebSocket is not closed");
        };
        assert_eq!(close.reason.as_str(), reason);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_changed_file_changes_the_keys() {
    let (server, folder) = with_file().await;
    assert_eq!(ids(&server, "key-a").await, ["of-a"]);
    let file = folder.path().join("tenants.toml");
    std::fs::write(&file, TEAMS.replace("'key-a'", "'key-new'")).unwrap();
    let list = |key| answer(server.request_as(key, Method::GET, "/v1/sandboxes"));
    wait_until(
        "the end of a key",
        || list("key-a"),
        |(status, _)| *status == 401,
    )
    .await;
    assert_eq!(list("key-new").await.0, 200);
    assert_eq!(list("key-a2").await.0, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_provider_that_does_not_answer_is_a_503() {
    // A port of loopback on which no program listens.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let more = format!("[tenants]\nprovider = 'http'\nendpoint = 'http://{address}/'");
    let server = TestServer::keyless(sandboxes(), &more).await.unwrap();
    let (status, body) = answer(server.request_as("key", Method::GET, "/v1/sandboxes")).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (503, &json!("TENANT_PROVIDER_UNAVAILABLE")));
    let (status, body) = answer(server.bare(Method::GET, "/v1/sandboxes")).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (401, &json!("MISSING_API_KEY"))
    );
    server.stop().await;
}

#[tokio::test]
async fn creates_at_once_do_not_exceed_a_quota_together() {
    let more = "[quotas]\nsandboxes = 3\ncpu = '2'\n[quotas.tenants.team-b]\nsandboxes = 1";
    let server = TestServer::around([], more).await.unwrap();
    let key = async |tenant: &str| {
        let new = json!({"name": "k", "role": "operator", "tenant": tenant});
        let request = server.request(Method::POST, "/v1/api-keys").json(&new);
        answer(request).await.1["secret"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (one, other) = (key("team-a").await, key("team-b").await);
    let create = |key: &str, cpu: &str| {
        let mut body = TestServer::good_create();
        body["resourceLimits"]["cpu"] = json!(cpu);
        answer(
            server
                .request_as(key, Method::POST, "/v1/sandboxes")
                .json(&body),
        )
    };
    let creates = (0..10).map(|_| create(&one, "500m"));
    let all = futures::future::join_all(creates).await;
    let made: Vec<_> = all.iter().filter(|(status, _)| *status == 202).collect();
    assert_eq!(made.len(), 3, "{all:?}");
    for (status, body) in all.iter().filter(|(status, _)| *status != 202) {
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (403, &json!("SANDBOX::QUOTA_EXCEEDED"))
        );
        let message = body["message"].as_str().unwrap();
        assert!(
            message.contains("quota of 3 for sandboxes: 3 in use"),
            "{message}"
        );
    }
    let id = made[0].1["id"].as_str().unwrap();
    let path = format!("/v1/sandboxes/{id}");
    let delete = server.request_as(&one, Method::DELETE, &path);
    let (status, _) = answer(delete.header("prefer", "wait")).await;
    assert_eq!(status, 204);
    let (status, body) = create(&one, "1001m").await;
    assert_eq!(status, 403, "{body}");
    assert!(
        body["message"]
            .as_str()
            .unwrap()
            .contains("2000m for cpu: 1000m in use"),
        "{body}"
    );
    let mut unlimited = TestServer::good_create();
    unlimited["resourceLimits"] = json!({"memory": "64Mi"});
    let request = server.request_as(&one, Method::POST, "/v1/sandboxes");
    let (status, body) = answer(request.json(&unlimited)).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(create(&one, "1").await.0, 202, "there is room again");
    assert_eq!(create(&other, "4").await.0, 202, "a quota of its own");
    assert_eq!(create(&other, "4").await.0, 403);
    let everyone = server.request(Method::POST, "/v1/sandboxes");
    let (status, _) = answer(everyone.json(&TestServer::good_create())).await;
    assert_eq!(status, 202, "no tenant, no quota");
    server.stop().await;
}
