//! Claims that cannot be made, are made late or are asked for twice, and used sandboxes without a claim.

use osb_testkit::patience;
use tokio::time::timeout;

use super::*;

/// A create without a pool that makes what [`pool`] does.
fn plain() -> Value {
    json!({
        "image": {"uri": "debian:12"}, "entrypoint": ["sleep", "7"], "timeout": 600,
        "resourceLimits": {"cpu": "500m", "memory": "256Mi"},
    })
}

/// A server that gives sandboxes of a full pool to plain creates.
async fn serving_plain_creates() -> (TestServer, Arc<SimRuntime>, tempfile::TempDir) {
    let (sim, folder) = (engine(), tempfile::tempdir().unwrap());
    let more = "[pools]\nserve_plain_creates = true\n";
    let server = over(&sim, folder.path(), more).await;
    assert_eq!(add(&server, &pool("p", [1, 1, 4])).await.0, 201);
    until_available(&server, "p", 1).await;
    (server, sim, folder)
}

fn unanswered() -> Faults {
    Faults {
        claim_unanswered: true,
        ..Faults::default()
    }
}

async fn message(server: &TestServer, id: &SandboxId) -> String {
    let (_, shown) = get(server, id).await;
    shown["status"]["message"].to_string()
}

#[tokio::test]
async fn variables_that_a_claim_cannot_set_use_up_no_sandbox() {
    let (server, sim, _folder) = filled([1, 1, 2]).await;
    let waiting = sim.sandboxes();
    for (name, value) in [
        ("JUPYTER_TOKEN", json!("t")),
        ("JUPYTER_HOST", json!("h")),
        ("EXECD_ENVS", json!(null)),
        ("EXECD_ISOLATION_CONFIG", json!("f")),
        ("EXECD_LIFECYCLE_CONFIG", json!("f")),
    ] {
        let mut body = claim();
        body["env"] = json!({name: value});
        let (status, answer) = create(&server, &body).await;
        assert_eq!(status, 400, "{answer}");
        let place = json!(["body", "env", name]);
        assert_eq!(answer["detail"][0]["loc"], place, "{answer}");
    }
    // The request is read, and the claim would be longer than execd takes.
    let mut body = claim();
    let long = (0..8).map(|n| (format!("V{n}"), json!("x".repeat(130_700))));
    body["env"] = Value::Object(long.collect());
    let (status, answer) = create(&server, &body).await;
    assert_eq!(
        (status, &answer["detail"][0]["loc"]),
        (400, &json!(["body", "env"])),
        "{answer}"
    );
    assert_eq!(sim.sandboxes(), waiting, "none was used up");
    server.stop().await;
}

#[tokio::test]
async fn a_plain_create_with_such_variables_has_a_sandbox_of_its_own() {
    let (server, sim, _folder) = serving_plain_creates().await;
    let waiting = sim.sandboxes();
    let mut body = plain();
    body["env"] = json!({"JUPYTER_TOKEN": "t"});
    let id = created(&server, &body).await;
    assert!(!waiting.contains(&id));
    let env = sim.spec(&id).unwrap().env;
    assert_eq!(env["JUPYTER_TOKEN"].as_deref(), Some("t"));
    server.stop().await;
}

#[tokio::test]
async fn a_plain_create_whose_claim_fails_has_a_sandbox_of_its_own() {
    let (server, sim, _folder) = serving_plain_creates().await;
    let refused = Faults {
        claim_fails: Some("it was claimed already".to_owned()),
        ..Faults::default()
    };
    for (number, faults) in [unanswered(), refused].into_iter().enumerate() {
        let waiting = sim.sandboxes();
        sim.set_faults(faults);
        let key = number.to_string();
        let once = || {
            let request = server.request(Method::POST, "/v1/sandboxes").json(&plain());
            answer(request.header("Idempotency-Key", &key))
        };
        let (status, made) = once().await;
        assert_eq!(status, 202, "{made}");
        let cold = created(&server, &plain()).await;
        let ids = [SandboxId::from(made["id"].as_str().unwrap()), cold];
        for id in &ids {
            assert!(!waiting.contains(id));
            assert_eq!(sim.claim_of(id), None, "it is not of the pool");
            assert!(!sim.spec(id).unwrap().waits);
        }
        assert_eq!(once().await.1["id"], made["id"], "its key leads to it");
        let used = async || waiting.iter().any(|id| sim.sandboxes().contains(id));
        wait_until("what may have been claimed to go", used, |is_left| !is_left).await;
        for id in ids {
            let path = format!("/v1/sandboxes/{id}");
            assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
        }
        wait_until("their end", || listed(&server), |count| *count == 0).await;
        sim.set_faults(Faults::default());
        until_available(&server, "p", 1).await;
    }
    // One that names the pool gets the failure.
    sim.set_faults(unanswered());
    assert_eq!(create(&server, &claim()).await.0, 500);
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_create_takes_and_awaits_no_other_sandbox() {
    let (server, sim, _folder) = filled([1, 1, 2]).await;
    // No other sandbox becomes ready.
    sim.set_faults(Faults {
        start_gate: Some(Arc::default()),
        ..Faults::default()
    });
    let once = || {
        let request = server.request(Method::POST, "/v1/sandboxes").json(&claim());
        answer(request.header("Idempotency-Key", "k"))
    };
    let (status, first) = once().await;
    assert_eq!(status, 202, "{first}");
    let starting = async || sim.sandboxes().len();
    wait_until("the next start", starting, |count| *count == 2).await;
    let again = timeout(patience(), once()).await;
    let (status, again) = again.expect("the answer is known");
    assert_eq!((status, &again["id"]), (202, &first["id"]));
    server.stop().await;
}

#[tokio::test]
async fn a_claim_that_an_end_of_the_server_interrupted_is_repeated_until_execd_answers() {
    let (server, sim, folder) = filled([1, 1, 2]).await;
    let id = created(&server, &claim()).await;
    let usual = message(&server, &id).await;
    until_available(&server, "p", 1).await;
    server.stop().await;
    drop(server);
    sim.set_faults(unanswered());
    let server = over(&sim, folder.path(), "").await;
    let shown = || message(&server, &id);
    let late = wait_until("a late execd", shown, |text| *text != usual).await;
    assert!(late.contains("execd"), "{late}");
    sim.set_faults(Faults::default());
    wait_until("its execd", shown, |text| *text == usual).await;
    server.stop().await;
}

/// A store that was restored from a backup does not know the claim of a used sandbox.
#[tokio::test]
async fn a_used_sandbox_without_a_claim_keeps_what_clients_changed() {
    let (server, sim, _folder) = filled([1, 1, 4]).await;
    let used = created(&server, &claim()).await;
    server.stop().await;
    drop(server);
    let old = tempfile::tempdir().unwrap();
    let server = over(&sim, old.path(), "").await;
    let known = async |server: &TestServer| {
        let shown = || get(server, &used);
        wait_until("the used one", shown, |seen| seen.0 == 200)
            .await
            .1
    };
    known(&server).await;
    let path = format!("/v1/sandboxes/{used}");
    let patch = server.request(Method::PATCH, &format!("{path}/metadata"));
    let (status, body) = answer(patch.json(&json!({"team": "core"}))).await;
    assert_eq!(status, 200, "{body}");
    server.stop().await;
    drop(server);
    let server = over(&sim, old.path(), "").await;
    let shown = known(&server).await;
    assert_eq!(shown["metadata"], json!({"team": "core"}));
    sim.set_faults(Faults {
        remove_fails: Some("busy".to_owned()),
        ..Faults::default()
    });
    assert_eq!(answer(server.request(Method::DELETE, &path)).await.0, 204);
    server.stop().await;
    drop(server);
    sim.set_faults(Faults::default());
    let server = over(&sim, old.path(), "").await;
    let left = async || sim.sandboxes().contains(&used);
    wait_until("its removal", left, |is_left| !is_left).await;
    server.stop().await;
}
