//! Users, API keys and their administration. `access` has every route with every role.

use std::net::{IpAddr, Ipv4Addr};

use osb_protocol::identity::{NewApiKey, Role};
use osb_runtime::EXECD_PORT;
use osb_server::identity::Accounts;
use osb_service::Supervisor;
use osb_testkit::{API_KEY, TestServer, running_at, store_in, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Makes an API key; its id and secret.
async fn key(server: &TestServer, body: Value) -> (String, String) {
    let request = server.request(Method::POST, "/v1/api-keys").json(&body);
    let (status, body) = answer(request).await;
    assert_eq!(status, 201, "{body}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&body["apiKey"]["id"]), text(&body["secret"]))
}

#[tokio::test]
async fn whoami_says_the_role_of_each_key() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for role in Role::ALL {
        let (_, secret) = key(&server, json!({"name": role, "role": role})).await;
        let (_, body) = answer(server.request_as(&secret, Method::GET, "/v1/whoami")).await;
        let seen = (&body["role"], &body["kind"]);
        assert_eq!(seen, (&json!(role), &json!("api_key")));
    }
    server.stop().await;
}

#[tokio::test]
async fn a_key_shows_its_secret_once_and_works_until_it_is_revoked() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let (id, secret) = key(&server, json!({"name": "ci", "role": "operator"})).await;
    let list = async || answer(server.request(Method::GET, "/v1/api-keys")).await.1;
    let before = list().await;
    assert_eq!(before["items"][0]["id"], json!(id));
    assert!(!before.to_string().contains(&secret), "{before}");
    assert!(secret.starts_with(before["items"][0]["prefix"].as_str().unwrap()));
    assert_eq!(before["items"][0].get("lastUsedAt"), None);
    let sandboxes = async || {
        let request = server.request_as(&secret, Method::GET, "/v1/sandboxes");
        answer(request).await
    };
    assert_eq!(sandboxes().await.0, 200);
    assert!(list().await["items"][0]["lastUsedAt"].is_string());
    let path = format!("/v1/api-keys/{id}");
    let (status, _) = answer(server.request(Method::DELETE, &path)).await;
    assert_eq!(status, 204);
    let (status, body) = sandboxes().await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (401, &json!("INVALID_API_KEY"))
    );
    assert!(list().await["items"][0]["revokedAt"].is_string());
    let (status, _) = answer(server.request(Method::DELETE, "/v1/api-keys/none")).await;
    assert_eq!(status, 404);
    server.stop().await;
}

#[tokio::test]
async fn keys_and_users_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let start = async || {
        let sim = std::sync::Arc::new(osb_runtime::sim::SimRuntime::new());
        TestServer::over(sim, folder.path(), "").await.unwrap()
    };
    let server = start().await;
    let (_, secret) = key(&server, json!({"name": "ci"})).await;
    let zoe = json!({"name": "Zoe", "password": "a long password", "role": "operator"});
    let (status, user) = answer(server.request(Method::POST, "/v1/users").json(&zoe)).await;
    assert_eq!((status.as_u16(), &user["name"]), (201, &json!("zoe")));
    assert!(!user.to_string().contains("password\":\""), "{user}");
    let whoami = async |server: &TestServer| {
        answer(server.request_as(&secret, Method::GET, "/v1/whoami")).await
    };
    assert_eq!(whoami(&server).await.0, 200);
    server.stop().await;
    drop(server);
    let server = start().await;
    let (status, body) = whoami(&server).await;
    assert_eq!(
        (status.as_u16(), &body["role"]),
        (200, &json!("read_only")),
        "the least role"
    );
    let (_, keys) = answer(server.request(Method::GET, "/v1/api-keys")).await;
    assert!(
        keys["items"][0]["lastUsedAt"].is_string(),
        "stored at the stop: {keys}"
    );
    let (_, users) = answer(server.request(Method::GET, "/v1/users")).await;
    assert_eq!(users["items"], json!([user]));
    server.stop().await;
}

#[tokio::test]
async fn users_are_added_changed_and_removed() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let users = |method, path: &str, body: Value| {
        answer(
            server
                .request(method, &format!("/v1/users{path}"))
                .json(&body),
        )
    };
    let bad = json!({"name": "/", "password": "hunter2", "role": "root", "tenant": 1});
    let (status, body) = users(Method::POST, "", bad).await;
    assert_eq!(status, 422);
    let fields: Vec<_> = body["detail"].as_array().unwrap().iter().collect();
    let fields: Vec<_> = fields
        .iter()
        .map(|error| error["loc"][1].as_str().unwrap())
        .collect();
    assert_eq!(fields, ["role", "tenant"]);
    assert!(!body.to_string().contains("hunter2"), "{body}");
    let short = json!({"name": "/", "password": "hunter2"});
    let (status, body) = users(Method::POST, "", short).await;
    assert_eq!(
        (status.as_u16(), body["detail"].as_array().unwrap().len()),
        (422, 2)
    );
    assert!(!body.to_string().contains("hunter2"), "{body}");
    let (status, body) = users(Method::POST, "", json!({})).await;
    assert_eq!(
        (status.as_u16(), body["detail"].as_array().unwrap().len()),
        (422, 2)
    );
    let zoe = json!({"name": "zoe", "password": "a long password", "tenant": "a"});
    let (status, user) = users(Method::POST, "", zoe.clone()).await;
    assert_eq!((status.as_u16(), &user["tenant"]), (201, &json!("a")));
    let (status, body) = users(Method::POST, "", zoe).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (409, &json!("GENERAL::CONFLICT"))
    );
    let path = format!("/{}", user["id"].as_str().unwrap());
    let (status, body) = users(Method::PATCH, &path, json!({"role": "service_admin"})).await;
    assert_eq!(status, 422, "an administrator has no tenant: {body}");
    let promoted = json!({"role": "service_admin", "tenant": null, "disabled": true});
    let (status, body) = users(Method::PATCH, &path, promoted).await;
    let seen = (
        status.as_u16(),
        &body["role"],
        body.get("tenant"),
        &body["disabled"],
    );
    assert_eq!(seen, (200, &json!("service_admin"), None, &json!(true)));
    let (status, _) = users(Method::DELETE, &path, json!({})).await;
    assert_eq!(status, 204);
    for (method, expected) in [(Method::DELETE, 404), (Method::PATCH, 404)] {
        let (status, _) = users(method, &path, json!({})).await;
        assert_eq!(status, expected);
    }
    server.stop().await;
}

/// A program that answers each request with the head that it got.
async fn mirror(ip: IpAddr, port: u16, tasks: &Supervisor) {
    let listener = TcpListener::bind((ip, port)).await.unwrap();
    tasks.spawn_abortable("mirror", async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                    break;
                }
            }
            let length = head.len();
            let start = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n");
            let _ = stream.write_all(start.as_bytes()).await;
            let _ = stream.write_all(b"Connection: close\r\n\r\n").await;
            let _ = stream.write_all(&head).await;
        }
    });
}

#[tokio::test]
async fn who_only_reads_gets_no_way_into_execd() {
    let inside = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 44));
    let tasks = Supervisor::new();
    mirror(inside, EXECD_PORT, &tasks).await;
    let mut sandbox = running_at("a", inside, Some("token-of-a"));
    sandbox.status.address.ports.execd = Some(EXECD_PORT);
    let server = TestServer::around([sandbox], "").await.unwrap();
    let (_, reader) = key(&server, json!({"name": "r", "role": "read_only"})).await;
    let (_, operator) = key(&server, json!({"name": "o", "role": "operator"})).await;
    for (secret, may_enter) in [
        (reader.as_str(), false),
        (operator.as_str(), true),
        (API_KEY, true),
    ] {
        let path = format!("/v1/sandboxes/a/endpoints/{EXECD_PORT}?use_server_proxy=true");
        let (status, body) = answer(server.request_as(secret, Method::GET, &path)).await;
        assert_eq!(status, 200, "{body}");
        assert!(body["endpoint"].is_string());
        assert_eq!(body.to_string().contains("token-of-a"), may_enter, "{body}");
        let path = format!("/v1/sandboxes/a/proxy/{EXECD_PORT}/command");
        let response = server.request_as(secret, Method::GET, &path).send().await;
        let head = response.unwrap().text().await.unwrap();
        assert!(head.starts_with("GET /command"), "{head}");
        assert_eq!(head.contains("token-of-a"), may_enter, "{head}");
    }
    server.stop().await;
    tasks.stop();
}

/// Root in a sandbox for isolated sessions can become root on the host.
#[tokio::test]
async fn only_administrators_get_isolated_sessions() {
    let server = TestServer::around([], "").await.unwrap();
    let (_, operator) = key(&server, json!({"name": "o", "role": "operator"})).await;
    let (_, admin) = key(&server, json!({"name": "a", "role": "service_admin"})).await;
    let mut body = TestServer::good_create();
    body["extensions"] = json!({"bootstrap.execd.isolation": "enable"});
    for (secret, expected) in [(operator.as_str(), 400), (&admin, 202), (API_KEY, 202)] {
        let request = server.request_as(secret, Method::POST, "/v1/sandboxes");
        let (status, answer) = answer(request.json(&body)).await;
        assert_eq!(status, expected, "{answer}");
        if expected == 400 {
            let message = answer["message"].as_str().unwrap();
            assert!(
                message.contains("needs the role service_admin"),
                "{message}"
            );
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn the_first_stored_key_closes_a_server_without_a_key() {
    let server = TestServer::keyless([], "").await.unwrap();
    let list = |request: RequestBuilder| answer(request);
    let bare = || list(server.bare(Method::GET, "/v1/sandboxes"));
    assert_eq!(bare().await.0, 200);
    let request = server.bare(Method::POST, "/v1/api-keys");
    let new = json!({"name": "first", "role": "service_admin"});
    let (status, body) = answer(request.json(&new)).await;
    assert_eq!(status, 201, "{body}");
    assert_eq!(bare().await.0, 401);
    let secret = body["secret"].as_str().unwrap();
    let path = format!("/v1/api-keys/{}", body["apiKey"]["id"].as_str().unwrap());
    let (status, _) = answer(server.request_as(secret, Method::DELETE, &path)).await;
    assert_eq!(status, 204);
    assert_eq!(bare().await.0, 401, "without any key it stays closed");
    server.stop().await;
}

/// As `opensandbox-server key` works beside a server.
#[tokio::test]
async fn a_running_server_notices_what_another_process_changes() {
    let folder = tempfile::tempdir().unwrap();
    let sim = std::sync::Arc::new(osb_runtime::sim::SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open_shared(&location).await.unwrap();
    let store = store.expect("the store of a running server");
    let beside = Accounts::open(std::sync::Arc::clone(&store)).await.unwrap();
    let new = NewApiKey {
        name: "beside".to_owned(),
        role: Role::Operator,
        tenant: None,
        expires_at: None,
    };
    let issued = beside.add_key(new).await.unwrap();
    let whoami = || answer(server.request_as(&issued.secret, Method::GET, "/v1/whoami"));
    wait_until("the new key", whoami, |(status, _)| *status == 200).await;
    beside.revoke_key(&issued.key.id).await.unwrap();
    wait_until("its end", whoami, |(status, _)| *status == 401).await;
    store.close().await;
    let (status, _) = answer(server.request(Method::GET, "/v1/whoami")).await;
    assert_eq!(status, 200);
    server.stop().await;
}
