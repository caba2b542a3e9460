//! Edge cases of the REST API over the simulated runtime: error messages, ignored members, and the
//! replies to browsers.

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder, StatusCode, header};
use serde_json::{Value, json};

async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let (status, text) = (response.status(), response.text().await.unwrap());
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// Sends a create request with one changed member.
async fn create(server: &TestServer, name: &str, value: Value) -> (StatusCode, Value) {
    let mut body = TestServer::good_create();
    body[name] = value;
    answer(server.request(Method::POST, "/v1/sandboxes").json(&body)).await
}

#[tokio::test]
async fn routes_of_later_releases_are_refused_with_a_reason() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    for (methods, path, code) in [
        (
            vec![&post],
            "/sandboxes/a/pause",
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            vec![&post],
            "/sandboxes/a/resume",
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            vec![&post],
            "/sandboxes/a/snapshots",
            "SNAPSHOT::NOT_IMPLEMENTED",
        ),
        (vec![&get], "/snapshots?page=1", "SNAPSHOT::NOT_IMPLEMENTED"),
        (
            vec![&get, &delete],
            "/snapshots/a",
            "SNAPSHOT::NOT_IMPLEMENTED",
        ),
        (
            vec![&get, &post],
            "/pools",
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        (
            vec![&get, &Method::PUT, &delete],
            "/pools/a",
            "KUBERNETES::POOL_NOT_SUPPORTED",
        ),
        (vec![&get, &post], "/templates", "FSB::API_NOT_SUPPORTED"),
        (
            vec![&get, &delete],
            "/templates/a",
            "FSB::API_NOT_SUPPORTED",
        ),
        (vec![&get], "/templates/a/log", "FSB::API_NOT_SUPPORTED"),
        (
            vec![&get, &Method::PUT, &Method::PATCH, &delete],
            "/sandboxes/a/networkpolicy",
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/networkpolicy/decisions",
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/networkpolicy/proposal",
            "SANDBOX::API_NOT_SUPPORTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/diagnostics/logs?scope=all",
            "DIAGNOSTICS_NOT_IMPLEMENTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/diagnostics/events",
            "DIAGNOSTICS_NOT_IMPLEMENTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/diagnostics/inspect",
            "DIAGNOSTICS_NOT_IMPLEMENTED",
        ),
        (
            vec![&get],
            "/sandboxes/a/diagnostics/summary",
            "DIAGNOSTICS_NOT_IMPLEMENTED",
        ),
    ] {
        for prefix in ["", "/v1"] {
            let path = format!("{prefix}{path}");
            for method in &methods {
                let request = server.request((*method).clone(), &path);
                let (status, body) = answer(request.json(&json!({"name": "a"}))).await;
                let seen = (status.as_u16(), &body["code"]);
                assert_eq!(seen, (501, &json!(code)), "{method} {path}");
                let message = body["message"].as_str().unwrap();
                assert!(
                    message.contains("are not available on the sim runtime"),
                    "{message}"
                );
                let (status, _) = answer(server.bare((*method).clone(), &path)).await;
                assert_eq!(status, 401, "{method} {path}");
            }
            let (status, _) = answer(server.request(Method::TRACE, &path)).await;
            assert_eq!(status, 405, "{path}");
        }
    }
    let (status, body) = answer(server.request(Method::GET, "/v1/snapshot")).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (404, &json!("GENERAL::NOT_FOUND")));
    server.stop().await;
}

#[tokio::test]
async fn a_browser_finds_the_console_at_the_servers_address() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let page = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8";
    let asks = |method, accept: &str| {
        server
            .bare(method, "/")
            .header(header::ACCEPT, accept)
            .send()
    };
    let response = asks(Method::GET, page).await.unwrap();
    assert_eq!(response.status(), 303);
    assert_eq!(response.headers()[header::LOCATION], "/console");
    for (method, accept) in [
        (Method::GET, "*/*"),
        (Method::GET, "application/json"),
        (Method::POST, page),
    ] {
        assert_eq!(
            asks(method, accept).await.unwrap().status(),
            401,
            "{accept}"
        );
    }
    let (status, body) = answer(server.request(Method::GET, "/")).await;
    let seen = (status.as_u16(), &body["code"]);
    assert_eq!(seen, (404, &json!("GENERAL::NOT_FOUND")));
    server.stop().await;
}

#[tokio::test]
async fn the_documentations_pages_have_the_encoding_that_was_asked_for() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (path, sign) in [
        ("/docs/", "<html"),
        ("/docs/swagger-ui.css", ".swagger-ui"),
        ("/docs/swagger-ui-bundle.js", "SwaggerUI"),
        // The theme of the console, and no validator on another server.
        ("/docs/swagger-initializer.js", "osb.theme"),
        ("/docs/swagger-initializer.js", "\"validatorUrl\": \"none\""),
    ] {
        let request = server.bare(Method::GET, path);
        let request = request.header(header::ACCEPT_ENCODING, "identity");
        let page = request.send().await.unwrap();
        assert_eq!(page.status(), 200, "{path}");
        let encoding = page.headers().get(header::CONTENT_ENCODING).cloned();
        assert_eq!(encoding, None, "{path}");
        assert!(page.text().await.unwrap().contains(sign), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn numbers_are_refused_with_our_own_messages() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    // The test server allows a day.
    let most = "timeout: must be at most 86400 seconds";
    for (timeout, status, message) in [
        ("1e30", 400, most),
        ("1111111111222222222233333333334", 400, most),
        ("-1e30", 422, "timeout: must be at least 60"),
        ("600.5", 422, "timeout: must be a whole number"),
    ] {
        // As it is sent: a JSON library may write it differently.
        let mut body = TestServer::good_create();
        body["timeout"] = json!("here");
        let request = server
            .request(Method::POST, "/v1/sandboxes")
            .header(header::CONTENT_TYPE, "application/json")
            .body(body.to_string().replace("\"here\"", timeout));
        let (got, body) = answer(request).await;
        assert_eq!(got, status, "{timeout}: {body}");
        assert_eq!(body["message"], message, "{timeout}");
        assert!(!body.to_string().contains(timeout), "{body}");
    }
    let (status, body) = create(&server, "resourceLimits", json!({"cpu": "1m"})).await;
    assert_eq!(status, 400, "{body}");
    assert_eq!(body["message"], "resourceLimits.cpu: must be at least 10m");
    server.stop().await;
}

#[tokio::test]
async fn bodies_that_are_not_objects_are_refused_by_every_route() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (method, path) in [
        (Method::POST, "/v1/sandboxes"),
        (Method::POST, "/v1/sandboxes/a/renew-expiration"),
        (Method::PATCH, "/v1/sandboxes/a/metadata"),
        (Method::POST, "/v1/metrics/events"),
    ] {
        for (body, message) in [
            ("[]", "must be an object"),
            ("null", "must be an object"),
            ("", "the body is empty"),
            (" \n", "the body is empty"),
        ] {
            let request = server
                .request(method.clone(), path)
                .header(header::CONTENT_TYPE, "application/json");
            let (status, reply) = answer(request.body(body)).await;
            assert_eq!(status, 422, "{path} {body:?}: {reply}");
            assert_eq!(reply["message"], message, "{path} {body:?}");
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_trailing_slash_below_sandboxes_is_redirected() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (path, want) in [
        ("/v1/sandboxes/", Some("/v1/sandboxes")),
        ("/sandboxes/?page=1", Some("/sandboxes?page=1")),
        ("/v1/sandboxes/a/", Some("/v1/sandboxes/a")),
        ("/v1/pools/", None),
        ("/v1/", None),
    ] {
        let answer = server.request(Method::GET, path).send().await.unwrap();
        let location = answer.headers().get("location");
        let location = location.map(|it| it.to_str().unwrap());
        let status = if want.is_some() { 307 } else { 404 };
        assert_eq!(
            (answer.status().as_u16(), location),
            (status, want),
            "{path}"
        );
    }
    server.stop().await;
}

#[tokio::test]
async fn some_routes_exist_under_one_prefix_only() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let event = json!({"eventType": "sandbox.create", "createDurationMs": 1, "success": true});
    for (path, status) in [("/v1/metrics/events", 204), ("/metrics/events", 404)] {
        let request = server.request(Method::POST, path).json(&event);
        assert_eq!(answer(request).await.0, status, "{path}");
    }
    for path in ["/health", "/version", "/openapi.json"] {
        assert_eq!(answer(server.bare(Method::GET, path)).await.0, 200);
        let twin = format!("/v1{path}");
        assert_eq!(answer(server.bare(Method::GET, &twin)).await.0, 401);
        let (status, body) = answer(server.request(Method::GET, &twin)).await;
        let seen = (status.as_u16(), &body["code"]);
        assert_eq!(seen, (404, &json!("GENERAL::NOT_FOUND")), "{twin}");
    }
    server.stop().await;
}

#[tokio::test]
async fn an_id_that_is_not_utf_8_is_unknown() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (method, path) in [
        (Method::GET, ""),
        (Method::DELETE, ""),
        (Method::GET, "/endpoints/8080"),
        (Method::GET, "/proxy/8080/"),
    ] {
        let path = format!("/v1/sandboxes/%FF{path}");
        let (status, body) = answer(server.request(method, &path)).await;
        let seen = (status.as_u16(), &body["code"]);
        assert_eq!(seen, (404, &json!("DOCKER::SANDBOX_NOT_FOUND")), "{path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_members_are_ignored() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    for (name, value) in [
        ("timeot", json!(60)),
        ("resourceLimits", json!({"memroy": "1Gi"})),
        ("resourceRequests", json!({"cpu": "much"})),
        ("extensions", json!({"unheard.of": "1"})),
    ] {
        let (status, body) = create(&server, name, value).await;
        assert_eq!(status, 202, "{name}: {body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_reported_reason_of_an_outage_is_current() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let ready = || answer(server.bare(Method::GET, "/ready"));
    wait_until("a ready server", ready, |seen| seen.0 == 200).await;
    for reason in ["the engine closed the connection", "connection refused"] {
        sim.go_down(reason).await;
        let (status, body) = wait_until("the reason", ready, |(_, body)| {
            body["message"]
                .as_str()
                .unwrap_or_default()
                .contains(reason)
        })
        .await;
        assert_eq!(status, 503, "{body}");
    }
    server.stop().await;
}
