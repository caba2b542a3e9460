//! Templates belong to the tenant whose key added them (contract: lifecycle A7).

use std::sync::Arc;

use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use super::{answer, from_template, held, image, refused, sim, up};

const TEAMS: &str = "[[tenants]]\nname = 'team-a'\nnamespace = 'ns'\napi_keys = ['key-a']\n\
    [[tenants]]\nname = 'team-b'\nnamespace = 'ns'\napi_keys = ['key-b']\n";

#[tokio::test]
async fn a_template_of_another_tenant_does_not_exist() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants_over(Arc::clone(&sim) as _, folder.path()).await;
    let server = server.unwrap();
    up(&server).await;
    let as_key = |key: &str, method: Method, path: &str| -> RequestBuilder {
        server.request_as(key, method, path)
    };
    let add = as_key("key-a", Method::POST, "/v1/templates").json(&image());
    let (status, body) = answer(add).await;
    assert_eq!(status, 201, "{body}");
    let id = body["templateId"].as_str().unwrap().to_owned();
    let path = format!("/v1/templates/{id}");
    let own = async || answer(as_key("key-a", Method::GET, &path)).await.1;
    let is_made = |seen: &Value| seen["status"]["phase"] == "Succeeded";
    wait_until("the template", own, is_made).await;

    let log = format!("{path}/log");
    for (method, path) in [
        (Method::GET, &path),
        (Method::DELETE, &path),
        (Method::GET, &log),
    ] {
        let foreign = answer(as_key("key-b", method, path)).await;
        refused(&foreign, 404, "FSB::TEMPLATE_NOT_FOUND");
    }
    let create = async |key: &str| {
        let request = as_key(key, Method::POST, "/v1/sandboxes");
        answer(request.json(&from_template(&id))).await
    };
    refused(&create("key-b").await, 404, "FSB::TEMPLATE_NOT_FOUND");
    let total = async |key: &str| {
        let (_, body) = answer(as_key(key, Method::GET, "/v1/templates")).await;
        body["pagination"]["totalItems"].clone()
    };
    assert_eq!(total("key-a").await, json!(1));
    assert_eq!(total("key-b").await, json!(0));
    let (status, made) = create("key-a").await;
    assert_eq!(status, 202, "{made}");
    let made = made["id"].as_str().unwrap().into();
    let tenant = sim.spec(&made).unwrap().origin.tenant;
    assert_eq!(tenant.as_deref(), Some("team-a"));
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_may_build_only_where_the_operator_says_so() {
    let build = json!({"build": {"dockerfile": "FROM a"}, "publish": "p"});
    for is_allowed in [false, true] {
        let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
        std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
        let more = format!("[templates]\nallow_builds = true\nallow_tenant_builds = {is_allowed}");
        let server = TestServer::with_tenants_and(sim, folder.path(), &more).await;
        let server = server.unwrap();
        up(&server).await;
        let add = async |body: &Value| {
            let request = server.request_as("key-a", Method::POST, "/v1/templates");
            answer(request.json(body)).await
        };
        let built = add(&build).await;
        if is_allowed {
            assert_eq!(built.0, 201, "{built:?}");
        } else {
            refused(&built, 400, "SANDBOX::INVALID_PARAMETER");
            let message = built.1["message"].as_str().unwrap();
            for part in ["build: ", "[templates] allow_tenant_builds"] {
                assert!(message.contains(part), "{part} in {message}");
            }
        }
        assert_eq!(add(&image()).await.0, 201);
        server.stop().await;
    }
}

#[tokio::test]
async fn one_tenant_leaves_room_for_the_others() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let server = TestServer::with_tenants_over(Arc::clone(&sim) as _, folder.path()).await;
    let server = server.unwrap();
    up(&server).await;
    let (faults, _gate) = held();
    sim.set_faults(faults);
    let add = async |key: &str| {
        let request = server.request_as(key, Method::POST, "/v1/templates");
        answer(request.json(&image())).await
    };
    let mut ids = Vec::new();
    for key in ["key-a", "key-b"] {
        for _ in 0..4 {
            let (status, added) = add(key).await;
            assert_eq!(status, 201, "{added}");
            ids.push(added["templateId"].as_str().unwrap().to_owned());
        }
        let busy = add(key).await;
        refused(&busy, 429, "FSB::API_ERROR");
        let message = busy.1["message"].as_str().unwrap();
        assert!(
            message.starts_with("4 templates of the tenant"),
            "{message}"
        );
    }
    // A deletion makes room, for its tenant only.
    let path = format!("/v1/templates/{}", ids[0]);
    let delete = server.request_as("key-a", Method::DELETE, &path);
    assert_eq!(answer(delete).await.0, 204);
    let again = async || add("key-a").await;
    wait_until("room", again, |(status, _)| *status == 201).await;
    refused(&add("key-b").await, 429, "FSB::API_ERROR");
    server.stop().await;
}

#[tokio::test]
async fn a_tenant_has_a_limited_number_of_templates() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let more = "[templates]\nmax_templates = 1\n";
    let server = TestServer::with_tenants_and(sim, folder.path(), more).await;
    let server = server.unwrap();
    up(&server).await;
    for key in ["key-a", "key-b"] {
        let add = async || {
            let request = server.request_as(key, Method::POST, "/v1/templates");
            answer(request.json(&image())).await
        };
        assert_eq!(add().await.0, 201);
        refused(&add().await, 403, "SANDBOX::QUOTA_EXCEEDED");
    }
    server.stop().await;
}

#[tokio::test]
async fn templates_at_once_do_not_exceed_the_limit_together() {
    let (sim, folder) = (sim(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tenants.toml"), TEAMS).unwrap();
    let more = "[templates]\nmax_templates = 2\n";
    let server = TestServer::with_tenants_and(sim, folder.path(), more).await;
    let server = server.unwrap();
    up(&server).await;
    let add = || {
        let request = server.request_as("key-a", Method::POST, "/v1/templates");
        answer(request.json(&image()))
    };
    let answers = futures::future::join_all((0..24).map(|_| add())).await;
    let made = answers.iter().filter(|(status, _)| *status == 201).count();
    assert!((1..=2).contains(&made), "{answers:?}");
    wait_until("the limit", add, |(status, _)| *status == 403).await;
    let list = answer(server.request_as("key-a", Method::GET, "/v1/templates"))
        .await
        .1;
    assert_eq!(list["items"].as_array().unwrap().len(), 2, "{list}");
    server.stop().await;
}
