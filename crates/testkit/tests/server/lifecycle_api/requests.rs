//! Keys, headers and malformed requests.

use osb_testkit::{API_KEY, TestServer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::calls::answer;

#[tokio::test]
async fn api_routes_need_the_key_and_open_routes_do_not() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let with = |path: &str, key: &str| {
        answer(
            server
                .bare(Method::GET, path)
                .header("OPEN-SANDBOX-API-KEY", key),
        )
    };
    for path in [
        "/v1/sandboxes",
        "/sandboxes",
        "/v1/sandboxes/x",
        "/v1/health",
        "/nope",
    ] {
        let (status, body) = answer(server.bare(Method::GET, path)).await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!("MISSING_API_KEY")),
            "{path}"
        );
        let (status, body) = with(path, "test-kez").await;
        assert_eq!(
            (status.as_u16(), &body["code"]),
            (401, &json!("INVALID_API_KEY")),
            "{path}"
        );
    }
    assert_eq!(with("/v1/sandboxes", API_KEY).await.0, 200);
    for path in ["/health", "/version", "/ready", "/openapi.json"] {
        assert_eq!(
            answer(server.bare(Method::GET, path)).await.0,
            200,
            "{path}"
        );
    }
    let (status, body) = with("/nope", API_KEY).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (404, &json!("GENERAL::NOT_FOUND"))
    );
    let (status, body) = answer(server.request(Method::PUT, "/v1/sandboxes")).await;
    assert_eq!(
        (status.as_u16(), &body["code"]),
        (405, &json!("GENERAL::METHOD_NOT_ALLOWED"))
    );
    let (status, _) = answer(server.bare(Method::GET, "/v1/sandboxes/x/proxy/http/a")).await;
    assert_eq!(
        status, 401,
        "a path with an invalid port is not a proxy path"
    );
    server.stop().await;
}

#[tokio::test]
async fn request_ids_and_cors_are_as_the_contract_says() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let sent = server
        .bare(Method::GET, "/health")
        .header("X-Request-ID", " abc ");
    assert_eq!(sent.send().await.unwrap().headers()["x-request-id"], "abc");
    let made = server
        .bare(Method::GET, "/v1/sandboxes")
        .send()
        .await
        .unwrap();
    let id = made.headers()["x-request-id"].to_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()));
    let preflight = server
        .bare(Method::OPTIONS, "/v1/sandboxes")
        .header("Origin", "https://a.example")
        .header("Access-Control-Request-Method", "POST")
        .header("Access-Control-Request-Headers", "x-a, x-b");
    let answer = preflight.send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    assert_eq!(answer.headers()["access-control-allow-headers"], "x-a, x-b");
    let simple = server
        .request(Method::GET, "/v1/sandboxes")
        .header("Origin", "https://a.example");
    let answer = simple.send().await.unwrap();
    assert_eq!(
        answer.headers()["access-control-allow-origin"],
        "https://a.example"
    );
    let console = server
        .bare(Method::GET, "/console/login")
        .header("Origin", "https://a.example");
    let answer = console.send().await.unwrap();
    assert!(
        answer
            .headers()
            .get("access-control-allow-origin")
            .is_none()
    );
    server.stop().await;
}

#[tokio::test]
async fn malformed_requests_are_refused_with_the_field() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let post = || server.request(Method::POST, "/v1/sandboxes");
    let json_type = ("content-type", "application/json");
    for (request, status, kind) in [
        (
            post().header(json_type.0, json_type.1).body("{"),
            422,
            "json_invalid",
        ),
        (
            post().header(json_type.0, json_type.1).body(""),
            422,
            "json_invalid",
        ),
        (
            post().header(json_type.0, json_type.1).body("{} trailing"),
            422,
            "json_invalid",
        ),
        (post().body("{}"), 422, "json_invalid"),
        (post().json(&json!([])), 422, "dict_type"),
        (post().json(&json!(null)), 422, "dict_type"),
    ] {
        let (got, body) = answer(request).await;
        assert_eq!(
            (got.as_u16(), &body["detail"][0]["type"]),
            (status, &json!(kind)),
            "{body}"
        );
        assert!(body["code"].is_string() && body["message"].is_string());
    }
    let huge = post()
        .header(json_type.0, json_type.1)
        .body("[".repeat(2 << 20));
    assert_eq!(answer(huge).await.0, 413);
    let deep = post()
        .header(json_type.0, json_type.1)
        .body("[".repeat(100_000));
    let (status, body) = answer(deep).await;
    assert_eq!(status, 422);
    let message = body["detail"][0]["msg"].as_str().unwrap();
    assert!(message.contains("nested deeper"), "{message}");
    let event = server.request(Method::POST, "/v1/metrics/events");
    let good = json!({"eventType": "sandbox.create", "createDurationMs": 1, "success": true});
    assert_eq!(
        answer(event.json(&good)).await,
        (StatusCode::NO_CONTENT, Value::Null)
    );
    server.stop().await;
}

#[tokio::test]
async fn a_refused_request_leaves_its_connection_usable() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let body = "x".repeat(300_000);
    for (key, status) in [("wrong", "401"), (API_KEY, "422")] {
        let stream = TcpStream::connect(server.address).await.unwrap();
        let (mut answers, mut requests) = stream.into_split();
        let length = body.len();
        let refused = format!(
            "POST /v1/sandboxes HTTP/1.1\r\nHost: a\r\nOPEN-SANDBOX-API-KEY: {key}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        );
        let next = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let send = async {
            requests.write_all(refused.as_bytes()).await.unwrap();
            requests.write_all(next.as_bytes()).await.unwrap();
        };
        let mut text = String::new();
        let (_, read) = tokio::join!(send, answers.read_to_string(&mut text));
        read.unwrap();
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
        assert!(text.contains("HTTP/1.1 200 OK"), "{text}");
    }
    server.stop().await;
}
