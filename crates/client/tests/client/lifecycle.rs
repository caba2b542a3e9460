//! Sandboxes: what is asked, and how answers and errors are read.

use axum::{
    Json, Router,
    extract::{Path, RawQuery},
    http::{HeaderMap, StatusCode},
    response::IntoResponse,
    routing::{delete, get, patch, post},
};
use osb_client::{
    Error, LifecycleClient, ListSandboxes, Via,
    protocol::{
        WireTime,
        lifecycle::{CreateSandboxRequest, SandboxState},
    },
};
use serde_json::{Value, json};

use crate::support::{answer_raw, lifecycle};

fn sandbox(id: &str) -> Value {
    json!({
        "id": id,
        "status": {"state": "Running", "reason": "CONTAINER_RUNNING"},
        "metadata": {"team": "core"},
        "entrypoint": ["sleep"],
        "createdAt": "2026-01-01T00:00:00Z",
    })
}

#[tokio::test]
async fn every_call_matches_the_contract() {
    let router = Router::new()
        .route(
            "/v1/sandboxes",
            post(async |headers: HeaderMap, Json(body): Json<Value>| {
                assert_eq!(headers["open-sandbox-api-key"], "key");
                let agent = headers["user-agent"].to_str().unwrap();
                assert!(agent.starts_with("OpenSandbox-Rust-SDK/"), "{agent}");
                assert_eq!(body, json!({"timeout": 60, "env": {"A": "b"}}));
                (StatusCode::ACCEPTED, Json(sandbox("new")))
            })
            .get(async |RawQuery(query): RawQuery| {
                assert_eq!(query.unwrap(), "state=Paused&metadata=a%3Db%252Bc&page=1");
                let page = json!({"page": 1, "pageSize": 20, "totalItems": 1, "totalPages": 1, "hasNextPage": false});
                Json(json!({"items": [sandbox("one")], "pagination": page}))
            }),
        )
        .route(
            "/v1/sandboxes/{id}",
            get(async |Path(id): Path<String>| Json(sandbox(&id)))
                .delete(async || StatusCode::NO_CONTENT),
        )
        .route(
            "/v1/sandboxes/{id}/renew-expiration",
            post(async |Json(body): Json<Value>| Json(body)),
        )
        .route(
            "/v1/sandboxes/{id}/metadata",
            patch(async |Json(body): Json<Value>| {
                assert_eq!(body, json!({"new": "1", "gone": null}));
                Json(sandbox("one"))
            }),
        )
        .route(
            "/v1/sandboxes/{id}/endpoints/{port}",
            get(async |Path((id, port)): Path<(String, u16)>, RawQuery(query): RawQuery| {
                let query = query.unwrap();
                Json(json!({"endpoint": format!("{id}:{port}?{query}"), "headers": {"X-T": "t"}}))
            }),
        )
        .route("/health", get(async || Json(json!({"status": "healthy"}))))
        .route("/version", get(async || Json(json!({"version": "1.2.3"}))));
    let server = lifecycle(router).await;

    let request = CreateSandboxRequest {
        timeout: Some(60),
        env: [("A".to_owned(), Some("b".to_owned()))].into(),
        ..CreateSandboxRequest::default()
    };
    assert_eq!(server.create(&request).await.unwrap().id.as_str(), "new");
    let which = ListSandboxes {
        states: vec![SandboxState::Paused],
        metadata: [("a".to_owned(), "b+c".to_owned())].into(),
        page: Some(1),
        page_size: None,
    };
    assert_eq!(server.list(&which).await.unwrap().items.len(), 1);
    let odd = "a/b c?d".into();
    let got = server.get(&odd).await.unwrap();
    assert_eq!((&got.id, got.status.state), (&odd, SandboxState::Running));
    server.delete(&odd).await.unwrap();
    let later = WireTime::from_unix_ms(1_800_000_000_000).unwrap();
    assert_eq!(server.renew(&odd, later).await.unwrap(), later);
    let changes = [
        ("new".to_owned(), Some("1".to_owned())),
        ("gone".to_owned(), None),
    ]
    .into();
    server.patch_metadata(&odd, &changes).await.unwrap();
    let endpoint = server
        .endpoint(&"one".into(), 8080, Via::ServerProxy)
        .await
        .unwrap();
    assert_eq!(endpoint.endpoint, "one:8080?use_server_proxy=true");
    assert_eq!(endpoint.headers["X-T"], "t");
    assert_eq!(server.health().await.unwrap().status, "healthy");
    assert_eq!(server.version().await.unwrap().version, "1.2.3");
}

#[tokio::test]
async fn the_execd_of_a_sandbox_is_reached_with_the_headers_of_its_endpoint() {
    let router = Router::new()
        .route(
            "/v1/sandboxes/{id}/endpoints/44772",
            get(async |headers: HeaderMap, RawQuery(query): RawQuery| {
                assert_eq!(query.as_deref(), Some("use_server_proxy=false"));
                let host = headers["host"].to_str().unwrap();
                Json(json!({
                    "endpoint": format!("{host}/proxy/44772"),
                    "headers": {"X-EXECD-ACCESS-TOKEN": "t"},
                }))
            }),
        )
        .route(
            "/proxy/44772/ping",
            get(async |headers: HeaderMap| {
                let token = headers["x-execd-access-token"] == "t";
                let no_key = !headers.contains_key("open-sandbox-api-key");
                if token && no_key {
                    StatusCode::OK
                } else {
                    StatusCode::IM_A_TEAPOT
                }
            }),
        );
    let server = lifecycle(router).await;
    let execd = server.execd(&"one".into(), Via::Direct).await.unwrap();
    execd.ping().await.unwrap();
}

#[tokio::test]
async fn errors_carry_what_the_server_says() {
    let refuse = async || {
        let body = json!({"code": "DOCKER::SANDBOX_NOT_FOUND", "message": "sandbox x not found"});
        (StatusCode::NOT_FOUND, [("x-request-id", "r1")], Json(body)).into_response()
    };
    let server = lifecycle(Router::new().route("/v1/sandboxes/{id}", delete(refuse))).await;
    let error = server.delete(&"x".into()).await.unwrap_err();
    assert_eq!(error.code(), Some("DOCKER::SANDBOX_NOT_FOUND"));
    assert_eq!(error.status(), Some(StatusCode::NOT_FOUND));
    assert_eq!(error.request_id(), Some("r1"));
    assert!(!error.retryable());
    assert_eq!(
        error.to_string(),
        "sandbox x not found (DOCKER::SANDBOX_NOT_FOUND, HTTP 404)"
    );
}

#[tokio::test]
async fn redirects_are_answers_not_instructions() {
    let address =
        answer_raw("HTTP/1.1 307 T\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n")
            .await;
    let server = LifecycleClient::new(&format!("http://{address}"), None).unwrap();
    let error = server.health().await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::TEMPORARY_REDIRECT));
}

#[tokio::test]
async fn an_answer_that_is_not_json_is_distinguished_from_no_answer() {
    let address = answer_raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    let server = LifecycleClient::new(&format!("http://{address}"), None).unwrap();
    let error = server.health().await.unwrap_err();
    assert!(
        matches!(error, Error::Body(_)) && !error.retryable(),
        "{error:?}"
    );
    // The listener is gone by now.
    let error = server.health().await.unwrap_err();
    assert!(
        matches!(error, Error::Transport(_)) && error.retryable(),
        "{error:?}"
    );
}
