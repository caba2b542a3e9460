//! Containers that were renamed, copied or left over.

use std::time::Duration;

use osb_testkit::wait_until;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, body, create, delete, docker, get, ready};

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_that_was_renamed_by_hand_is_removed() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let server = stage.server().await;
    ready(&server).await;
    let id = create(&server, &body()).await;
    docker(&["rename", &stage.container_of(&id), "renamed-by-hand"]);
    delete(&server, &id).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

/// The container and image of a copied sandbox; removed when dropped.
struct Copy {
    image: String,
    container: String,
}

impl Copy {
    /// Commits the sandbox's container and runs the image.
    fn of(stage: &Stage, container: &str) -> Self {
        let image = format!("opensandbox-copy:{}", stage.instance.to_lowercase());
        docker(&["commit", container, &image]);
        let command = ["--entrypoint", "sleep", &image, "300"];
        let run = [&["run", "--detach"][..], &command].concat();
        let container = docker(&run);
        assert!(!container.is_empty(), "the copy does not run");
        Self { image, container }
    }

    fn exists(&self) -> bool {
        !docker(&["inspect", "--format", "{{.Id}}", &self.container]).is_empty()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        docker(&["rm", "--force", "--volumes", &self.container]);
        docker(&["rmi", "--force", &self.image]);
    }
}

#[test]
fn a_copy_of_a_sandbox_is_not_the_sandbox() {
    let mut stage = Stage::set();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let first = process();
    let (id, other) = first.block_on(async {
        stage.engine.up().unwrap();
        let server = stage.server().await;
        ready(&server).await;
        let id = create(&server, &body()).await;
        let copy = Copy::of(&stage, &stage.containers()[0]);
        drop(copy);
        // Events arrive in order: when this sandbox's end is visible, the copy's was processed.
        let other = create(&server, &body()).await;
        let ends = stage.container_of(&other);
        docker(&["kill", &ends]);
        let ended = |seen: &(StatusCode, Value)| seen.1["status"]["state"] != "Running";
        wait_until("the other's end", || get(&server, &other), ended).await;
        let (_, seen) = get(&server, &id).await;
        assert_eq!(seen["status"]["state"], "Running", "{seen}");
        (id, other)
    });
    first.shutdown_timeout(Duration::from_secs(60));
    let second = process();
    let copy = second.block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let original = stage.container_of(&id);
        let copy = Copy::of(&stage, &original);
        let server = stage.server().await;
        ready(&server).await;
        let (_, seen) = get(&server, &id).await;
        assert_eq!(seen["status"]["state"], "Running", "{seen}");
        docker(&["kill", &copy.container]);
        delete(&server, &other).await;
        assert_eq!(get(&server, &id).await.1["status"]["state"], "Running");
        delete(&server, &id).await;
        assert!(copy.exists(), "the copy was removed");
        let left = docker(&["inspect", "--format", "{{.Id}}", &original]);
        assert_eq!(left, "", "the sandbox was not removed");
        server.stop().await;
        copy
    });
    second.shutdown_timeout(Duration::from_secs(60));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        // After a restart, and without the original sandbox.
        let server = stage.server().await;
        ready(&server).await;
        assert_eq!(get(&server, &id).await.0, 404);
        server.service.reconcile().await;
        assert!(copy.exists(), "the copy was removed");
        server.stop().await;
        drop(copy);
    });
    assert_eq!(stage.containers(), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_own_leftovers_are_removed() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let foreign = format!("opensandbox.io/server={}-not", stage.instance);
    let other = docker(&[
        "run",
        "--detach",
        "--label",
        "opensandbox.io/id=foreign-1",
        "--label",
        &foreign,
        IMAGE,
        "sleep",
        "300",
    ]);
    let ours = format!("opensandbox.io/server={}", stage.instance);
    let never_started = docker(&[
        "create",
        "--label",
        "opensandbox.io/id=half-made-1",
        "--label",
        &ours,
        IMAGE,
        "true",
    ]);
    assert!(!other.is_empty() && !never_started.is_empty());
    let server = stage.server().await;
    ready(&server).await;
    let look = || async { stage.containers() };
    wait_until("the sweep", look, Vec::is_empty).await;
    let (_, list) = answer(server.request(Method::GET, "/v1/sandboxes")).await;
    assert_eq!(list["items"], json!([]));
    let left = docker(&["ps", "--quiet", "--filter", &format!("label={foreign}")]);
    docker(&["rm", "--force", &other]);
    assert!(
        !left.is_empty(),
        "another installation's sandbox was touched"
    );
    server.stop().await;
}
