//! The audit trail: an entry for every act and every denial, none for reads.

mod accounts;
mod routes;
mod sandboxes;
mod trail;
mod ways_in;

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};

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

/// Sends a request with this id; its entry.
async fn entry_of(server: &TestServer, id: &str, request: RequestBuilder) -> Value {
    let (status, body) = answer(request.header("x-request-id", id)).await;
    let mut found = of_request(server, id).await;
    assert_eq!(found.len(), 1, "{status} {body}: {found:?}");
    found.remove(0)
}
