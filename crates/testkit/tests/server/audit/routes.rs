//! Every route, by what its requests leave behind.

use std::collections::BTreeMap;

use osb_runtime::sim::Options;
use osb_server::http::{Effect, effect};
use osb_testkit::TestServer;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{answer, entries, key, of_request};

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
