//! Rules about pools: whose they are, how many sandboxes wait, and what becomes of those that wait when
//! settings and pools change, over a simulated runtime.

use std::{path::Path, sync::Arc};

use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use osb_testkit::{TestServer, store_in, wait_until};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

fn engine() -> Arc<SimRuntime> {
    Arc::new(SimRuntime::with_options(Options {
        powers: true,
        create_features: FeatureSet::EMPTY.with(Feature::NetworkPolicy),
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

async fn answer(request: RequestBuilder) -> (u16, Value) {
    let response = request.send().await.unwrap();
    let status = response.status().as_u16();
    let text = response.text().await.unwrap();
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

fn capacity([min, max, most]: [u32; 3]) -> Value {
    json!({"bufferMin": min, "bufferMax": max, "poolMax": most, "poolMin": 0})
}

fn template(image: &str) -> Value {
    json!({"spec": {"containers": [{"image": image}]}})
}

fn pool(name: &str, numbers: [u32; 3]) -> Value {
    json!({"name": name, "template": template("debian:12"), "capacitySpec": capacity(numbers)})
}

/// Sends a request with the key of the server, or with another one.
async fn send(
    server: &TestServer,
    key: Option<&str>,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let request = match key {
        Some(key) => server.request_as(key, method, path),
        None => server.request(method, path),
    };
    answer(request.json(body)).await
}

async fn add(server: &TestServer, key: Option<&str>, pool: &Value) -> (u16, Value) {
    send(server, key, Method::POST, "/v1/pools", pool).await
}

/// A key of a tenant.
async fn key_of(server: &TestServer, tenant: &str) -> String {
    let body = json!({"name": tenant, "role": "operator", "tenant": tenant});
    let (status, body) = send(server, None, Method::POST, "/v1/api-keys", &body).await;
    assert_eq!(status, 201, "{body}");
    body["secret"].as_str().unwrap().to_owned()
}

async fn until_available(server: &TestServer, name: &str, count: usize) {
    let path = format!("/v1/pools/{name}");
    let pool = || answer(server.request(Method::GET, &path));
    let is_full = |seen: &(u16, Value)| seen.1["status"]["available"] == count;
    wait_until("the pool", pool, is_full).await;
}

/// Fields at fault, without `body`.
fn fields(answer: &Value) -> Vec<String> {
    let errors = answer["detail"].as_array().unwrap().iter();
    let fields = errors.map(|error| {
        let parts = error["loc"].as_array().unwrap().iter().skip(1);
        let parts = parts.map(|part| match part.as_str() {
            Some(part) => part.to_owned(),
            None => part.to_string(),
        });
        parts.collect::<Vec<_>>().join(".")
    });
    fields.collect()
}

#[tokio::test]
async fn other_settings_replace_what_waits_and_the_same_keep_it() {
    const POLICY: &str = "[egress]\nimage = 'a'\nmode = 'dns+nft'\ndefault_policy = 'public'\n";
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    assert_eq!(add(&server, None, &pool("p", [1, 1, 4])).await.0, 201);
    until_available(&server, "p", 1).await;
    let plain = sim.sandboxes();
    server.stop().await;
    drop(server);
    let server = over(&sim, folder.path(), POLICY).await;
    let replaced = async || {
        let now = sim.sandboxes();
        now.len() == 1 && now != plain
    };
    wait_until("one with a policy", replaced, |is_replaced| *is_replaced).await;
    until_available(&server, "p", 1).await;
    let with_policy = sim.sandboxes();
    assert!(sim.spec(&with_policy[0]).unwrap().network_policy.is_some());
    server.stop().await;
    drop(server);
    let server = over(&sim, folder.path(), POLICY).await;
    until_available(&server, "p", 1).await;
    assert_eq!(sim.sandboxes(), with_policy);
    let claim = json!({"extensions": {"poolRef": "p"}, "timeout": 600});
    let (status, made) = send(&server, None, Method::POST, "/v1/sandboxes", &claim).await;
    assert_eq!((status, &made["id"]), (202, &json!(with_policy[0])));
    server.stop().await;
}

/// A change of the template and one of the capacity at the same time both hold, and none brings back a
/// pool that is removed at the same time.
#[tokio::test]
async fn changes_at_the_same_time_are_made_one_after_the_other() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    let put = |body: Value| {
        let request = server.request(Method::PUT, "/v1/pools/p").json(&body);
        answer(request)
    };
    for round in 0..20 {
        assert_eq!(add(&server, None, &pool("p", [0, 0, 9])).await.0, 201);
        let image = format!("debian:{round}");
        let (changed, resized) = tokio::join!(
            put(json!({"template": template(&image), "capacitySpec": capacity([0, 0, 8])})),
            put(json!({"capacitySpec": capacity([0, 0, 7])})),
        );
        assert_eq!((changed.0, resized.0), (200, 200));
        let (_, now) = answer(server.request(Method::GET, "/v1/pools/p")).await;
        let revision = &changed.1["status"]["revision"];
        assert_eq!(&now["status"]["revision"], revision, "round {round}");
        let (removed, _) = tokio::join!(
            answer(server.request(Method::DELETE, "/v1/pools/p")),
            put(json!({"capacitySpec": capacity([0, 0, 6])})),
        );
        assert_eq!(removed.0, 204);
        let (status, _) = answer(server.request(Method::GET, "/v1/pools/p")).await;
        assert_eq!(status, 404, "round {round}");
    }
    server.stop().await;
}

/// Another program has removed a pool from the store, or a backup of the store lacks it.
#[tokio::test]
async fn a_pool_that_the_store_lacks_is_forgotten_and_not_filled_without_a_pause() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let server = TestServer::assemble(Arc::clone(&sim) as _, Arc::clone(&store), "");
    let server = server.await.unwrap();
    let lists = || answer(server.request(Method::GET, "/v1/sandboxes"));
    wait_until("the first list", lists, |seen| seen.0 == 200).await;
    assert_eq!(add(&server, None, &pool("p", [0, 0, 9])).await.0, 201);
    let at = osb_protocol::WireTime::from_unix_us(1).unwrap();
    assert!(store.remove_pool(None, "p", at).await.unwrap());
    // It is to be filled, as far as the server knows.
    let claim = json!({"extensions": {"poolRef": "p"}, "timeout": 600});
    let create = send(&server, None, Method::POST, "/v1/sandboxes", &claim);
    let failing = async || {
        let pool = server.service.pool_overview("p").unwrap();
        pool.is_failing && pool.counts.total() == 0
    };
    tokio::select! {
        made = create => panic!("{made:?}"),
        _ = wait_until("the pause", failing, |is_failing| *is_failing) => {}
    }
    let body = json!({"capacitySpec": capacity([0, 0, 1])});
    let (status, _) = send(&server, None, Method::PUT, "/v1/pools/p", &body).await;
    assert_eq!(status, 404);
    let (_, list) = answer(server.request(Method::GET, "/v1/pools")).await;
    assert_eq!(list["items"], json!([]));
    assert_eq!(add(&server, None, &pool("p", [1, 1, 9])).await.0, 201);
    until_available(&server, "p", 1).await;
    server.stop().await;
}

#[tokio::test]
async fn the_pools_of_a_tenant_keep_a_limited_number_of_sandboxes() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let more = "[pools]\nmax_waiting = 3\n[quotas.tenants.team-a]\nsandboxes = 2\n";
    let server = over(&sim, folder.path(), more).await;
    let (a, b) = (
        key_of(&server, "team-a").await,
        key_of(&server, "team-b").await,
    );
    for (key, most, text) in [
        (None, 3, "pools.max_waiting is 3"),
        (Some(b.as_str()), 3, "pools.max_waiting is 3"),
        (Some(a.as_str()), 2, "the tenant has a quota of 2"),
    ] {
        let (status, refused) = add(&server, key, &pool("p", [0, most + 1, 99])).await;
        assert_eq!(
            (status, fields(&refused)),
            (422, vec!["capacitySpec".to_owned()])
        );
        let message = refused["detail"][0]["msg"].as_str().unwrap();
        assert!(message.contains(text), "{refused}");
        assert_eq!(
            add(&server, key, &pool("p", [0, most - 1, 99])).await.0,
            201
        );
        assert_eq!(add(&server, key, &pool("q", [2, 0, 99])).await.0, 422);
        assert_eq!(add(&server, key, &pool("q", [1, 0, 99])).await.0, 201);
        let body = json!({"capacitySpec": capacity([2, 0, 99])});
        let (status, refused) = send(&server, key, Method::PUT, "/v1/pools/q", &body).await;
        assert_eq!(
            (status, fields(&refused)),
            (422, vec!["capacitySpec".to_owned()])
        );
        let body = json!({"capacitySpec": capacity([9, 9, 1])});
        let (status, body) = send(&server, key, Method::PUT, "/v1/pools/q", &body).await;
        assert_eq!(status, 200, "{body}");
    }
    server.stop().await;
    drop(server);
    // A lower limit stops no pool, and what it keeps can be reduced.
    let server = over(&sim, folder.path(), "[pools]\nmax_waiting = 0\n").await;
    for (numbers, wanted) in [([0, 2, 99], 200), ([0, 1, 99], 200), ([0, 2, 99], 422)] {
        let body = json!({"capacitySpec": capacity(numbers)});
        let (status, body) = send(&server, None, Method::PUT, "/v1/pools/p", &body).await;
        assert_eq!(status, wanted, "{body}");
    }
    server.stop().await;
}

#[tokio::test]
async fn the_pools_of_a_tenant_and_their_templates_are_limited() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "[pools]\nmax_pools = 1\n").await;
    let a = key_of(&server, "team-a").await;
    for key in [None, Some(a.as_str())] {
        assert_eq!(add(&server, key, &pool("p", [0, 0, 1])).await.0, 201);
        assert_eq!(add(&server, key, &pool("p", [0, 0, 1])).await.0, 409);
        let (status, refused) = add(&server, key, &pool("q", [0, 0, 1])).await;
        assert_eq!(
            (status, &refused["code"]),
            (403, &json!("SANDBOX::QUOTA_EXCEEDED"))
        );
        let (status, _) = send(&server, key, Method::DELETE, "/v1/pools/p", &json!({})).await;
        assert_eq!(status, 204);
        let mut large = pool("q", [0, 0, 1]);
        large["template"]["spec"]["containers"][0]["args"] = json!(["x".repeat(65 << 10)]);
        let (status, refused) = add(&server, key, &large).await;
        assert_eq!(
            (status, fields(&refused)),
            (422, vec!["template".to_owned()])
        );
        assert_eq!(add(&server, key, &pool("q", [0, 0, 1])).await.0, 201);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_template_has_the_limits_for_which_its_tenant_has_quotas() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let more = "[quotas.tenants.team-a]\ncpu = '2'\nmemory = '1Gi'\n";
    let server = over(&sim, folder.path(), more).await;
    let a = key_of(&server, "team-a").await;
    let limits = "template.spec.containers.0.resources.limits";
    let wanted = [format!("{limits}.cpu"), format!("{limits}.memory")];
    let mut body = pool("p", [0, 0, 1]);
    let (status, refused) = add(&server, Some(&a), &body).await;
    assert_eq!((status, fields(&refused)), (422, wanted.to_vec()));
    assert_eq!(add(&server, None, &body).await.0, 201, "without a tenant");
    let container = &mut body["template"]["spec"]["containers"][0];
    container["resources"] = json!({"limits": {"cpu": "1", "memory": "256Mi"}});
    assert_eq!(add(&server, Some(&a), &body).await.0, 201);
    let mut change = body.clone();
    change["template"]["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": "1"}});
    let (status, refused) = send(&server, Some(&a), Method::PUT, "/v1/pools/p", &change).await;
    assert_eq!((status, fields(&refused)), (422, wanted[1..].to_vec()));
    server.stop().await;
}

#[tokio::test]
async fn operators_without_a_tenant_reach_the_pools_of_one() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    let a = key_of(&server, "team-a").await;
    assert_eq!(add(&server, Some(&a), &pool("p", [0, 0, 1])).await.0, 201);
    let none = &Value::Null;
    let (_, list) = send(&server, None, Method::GET, "/v1/pools", none).await;
    assert_eq!(list["items"], json!([]));
    let (status, list) = send(&server, None, Method::GET, "/v1/pools?tenant=team-a", none).await;
    assert_eq!((status, &list["items"][0]["name"]), (200, &json!("p")));
    let own = send(
        &server,
        Some(&a),
        Method::GET,
        "/v1/pools?tenant=team-a",
        none,
    )
    .await;
    assert_eq!(own, (200, list));
    let (of_a, of_b) = ("/v1/pools/p?tenant=team-a", "/v1/pools/p?tenant=team-b");
    assert_eq!(send(&server, None, Method::GET, of_b, none).await.0, 404);
    let change = json!({"capacitySpec": capacity([0, 0, 2])});
    for (method, body) in [
        (Method::GET, none),
        (Method::PUT, &change),
        (Method::DELETE, none),
    ] {
        let (status, refused) = send(&server, Some(&a), method, of_b, body).await;
        assert_eq!(status, 400, "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("tenant"));
    }
    let refused = send(
        &server,
        Some(&a),
        Method::GET,
        "/v1/pools?tenant=team-b",
        none,
    )
    .await;
    assert_eq!(refused.0, 400);
    assert_eq!(send(&server, None, Method::GET, of_a, none).await.0, 200);
    let (status, changed) = send(&server, None, Method::PUT, of_a, &change).await;
    assert_eq!(
        (status, &changed["capacitySpec"]["poolMax"]),
        (200, &json!(2))
    );
    assert_eq!(send(&server, None, Method::DELETE, of_a, none).await.0, 204);
    assert_eq!(
        send(&server, Some(&a), Method::GET, "/v1/pools/p", none)
            .await
            .0,
        404
    );
    server.stop().await;
}

#[tokio::test]
async fn clients_of_an_exhausted_pool_are_asked_to_wait_as_long_as_creates_do() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(
        &sim,
        folder.path(),
        "[pools]\nacquisition_timeout_seconds = 7\n",
    )
    .await;
    assert_eq!(add(&server, None, &pool("p", [0, 0, 0])).await.0, 201);
    let claim = json!({"extensions": {"poolRef": "p"}, "timeout": 600});
    let request = server.request(Method::POST, "/v1/sandboxes").json(&claim);
    let response = request.send().await.unwrap();
    assert_eq!(response.status().as_u16(), 429);
    assert_eq!(response.headers()["retry-after"], "7");
    server.stop().await;
}

#[tokio::test]
async fn a_claimed_sandbox_that_was_gone_at_the_start_leaves_its_pool() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    assert_eq!(add(&server, None, &pool("p", [1, 1, 2])).await.0, 201);
    let claim = json!({"extensions": {"poolRef": "p"}, "timeout": 600});
    let (status, made) = send(&server, None, Method::POST, "/v1/sandboxes", &claim).await;
    assert_eq!(status, 202, "{made}");
    until_available(&server, "p", 1).await;
    server.stop().await;
    drop(server);
    let id: SandboxId = made["id"].as_str().unwrap().into();
    sim.vanish(&id).await;
    let server = over(&sim, folder.path(), "").await;
    let pool = || answer(server.request(Method::GET, "/v1/pools/p"));
    let is_gone = |seen: &(u16, Value)| seen.1["status"]["allocated"] == 0;
    wait_until("its end", pool, is_gone).await;
    server.stop().await;
    drop(server);
    let location = store_in(folder.path()).await.unwrap();
    let store = osb_store::open(&location).await.unwrap();
    let members = store.all_members().await.unwrap();
    assert!(members.iter().all(|member| member.id != id), "{members:?}");
    store.close().await;
}

#[tokio::test]
async fn a_pool_that_cannot_be_filled_does_not_hold_up_the_others() {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let server = over(&sim, folder.path(), "").await;
    let gate = Arc::new(tokio::sync::Notify::new());
    sim.set_faults(Faults {
        start_gate: Some(Arc::clone(&gate)),
        ..Faults::default()
    });
    assert_eq!(add(&server, None, &pool("a", [50, 50, 50])).await.0, 201);
    assert_eq!(add(&server, None, &pool("b", [1, 1, 1])).await.0, 201);
    let started = || {
        let specs = sim.sandboxes().into_iter().filter_map(|id| sim.spec(&id));
        let pools = specs.filter_map(|spec| spec.origin.pool.map(|pool| pool.to_string()));
        pools.collect::<Vec<_>>()
    };
    let pools = || async { started() };
    wait_until("four starts", pools, |seen| seen.len() == 4).await;
    // The first pool was alone when it got all of them. The next one is for the other.
    gate.notify_one();
    let is_dealt = |seen: &Vec<String>| seen.contains(&"b".to_owned());
    wait_until("a start of the other", pools, is_dealt).await;
    sim.set_faults(Faults::default());
    for _ in 0..8 {
        gate.notify_one();
        tokio::task::yield_now().await;
    }
    server.stop().await;
}
