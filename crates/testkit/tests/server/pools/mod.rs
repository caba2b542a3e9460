//! Pools: sandboxes that are started before they are needed, over a simulated runtime.

mod claims;
mod old_store;

use std::{collections::BTreeSet, path::Path, sync::Arc};

use osb_protocol::SandboxId;
use osb_runtime::{
    Runtime,
    sim::{Faults, Options, SimRuntime},
};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, RequestBuilder};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

fn engine() -> Arc<SimRuntime> {
    Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }))
}

async fn over(sim: &Arc<SimRuntime>, folder: &Path, more: &str) -> TestServer {
    let server = TestServer::over(Arc::clone(sim) as _, folder, more);
    let server = server.await.unwrap();
    let lists = || answer(server.request(Method::GET, "/v1/sandboxes"));
    wait_until("the first list", lists, |seen| seen.0 == 200).await;
    server
}

async fn start() -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    (server, sim, folder)
}

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn pool(name: &str, [min, max, most]: [u32; 3]) -> Value {
    json!({
        "name": name,
        "template": {"spec": {"containers": [{
            "image": "debian:12", "command": ["sleep"], "args": ["9"],
            "resources": {"limits": {"cpu": "500m", "memory": "256Mi"}},
        }]}},
        "capacitySpec": {"bufferMin": min, "bufferMax": max, "poolMax": most, "poolMin": 0},
    })
}

async fn add(server: &TestServer, pool: &Value) -> (u16, Value) {
    answer(server.request(Method::POST, "/v1/pools").json(pool)).await
}

async fn status(server: &TestServer, name: &str) -> Value {
    let path = format!("/v1/pools/{name}");
    let (_, pool) = answer(server.request(Method::GET, &path)).await;
    pool["status"].clone()
}

async fn until_available(server: &TestServer, name: &str, count: usize) -> Value {
    let status = || status(server, name);
    wait_until("the pool", status, |it| it["available"] == count).await
}

/// A server with a pool that is full.
async fn filled(capacity: [u32; 3]) -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let (server, sim, folder) = start().await;
    let (status, body) = add(&server, &pool("p", capacity)).await;
    assert_eq!(status, 201, "{body}");
    until_available(&server, "p", capacity[1].try_into().unwrap()).await;
    (server, sim, folder)
}

fn claim() -> Value {
    json!({"extensions": {"poolRef": "p"}, "timeout": 600})
}

async fn create(server: &TestServer, body: &Value) -> (u16, Value) {
    answer(server.request(Method::POST, "/v1/sandboxes").json(body)).await
}

async fn created(server: &TestServer, body: &Value) -> SandboxId {
    let (status, answer) = create(server, body).await;
    assert_eq!(status, 202, "{answer}");
    answer["id"].as_str().unwrap().into()
}

async fn get(server: &TestServer, id: &SandboxId) -> (u16, Value) {
    answer(server.request(Method::GET, &format!("/v1/sandboxes/{id}"))).await
}

async fn listed(server: &TestServer) -> usize {
    let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
    list["items"].as_array().unwrap().len()
}

#[tokio::test]
async fn pools_are_added_read_changed_and_removed() {
    let (server, sim, _folder) = start().await;
    let (status, made) = add(&server, &pool("p", [1, 2, 4])).await;
    assert_eq!(status, 201, "{made}");
    assert_eq!(made["name"], "p");
    assert_eq!(made["capacitySpec"], pool("p", [1, 2, 4])["capacitySpec"]);
    let revision = made["status"]["revision"].as_str().unwrap();
    assert_eq!(revision.len(), 10);
    let (status, again) = add(&server, &pool("p", [1, 2, 4])).await;
    assert_eq!(
        (status, &again["code"]),
        (409, &json!("KUBERNETES::POOL_ALREADY_EXISTS"))
    );
    let full = until_available(&server, "p", 2).await;
    let wanted = json!({"total": 2, "allocated": 0, "available": 2, "revision": revision});
    assert_eq!(full, wanted);
    assert_eq!(add(&server, &pool("a", [0, 0, 1])).await.0, 201);
    let (status, list) = answer(server.request(Method::GET, "/pools")).await;
    let names = list["items"].as_array().unwrap().iter();
    let names: Vec<_> = names.map(|it| it["name"].clone()).collect();
    assert_eq!((status, json!(names)), (200, json!(["a", "p"])));

    let smaller = json!({"capacitySpec": pool("p", [0, 1, 4])["capacitySpec"]});
    let put = |body: &Value| answer(server.request(Method::PUT, "/v1/pools/p").json(body));
    let (status, changed) = put(&smaller).await;
    assert_eq!(status, 200, "{changed}");
    assert_eq!(changed["capacitySpec"], smaller["capacitySpec"]);
    let left = || async { sim.sandboxes() };
    wait_until("one to be removed", left, |left| left.len() == 1).await;
    let mut other = smaller.clone();
    other["template"] = json!({"spec": {"containers": [{"image": "debian:13"}]}});
    other["capacitySpec"]["bufferMin"] = json!(1);
    let (_, changed) = put(&other).await;
    assert_ne!(changed["status"]["revision"], revision);
    let images = async || {
        let specs = sim.sandboxes().into_iter().filter_map(|id| sim.spec(&id));
        specs
            .map(|spec| spec.origin.source.to_string())
            .collect::<Vec<_>>()
    };
    wait_until("another template", images, |seen| *seen == ["debian:13"]).await;

    for path in ["/v1/pools/p", "/v1/pools/a"] {
        let (status, _) = answer(server.request(Method::DELETE, path)).await;
        assert_eq!(status, 204);
        for method in [Method::GET, Method::DELETE] {
            let (status, gone) = answer(server.request(method, path)).await;
            assert_eq!(
                (status, &gone["code"]),
                (404, &json!("KUBERNETES::POOL_NOT_FOUND"))
            );
        }
    }
    assert_eq!(put(&smaller).await.0, 404);
    wait_until("an empty engine", left, Vec::is_empty).await;
    server.stop().await;
}

#[tokio::test]
async fn what_is_wrong_with_a_pool_is_named() {
    let (server, _, _folder) = start().await;
    for (member, value, wrong) in [
        ("name", json!(null), "name"),
        ("name", json!("-a"), "name"),
        ("name", json!("a".repeat(254)), "name"),
        ("template", json!(1), "template"),
        ("template", json!({}), "template.spec"),
        (
            "template",
            json!({"spec": {"containers": [{"image": "a b"}]}}),
            "template.spec.containers.0.image",
        ),
        (
            "template",
            json!({"spec": {"containers": [
                {"image": "a", "resources": {"limits": {"memory": "1x"}}},
            ]}}),
            "template.spec.containers.0.resources.limits.memory",
        ),
        ("capacitySpec", json!([]), "capacitySpec"),
        (
            "capacitySpec",
            json!({"bufferMin": 0, "bufferMax": -1, "poolMin": 0, "poolMax": 1}),
            "capacitySpec.bufferMax",
        ),
        (
            "capacitySpec",
            json!({"bufferMin": 0, "bufferMax": 1.5, "poolMin": 0, "poolMax": 1}),
            "capacitySpec.bufferMax",
        ),
        (
            "capacitySpec",
            json!({"bufferMin": 0, "bufferMax": 0, "poolMin": 0, "poolMax": 1e30}),
            "capacitySpec.poolMax",
        ),
        (
            "capacitySpec",
            json!({"bufferMin": 0, "bufferMax": 0, "poolMin": 0}),
            "capacitySpec.poolMax",
        ),
    ] {
        let mut body = pool("p", [0, 0, 1]);
        body[member] = value;
        let (status, answer) = add(&server, &body).await;
        assert_eq!(status, 422, "{answer}");
        let loc = answer["detail"][0]["loc"]
            .as_array()
            .unwrap()
            .iter()
            .skip(1);
        let parts: Vec<_> = loc
            .map(|part| {
                part.as_str()
                    .map_or_else(|| part.to_string(), str::to_owned)
            })
            .collect();
        assert_eq!(parts.join("."), wrong, "{answer}");
    }
    let (status, answer) = add(&server, &json!({})).await;
    assert_eq!(
        (status, answer["detail"].as_array().unwrap().len()),
        (422, 3),
        "{answer}"
    );
    server.stop().await;
}

#[tokio::test]
async fn a_claimed_sandbox_is_its_clients_and_leaves_the_pool_for_good() {
    let (server, sim, _folder) = filled([2, 2, 9]).await;
    assert_eq!(listed(&server).await, 0, "what waits is no sandbox yet");
    let waiting: BTreeSet<_> = sim.sandboxes().into_iter().collect();
    for id in &waiting {
        assert_eq!(get(&server, id).await.0, 404);
        assert!(sim.spec(id).unwrap().waits);
    }
    let mut body = claim();
    body["entrypoint"] = json!(["sleep", "7"]);
    body["env"] = json!({"A": "1", "B": null});
    body["metadata"] = json!({"team": "core"});
    let id = created(&server, &body).await;
    assert!(waiting.contains(&id), "it was started before");
    let claimed = sim.claim_of(&id).unwrap();
    assert_eq!(claimed.entrypoint, ["sleep", "7"]);
    assert_eq!(json!(claimed.env), json!({"A": "1", "B": null}));
    let (_, shown) = get(&server, &id).await;
    assert_eq!(shown["status"]["state"], "Running");
    assert_eq!(shown["image"]["uri"], "debian:12");
    assert_eq!(shown["entrypoint"], json!(["sleep", "7"]));
    assert_eq!(shown["metadata"], json!({"team": "core"}));
    let allocation = json!({"mode": "pool", "poolRef": "p", "state": "allocated"});
    assert_eq!(shown["allocation"], allocation);
    assert!(
        shown["expiresAt"].is_string() && shown["createdAt"].is_string(),
        "{shown}"
    );

    let full = until_available(&server, "p", 2).await;
    assert_eq!((&full["total"], &full["allocated"]), (&json!(3), &json!(1)));
    let path = format!("/v1/sandboxes/{id}");
    assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
    let allocated = || status(&server, "p");
    wait_until("its end", allocated, |it| it["allocated"] == 0).await;
    let others = [
        created(&server, &claim()).await,
        created(&server, &claim()).await,
    ];
    assert!(!others.contains(&id));
    let tokens: BTreeSet<_> = [&id, &others[0], &others[1]]
        .into_iter()
        .filter_map(|id| sim.spec(id))
        .map(|spec| spec.origin.token.unwrap().expose_secret().to_owned())
        .collect();
    assert_eq!(tokens.len(), 2, "each has its own");
    let (_, shown) = get(&server, &others[0]).await;
    assert_eq!(shown["entrypoint"], json!(["sleep", "9"]), "the template's");
    server.stop().await;
}

#[tokio::test]
async fn creates_at_once_get_a_sandbox_each_up_to_the_most_of_the_pool() {
    let (server, _, _folder) = filled([1, 1, 5]).await;
    let (one, any) = (
        claim(),
        json!({"extensions": {"poolRef": "*"}, "timeout": 600}),
    );
    let requests = (0..7).map(|n| create(&server, if n % 2 == 0 { &one } else { &any }));
    let answers = futures::future::join_all(requests).await;
    let (made, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|it| it.0 == 202);
    let ids: BTreeSet<_> = made
        .iter()
        .map(|(_, body)| body["id"].to_string())
        .collect();
    assert_eq!((made.len(), ids.len()), (5, 5), "{refused:?}");
    for (status, body) in refused {
        assert_eq!(status, 429, "{body}");
        assert_eq!(body["code"], "KUBERNETES::POOL_CAPACITY_EXHAUSTED");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_create_without_its_pool_or_with_what_a_pool_cannot_give_is_refused() {
    let (server, sim, _folder) = filled([1, 1, 2]).await;
    let waiting = sim.sandboxes();
    let none = json!({"extensions": {"poolRef": "q"}});
    let (status, answer) = create(&server, &none).await;
    assert_eq!(
        (status, &answer["code"]),
        (404, &json!("KUBERNETES::POOL_NOT_FOUND"))
    );
    for (member, value, wanted) in [
        ("networkPolicy", json!({"egress": []}), 400),
        ("secureAccess", json!(true), 400),
        (
            "volumes",
            json!([{"name": "a", "mountPath": "/a", "pvc": {"claimName": "a"}}]),
            400,
        ),
        ("snapshotId", json!("s"), 422),
        ("lifecycle", json!({}), 422),
    ] {
        let mut body = claim();
        body[member] = value;
        let (status, answer) = create(&server, &body).await;
        assert_eq!(status, wanted, "{answer}");
        assert!(
            answer["message"].as_str().unwrap().contains(member),
            "{answer}"
        );
    }
    assert_eq!(sim.sandboxes(), waiting, "none was used up");
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_create_gets_the_first_ones_sandbox() {
    let (server, sim, _folder) = filled([1, 1, 1]).await;
    let once = || {
        let request = server.request(Method::POST, "/v1/sandboxes").json(&claim());
        answer(request.header("Idempotency-Key", "k"))
    };
    let (status, first) = once().await;
    assert_eq!(status, 202, "{first}");
    let (status, again) = once().await;
    assert_eq!(
        (status, &again["id"]),
        (202, &first["id"]),
        "the pool is exhausted"
    );
    assert_eq!(sim.sandboxes().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_claim_that_fails_leaves_nothing_and_the_pool_fills_up() {
    let (server, sim, _folder) = filled([1, 1, 2]).await;
    let waiting = sim.sandboxes();
    sim.set_faults(Faults {
        claim_fails: Some("no such program".to_owned()),
        ..Faults::default()
    });
    let (status, answer) = create(&server, &claim()).await;
    assert_eq!(status, 500, "{answer}");
    assert!(
        answer["message"]
            .as_str()
            .unwrap()
            .contains("no such program"),
        "{answer}"
    );
    sim.set_faults(Faults::default());
    let id = created(&server, &claim()).await;
    assert!(!waiting.contains(&id), "it may have been claimed");
    assert!(!sim.sandboxes().contains(&waiting[0]));
    assert_eq!(listed(&server).await, 1);
    server.stop().await;
}

#[tokio::test]
async fn one_that_ends_while_it_waits_is_replaced() {
    let (server, sim, _folder) = filled([2, 2, 4]).await;
    let waiting = sim.sandboxes();
    sim.exit(&waiting[0], 1).await;
    sim.vanish(&waiting[1]).await;
    let replaced = async || {
        let now = sim.sandboxes();
        let is_new = waiting.iter().all(|id| !now.contains(id));
        is_new && status(&server, "p").await["available"] == 2
    };
    wait_until("others", replaced, |is_replaced| *is_replaced).await;
    server.stop().await;
}

#[tokio::test]
async fn a_restarted_server_goes_on_with_what_waits_and_knows_its_clients() {
    let (server, sim, folder) = filled([1, 1, 4]).await;
    let mut body = claim();
    body["metadata"] = json!({"team": "core"});
    let id = created(&server, &body).await;
    until_available(&server, "p", 1).await;
    let before = sim.sandboxes();
    let (_, shown) = get(&server, &id).await;
    server.stop().await;
    drop(server);
    let server = over(&sim, folder.path(), "").await;
    until_available(&server, "p", 1).await;
    assert_eq!(sim.sandboxes(), before, "nothing was started or removed");
    let (status, mut after) = get(&server, &id).await;
    assert_eq!(status, 200);
    after["status"] = shown["status"].clone();
    assert_eq!(after, shown);
    let next = created(&server, &claim()).await;
    assert!(before.contains(&next) && next != id);
    server.stop().await;
}

#[tokio::test]
async fn a_pool_belongs_to_its_tenant() {
    let (server, sim, _folder) = start().await;
    let key = async |tenant: &str| {
        let body = json!({"name": tenant, "role": "operator", "tenant": tenant});
        let (status, body) = answer(server.request(Method::POST, "/v1/api-keys").json(&body)).await;
        assert_eq!(status, 201, "{body}");
        body["secret"].as_str().unwrap().to_owned()
    };
    let (a, b) = (key("team-a").await, key("team-b").await);
    let send = |key: &str, method: Method, path: &str, body: &Value| {
        answer(server.request_as(key, method, path).json(body))
    };
    for key in [&a, &b] {
        let (status, body) = send(key, Method::POST, "/v1/pools", &pool("p", [1, 1, 1])).await;
        assert_eq!(status, 201, "{body}");
    }
    assert_eq!(
        send(&a, Method::DELETE, "/v1/pools/p", &Value::Null)
            .await
            .0,
        204
    );
    assert_eq!(
        send(&a, Method::POST, "/v1/sandboxes", &claim()).await.0,
        404
    );
    let (status, made) = send(&b, Method::POST, "/v1/sandboxes", &claim()).await;
    assert_eq!(status, 202, "{made}");
    let id: SandboxId = made["id"].as_str().unwrap().into();
    let tenant = sim.spec(&id).unwrap().origin.tenant;
    assert_eq!(tenant.as_deref(), Some("team-b"));
    assert_eq!(
        send(
            &a,
            Method::GET,
            &format!("/v1/sandboxes/{id}"),
            &Value::Null
        )
        .await
        .0,
        404
    );
    let (_, list) = send(&a, Method::GET, "/v1/pools", &Value::Null).await;
    assert_eq!(list, json!({"items": []}));
    server.stop().await;
}

#[tokio::test]
async fn quotas_count_at_the_claim() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(
        &sim,
        folder.path(),
        "[quotas.key]\nsandboxes = 1\ncpu = '1'\n",
    )
    .await;
    let body = json!({"name": "k", "role": "operator"});
    let (_, key) = answer(server.request(Method::POST, "/v1/api-keys").json(&body)).await;
    let key = key["secret"].as_str().unwrap();
    assert_eq!(add(&server, &pool("p", [2, 2, 4])).await.0, 201);
    until_available(&server, "p", 2).await;
    let claimed = || {
        answer(
            server
                .request_as(key, Method::POST, "/v1/sandboxes")
                .json(&claim()),
        )
    };
    let (status, made) = claimed().await;
    assert_eq!(status, 202, "{made}");
    until_available(&server, "p", 2).await;
    let before = sim.sandboxes();
    let (status, refused) = claimed().await;
    assert_eq!(status, 403, "{refused}");
    assert_eq!(sim.sandboxes(), before, "it was given back");
    server.stop().await;
}

#[tokio::test]
async fn a_plain_create_that_fits_gets_one_that_waits_if_the_operator_wants_that() {
    let same = json!({
        "image": {"uri": "debian:12"}, "entrypoint": ["sleep", "7"], "timeout": 600,
        "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
    });
    for (more, is_served) in [("", false), ("[pools]\nserve_plain_creates = true\n", true)] {
        let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
        let server = over(&sim, folder.path(), more).await;
        assert_eq!(add(&server, &pool("p", [1, 1, 4])).await.0, 201);
        until_available(&server, "p", 1).await;
        let waiting = sim.sandboxes();
        let mut other = same.clone();
        other["resourceLimits"]["cpu"] = json!("1");
        let cold = created(&server, &other).await;
        assert!(!waiting.contains(&cold));
        let id = created(&server, &same).await;
        assert_eq!(waiting.contains(&id), is_served);
        assert_eq!(sim.claim_of(&id).is_some(), is_served);
        let (_, shown) = get(&server, &id).await;
        assert_eq!(shown["entrypoint"], json!(["sleep", "7"]));
        server.stop().await;
    }
}

#[tokio::test]
async fn metrics_count_the_sandboxes_of_pools() {
    let (server, _, _folder) = filled([1, 1, 4]).await;
    let page = server
        .request(Method::GET, "/metrics")
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    let line = "opensandbox_pool_sandboxes{tenant=\"\",pool=\"p\",state=\"ready\"} 1";
    assert!(page.contains(line), "{page}");
    server.stop().await;
}

#[tokio::test]
async fn a_runtime_without_the_power_has_no_pools() {
    let (server, sim) = TestServer::sim().await.unwrap();
    assert!(sim.pools().is_none());
    let (status, body) = add(&server, &pool("p", [0, 0, 1])).await;
    assert_eq!(
        (status, &body["code"]),
        (501, &json!("KUBERNETES::POOL_NOT_SUPPORTED"))
    );
    server.stop().await;
}
