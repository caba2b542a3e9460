//! Creates that the runtime fails: what remains of them.

use osb_runtime::sim::{Faults, SimRuntime};
use osb_store::Outcome;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use super::calls::{answer, create};

async fn listed(server: &TestServer) -> Vec<Value> {
    let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
    list["items"].as_array().cloned().unwrap_or_default()
}

/// What is left after a failed create: an entry of the history with this reason, and nothing else.
async fn is_history(server: &TestServer, sim: &SimRuntime, reason: &str) {
    assert_eq!(listed(server).await, [] as [Value; 0], "{reason}");
    assert!(sim.sandboxes().is_empty(), "{reason}");
    let recent = server.service.recent_history(0, 1).await.unwrap();
    let [entry] = recent.as_slice() else {
        panic!("{reason}: no history")
    };
    assert_eq!(entry.reason, reason);
    assert!(
        !entry.message.is_empty() && !entry.stages.is_empty(),
        "{entry:?}"
    );
    let (status, _) = super::calls::get(server, entry.id.as_str()).await;
    assert_eq!(status, 404, "{reason}");
}

#[tokio::test]
async fn a_failed_create_leaves_its_reason_and_nothing_else() {
    let (server, sim) = TestServer::sim().await.unwrap();
    let none = Faults::default;
    for (faults, status, code, reason) in [
        (
            Faults {
                no_image: true,
                ..none()
            },
            500,
            "DOCKER::SANDBOX_IMAGE_PULL_FAILED",
            "IMAGE_PULL_FAILED",
        ),
        (
            Faults {
                start_fails: Some("no such device".to_owned()),
                ..none()
            },
            500,
            "DOCKER::SANDBOX_START_FAILED",
            "START_FAILED",
        ),
    ] {
        sim.set_faults(faults);
        let (seen, answer) = create(&server, |_| ()).await;
        assert_eq!(
            (seen.as_u16(), &answer["code"]),
            (status, &json!(code)),
            "{answer}"
        );
        is_history(&server, &sim, reason).await;
        sim.set_faults(none());
        let (seen, made) = create(&server, |_| ()).await;
        assert_eq!(seen, 202, "{made}");
        let path = format!("/v1/sandboxes/{}", made["id"].as_str().unwrap());
        let delete = server
            .request(Method::DELETE, &path)
            .header("Prefer", "wait");
        assert_eq!(answer_status(delete).await, 204);
    }
    server.stop().await;
}

async fn answer_status(request: reqwest::RequestBuilder) -> u16 {
    answer(request).await.0.as_u16()
}

#[tokio::test]
async fn a_failed_create_whose_removal_fails_is_listed_until_it_is_gone() {
    let (server, sim) = TestServer::sim().await.unwrap();
    sim.set_faults(Faults {
        no_image: true,
        remove_fails: Some("device busy".to_owned()),
        ..Faults::default()
    });
    let (status, answer) = create(&server, |_| ()).await;
    assert_eq!(status, 500, "{answer}");
    let left = listed(&server).await;
    assert_eq!(left.len(), 1);
    assert_eq!(left[0]["status"]["reason"], "REMOVAL_FAILED", "{left:?}");
    let message = left[0]["status"]["message"].as_str().unwrap();
    assert!(message.contains("device busy"), "{message}");
    sim.set_faults(Faults::default());
    // A full list from the runtime makes the server look for left-overs.
    sim.come_back().await;
    wait_until("the retried removal", || listed(&server), Vec::is_empty).await;
    let id = left[0]["id"].as_str().unwrap().into();
    let entry = server.service.history(&id).await.unwrap().unwrap();
    assert_eq!(entry.outcome, Outcome::CreateFailed, "{entry:?}");
    assert_eq!(entry.reason, "IMAGE_PULL_FAILED", "{entry:?}");
    server.stop().await;
}
