//! Calls of the API.

use osb_testkit::TestServer;
use reqwest::{Method, StatusCode};
use serde_json::Value;

pub(super) async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let request_id = response.headers().get("x-request-id");
    assert!(request_id.is_some(), "every answer has a request id");
    let text = response.text().await.unwrap();
    let body = if text.is_empty() {
        Value::Null
    } else {
        serde_json::from_str(&text).unwrap()
    };
    (status, body)
}

pub(super) async fn create(
    server: &TestServer,
    change: impl FnOnce(&mut Value),
) -> (StatusCode, Value) {
    let mut body = TestServer::good_create();
    change(&mut body);
    answer(server.request(Method::POST, "/v1/sandboxes").json(&body)).await
}

pub(super) async fn made(server: &TestServer, change: impl FnOnce(&mut Value)) -> String {
    let (status, body) = create(server, change).await;
    assert_eq!(status, 202, "{body}");
    body["id"].as_str().unwrap().to_owned()
}

pub(super) async fn get(server: &TestServer, id: &str) -> (StatusCode, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}
