//! Network policies: what is asked of the sidecar, and how its answers are read.

use axum::{
    Json, Router,
    extract::{RawQuery, Request},
    http::StatusCode,
    response::IntoResponse,
    routing::get,
};
use osb_client::{
    EgressClient, Error, plain_http,
    protocol::lifecycle::{Endpoint, NetworkPolicy, NetworkRule},
};
use serde_json::{Value, json};

use crate::support::serve;

async fn client(router: Router) -> EgressClient {
    let address = serve(Router::new().nest("/proxy/18080", router)).await;
    let endpoint = Endpoint {
        endpoint: format!("{address}/proxy/18080"),
        headers: [("OPENSANDBOX-EGRESS-AUTH".to_owned(), "token".to_owned())].into(),
    };
    EgressClient::with_http(plain_http().unwrap(), "http", &endpoint).unwrap()
}

/// Answers with the method and the body of the request as the reason.
async fn echo(request: Request) -> Json<Value> {
    assert_eq!(request.headers()["opensandbox-egress-auth"], "token");
    let method = request.method().to_string();
    let body = axum::body::to_bytes(request.into_body(), 1 << 16).await;
    let body = String::from_utf8(body.unwrap().to_vec()).unwrap();
    Json(json!({"status": "ok", "mode": "deny_all", "reason": format!("{method} {body}")}))
}

#[tokio::test]
async fn every_call_matches_the_contract() {
    let router = Router::new().route("/policy", get(echo).put(echo).patch(echo).delete(echo));
    let client = client(router).await;
    let rule = NetworkRule {
        action: "allow".to_owned(),
        target: "a.example".to_owned(),
    };
    let policy = NetworkPolicy {
        default_action: Some("deny".to_owned()),
        egress: vec![rule.clone()],
    };
    let rules = r#"[{"action":"allow","target":"a.example"}]"#;
    for (answer, sent) in [
        (client.policy().await, "GET ".to_owned()),
        (
            client.replace(&policy).await,
            format!(r#"PUT {{"defaultAction":"deny","egress":{rules}}}"#),
        ),
        (client.merge(&[rule]).await, format!("PATCH {rules}")),
        (
            client.remove(&["a.example"]).await,
            r#"DELETE ["a.example"]"#.to_owned(),
        ),
    ] {
        assert_eq!(answer.unwrap().reason, Some(sent));
    }
}

#[tokio::test]
async fn decisions_are_read_and_refusals_are_errors() {
    let decisions = get(async |RawQuery(query): RawQuery| {
        if query.as_deref() != Some("since=7") {
            return (StatusCode::NOT_FOUND, "404 page not found").into_response();
        }
        let time = "2026-11-26T01:33:15.503823946Z";
        let name = json!({"action": "deny", "name": "a.example", "rule": "default", "count": 2,
                          "first": time, "last": time, "number": 8});
        Json(json!({"names": [name], "next": 8, "destinations": []})).into_response()
    });
    let client = client(Router::new().route("/decisions", decisions)).await;
    let seen = client.decisions(7).await.unwrap();
    assert_eq!((seen.next, seen.names[0].count), (8, 2));
    assert_eq!(
        seen.names[0].last.to_string(),
        "2026-11-26T01:33:15.503823Z"
    );
    let error = client.decisions(0).await.unwrap_err();
    assert_eq!(error.status(), Some(StatusCode::NOT_FOUND));
}

#[tokio::test]
async fn an_answer_of_any_length_is_not_kept() {
    let long = get(async || "x".repeat(17 << 20));
    let client = client(Router::new().route("/decisions", long)).await;
    let error = client.decisions(0).await.unwrap_err();
    assert!(matches!(error, Error::TooLong(_)), "{error:?}");
}
