//! Removal of sandboxes (contract: lifecycle §17.12).

use std::time::Duration;

use bollard::{
    Docker,
    errors::Error,
    query_parameters::{RemoveContainerOptionsBuilder, WaitContainerOptionsBuilder},
};
use futures::StreamExt;
use osb_protocol::SandboxId;

use super::{DockerRuntime, engine::bounded, error};
use crate::RuntimeError;

/// Longest wait for a removal that another client began.
const CONCURRENT_REMOVAL: Duration = Duration::from_secs(30);

impl DockerRuntime {
    pub(super) async fn remove_sandbox(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        // A list that is read meanwhile no longer has the sandbox.
        let belongings = self.belongings(id);
        self.remove_group(id).await?;
        self.release_volumes(id, belongings).await;
        Ok(())
    }

    /// Removes the containers of a sandbox.
    pub(super) async fn remove_group(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let failed = |error| {
            error::unavailable(&error).unwrap_or_else(|| RuntimeError::Remove {
                id: id.clone(),
                reason: error::reason(&error),
            })
        };
        // A list that is read meanwhile no longer has the sandbox.
        let mut volumes = self.originals.volumes(id);
        let was_adopted = || self.adoptions.is_owner(&self.config.instance, id);
        let mut is_adopted = was_adopted();
        // The main container first: it must not run without its sidecars.
        let knew_main = self.originals.main(id).is_some();
        let mut was_known = false;
        for container in self.originals.group(id) {
            let removed = remove_container(docker, &container, Force::Yes).await;
            was_known |= removed.map_err(failed)?;
        }
        if is_adopted || !(knew_main && was_known) {
            // Another process created it, and the sidecar may not be known yet, or the engine's response
            // to its create was lost.
            let found = self.find_group(id).await?;
            volumes.extend(self.originals.volumes(id));
            is_adopted |= was_adopted();
            for container in found {
                remove_container(docker, &container, Force::Yes)
                    .await
                    .map_err(failed)?;
            }
        }
        if is_adopted {
            self.remove_belongings(id, volumes).await;
        }
        Ok(())
    }
}

/// Whether to kill a running container or to refuse its removal.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Force {
    Yes,
    No,
}

/// Removes a container with the anonymous volumes that its image declared. With force, kills it in
/// the same call. Returns whether it existed.
pub(super) async fn remove_container(
    docker: &Docker,
    name: &str,
    force: Force,
) -> Result<bool, Error> {
    let options = RemoveContainerOptionsBuilder::default()
        .force(force == Force::Yes)
        .v(true)
        .build();
    match bounded(docker, docker.remove_container(name, Some(options))).await {
        Ok(()) => Ok(true),
        Err(error) if error::is_missing(&error) => Ok(false),
        // Another client is removing it right now, which may still fail.
        Err(error) if error::status(&error) == Some(409) && is_removal_in_progress(&error) => {
            let gone = wait_until_gone(docker, name).await;
            gone.unwrap_or(Err(error)).map(|()| true)
        }
        Err(error) => Err(error),
    }
}

/// Whether the engine refuses a removal because another one has begun.
fn is_removal_in_progress(error: &Error) -> bool {
    let message = error::message(error).to_ascii_lowercase();
    message.starts_with("removal of container ") && message.ends_with("already in progress")
}

/// Waits for a removal by another client. `None` if it takes too long or its result is unknown.
async fn wait_until_gone(docker: &Docker, name: &str) -> Option<Result<(), Error>> {
    let options = WaitContainerOptionsBuilder::default()
        .condition("removed")
        .build();
    let mut gone = docker.wait_container(name, Some(options));
    // A removal that fails ends the wait as well, with the exit status of the container, which is
    // irrelevant here, and the reason. Both come as a response or as an error.
    match tokio::time::timeout(CONCURRENT_REMOVAL, gone.next()).await {
        Err(_) | Ok(None) => None,
        Ok(Some(Ok(end))) => {
            let reason = end.error.and_then(|error| error.message);
            Some(removal_end(reason.unwrap_or_default(), end.status_code))
        }
        Ok(Some(Err(Error::DockerContainerWaitError { error, code }))) => {
            Some(removal_end(error, code))
        }
        Ok(Some(Err(error))) if error::is_missing(&error) => Some(Ok(())),
        Ok(Some(Err(error))) => Some(Err(error)),
    }
}

fn removal_end(error: String, code: i64) -> Result<(), Error> {
    match error.is_empty() {
        true => Ok(()),
        false => Err(Error::DockerContainerWaitError { error, code }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use serde_json::{Value, json};

    use super::*;
    use crate::{
        Role, Runtime,
        docker::{
            fake_engine::{FakeEngine, FakeVolumes, HOLD},
            labels,
        },
    };

    /// An engine with a running sidecar of sandbox `a`, with its main container or without it.
    async fn engine_with_sidecar(has_main: bool) -> FakeEngine {
        let container = |name: &str, role: &str| {
            json!({
                "Id": name, "ImageID": "i", "State": "running",
                "Labels": {labels::ID: "a", labels::SERVER: "us", labels::ROLE: role},
            })
        };
        let (side, main) = (container("side", "egress"), container("main", ""));
        FakeEngine::start(move |request| {
            let is_by_id = request.contains("opensandbox.io%2Fid%3Da");
            let is_by_role = request.contains("opensandbox.io%2Frole%3Degress");
            match request {
                _ if request.starts_with("DELETE") => (204, String::new()),
                _ if request.starts_with("GET /containers/json") && is_by_role => ok(json!([side])),
                _ if request.starts_with("GET /containers/json") && is_by_id => ok(if has_main {
                    json!([side, main])
                } else {
                    json!([side])
                }),
                _ if request.starts_with("GET /containers/json") => ok(json!([])),
                _ if request.starts_with("GET /volumes") => ok(json!({"Volumes": []})),
                _ => ok(json!({})),
            }
        })
        .await
    }

    #[tokio::test]
    async fn a_sidecar_goes_only_when_it_has_no_main_container() {
        for (has_main, removals) in [(false, 1), (true, 0)] {
            let engine = engine_with_sidecar(has_main).await;
            engine.runtime().sweep().await.unwrap();
            let removed = engine.requests("DELETE /containers/side");
            assert_eq!(removed.len(), removals, "main: {has_main}");
        }
    }

    /// Containers of the reference: a sandbox behind its sidecar, which has no id of its own.
    async fn engine_of_the_reference(
        has_main: bool,
        created: i64,
    ) -> (FakeEngine, Arc<FakeVolumes>) {
        let volumes = Arc::<FakeVolumes>::default();
        for volume in ["opensandbox-runtime-box-a", "made"] {
            volumes.add(volume, json!({labels::VOLUMES: "server"}));
        }
        volumes.add("database", json!({}));
        let shared = Arc::clone(&volumes);
        let main = json!({
            "Id": "main", "Names": ["/sandbox-box-a"], "Created": created, "State": "running",
            "Image": "debian:12", "HostConfig": {"NetworkMode": "container:side"},
            "Labels": {labels::ID: "box-a", labels::VOLUMES: r#"["made", "database"]"#},
        });
        let side = json!({
            "Id": "side", "Names": ["/sandbox-egress-box-a"], "Created": created,
            "State": "running", "Image": "egress", "HostConfig": {"NetworkMode": "bridge"},
            "Labels": {labels::SIDECAR_FOR: "box-a"},
            "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.9"}}},
        });
        let (removed, has_side) = (AtomicBool::new(false), AtomicBool::new(true));
        let engine = FakeEngine::start_reading(move |request, body| {
            if let Some(response) = shared.respond(request, body) {
                return response;
            }
            if request.starts_with("DELETE /containers/main?") {
                removed.store(true, Ordering::Relaxed);
                return (HOLD, String::new());
            }
            if request.starts_with("DELETE /containers/side?") {
                has_side.store(false, Ordering::Relaxed);
            }
            let has_main = has_main && !removed.load(Ordering::Relaxed);
            let of_sidecars = request.contains("egress-sidecar-for");
            let of_sandboxes = request.contains("opensandbox.io%2Fid");
            match request {
                _ if !request.starts_with("GET") => (204, String::new()),
                _ if request.starts_with("GET /containers/json") && of_sidecars => ok(match has_side.load(Ordering::Relaxed) {
 true => json!([side]),
 false => json!([]),
}),
                _ if request.starts_with("GET /containers/json") && of_sandboxes && has_main => {
                    ok(json!([main]))
                }
                _ if request.starts_with("GET /containers/json") => ok(json!([])),
                "GET /containers/side/json" => ok(json!({
                    "Created": "2031-05-01T10:00:00Z", "Config": {"Labels": {labels::SIDECAR_FOR: "box-a"}},
                    "State": {"Running": true}, "HostConfig": {"NetworkMode": "bridge"},
                    "NetworkSettings": {"Networks": {"bridge": {"IPAddress": "172.17.0.9"}}},
                })),
                "GET /containers/main/json" => ok(json!({
                    "Created": "2031-05-01T10:00:00Z", "State": {"Running": true},
                    "Config": {"Labels": {labels::ID: "box-a"}, "Cmd": ["x"], "Image": "debian:12"},
                    "HostConfig": {"NetworkMode": "container:side"},
                })),
                _ => missing(),
            }
        })
        .await;
        (engine, volumes)
    }

    #[tokio::test]
    async fn a_sandbox_of_the_reference_is_taken_over_with_its_sidecar() {
        let (engine, volumes) = engine_of_the_reference(true, 1_000_000_000).await;
        let runtime = engine.runtime();
        let all = runtime.observe_all().await.unwrap();
        let [sandbox] = all.as_slice() else {
            panic!("{all:?}");
        };
        assert_eq!(
            (sandbox.origin.id.as_str(), sandbox.status.lost),
            ("box-a", None)
        );
        let ip = sandbox.status.address.ip.map(|ip| ip.to_string());
        assert_eq!(ip.as_deref(), Some("172.17.0.9"), "the sidecar's");
        runtime.sweep().await.unwrap();
        for name in ["main", "side"] {
            let renames = format!("POST /containers/{name}/rename?name=osb-");
            assert_eq!(engine.requests(&renames).len(), 1, "{name}");
        }
        assert_eq!(engine.requests("DELETE").len(), 0, "nothing is left over");
        runtime.remove(&sandbox.origin.id).await.unwrap();
        let removed = engine.requests("DELETE").join(" ");
        for path in ["/containers/main?", "/containers/side?"] {
            assert!(removed.contains(path), "{path}: {removed}");
        }
        // Its volumes, and the record of its owner; not a volume that its label only names.
        assert_eq!(volumes.names(), ["database"]);
    }

    #[tokio::test]
    async fn volumes_are_removed_although_a_list_is_read_during_the_removal() {
        let (engine, volumes) = engine_of_the_reference(true, 1_000_000_000).await;
        let (runtime, id) = (engine.runtime(), SandboxId::from("box-a"));
        runtime.observe_all().await.unwrap();
        let listed = async {
            while engine.requests("DELETE /containers/main?").is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            runtime.observe_all().await.unwrap()
        };
        let (removed, listed) = tokio::join!(runtime.remove(&id), listed);
        removed.unwrap();
        assert_eq!(listed.len(), 0);
        assert_eq!(volumes.names(), ["database"]);
    }

    #[tokio::test]
    async fn a_new_process_knows_the_volumes_of_a_sandbox_that_it_removes() {
        let (engine, volumes) = engine_of_the_reference(true, 1_000_000_000).await;
        engine.runtime().remove(&"box-a".into()).await.unwrap();
        assert_eq!(volumes.names(), ["database"]);
    }

    #[tokio::test]
    async fn a_sidecar_of_the_reference_without_a_sandbox_goes_unless_it_is_new() {
        let now = jiff::Timestamp::now().as_second();
        for (created, removals) in [(1_000_000_000, 1), (now, 0)] {
            let (engine, _) = engine_of_the_reference(false, created).await;
            let runtime = engine.runtime();
            // Every connection begins with a list.
            runtime.observe_all().await.unwrap();
            runtime.sweep().await.unwrap();
            let removed = engine.requests("DELETE /containers/side");
            assert_eq!(removed.len(), removals, "{created}");
        }
    }

    #[tokio::test]
    async fn a_main_container_is_found_when_only_its_sidecar_is_known() {
        // The response to the create of the main container was lost.
        let engine = engine_with_sidecar(true).await;
        let runtime = engine.runtime();
        let originals = &runtime.originals;
        originals.record_created(&"a".into(), Role::Egress, "side");
        runtime.remove(&"a".into()).await.unwrap();
        assert_eq!(engine.requests("DELETE /containers/main").len(), 1);
    }

    #[tokio::test]
    async fn a_container_whose_image_cannot_be_inspected_does_not_keep_others_from_being_swept() {
        let engine = FakeEngine::start(|request| {
            let container = |id: &str, image: &str, role: &str| {
                json!({
                    "Id": id, "ImageID": image, "State": "created",
                    "Labels": {labels::ID: id, labels::SERVER: "us", labels::ROLE: role},
                })
            };
            let [bad, good] = ["bad", "good"].map(|image| container(image, image, ""));
            let [bad_sidecar, good_sidecar] = [("bad-sidecar", "bad"), ("good-sidecar", "good")]
                .map(|(id, image)| container(id, image, "egress"));
            let lists = |label: &str| {
                request.starts_with("GET /containers/json") && request.contains(label)
            };
            match request {
                _ if lists("helper-of") => ok(json!([])),
                _ if lists("role%3Degress") => ok(json!([bad_sidecar, good_sidecar])),
                _ if lists("id%3Dbad-sidecar") => ok(json!([bad_sidecar])),
                _ if lists("id%3Dgood-sidecar") => ok(json!([good_sidecar])),
                _ if lists("server%3Dus") => ok(json!([bad, good])),
                _ if lists("") => ok(json!([])),
                "GET /images/bad/json" => (500, json!({"message": "damaged"}).to_string()),
                _ if request.starts_with("GET /containers/") => {
                    ok(json!({"State": {"Status": "created"}}))
                }
                _ if request.starts_with("GET /volumes") => ok(json!({"Volumes": []})),
                _ if request.starts_with("DELETE") => (204, String::new()),
                _ => ok(json!({})),
            }
        })
        .await;
        engine.runtime().sweep().await.unwrap();
        let removed = engine.requests("DELETE /containers/");
        let names = removed
            .iter()
            .filter_map(|request| request.split(['/', '?']).nth(2));
        assert_eq!(names.collect::<Vec<_>>(), ["good", "good-sidecar"]);
    }

    const IN_PROGRESS: &str = r#"{"message":"removal of container x is already in progress"}"#;

    fn ok(body: Value) -> (u16, String) {
        (200, body.to_string())
    }

    fn missing() -> (u16, String) {
        (404, json!({"message": "No such container"}).to_string())
    }

    /// Sweeps a container of sandbox `a` that had not started when it was listed, and has `status`
    /// now. Returns the removals.
    async fn swept(status: &'static str) -> Vec<String> {
        let engine = FakeEngine::start(move |request| {
            if request.starts_with("GET /containers/json") {
                let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                let mine = json!([{"Id": "c1", "State": "created", "Labels": labels}]);
                let helpers = request.contains("helper-of");
                return ok(if helpers { json!([]) } else { mine });
            }
            match request {
                "GET /containers/c1/json" => ok(json!({"State": {"Status": status}})),
                _ if request.starts_with("GET /volumes") => ok(json!({"Volumes": []})),
                _ => (204, String::new()),
            }
        })
        .await;
        engine.runtime().sweep().await.unwrap();
        engine.requests("DELETE")
    }

    #[tokio::test]
    async fn a_container_that_started_after_the_list_is_not_swept() {
        assert_eq!(swept("running").await, [""; 0]);
        assert_eq!(swept("exited").await, [""; 0]);
        let removed = swept("created").await;
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert!(!removed[0].contains("force=true"), "{removed:?}");
    }

    #[tokio::test]
    async fn a_removal_by_another_client_may_fail() {
        for (answer, gone) in [
            (json!({"StatusCode": 0}), true),
            (json!({"StatusCode": 137}), true),
            (json!({"StatusCode": 137, "Error": {"Message": ""}}), true),
            (
                json!({"StatusCode": 0, "Error": {"Message": "busy"}}),
                false,
            ),
            (
                json!({"StatusCode": 137, "Error": {"Message": "busy"}}),
                false,
            ),
        ] {
            let response = answer.to_string();
            let engine = FakeEngine::start(move |request| match request.split(' ').next() {
                Some("DELETE") => (409, IN_PROGRESS.to_owned()),
                Some("GET") => {
                    let labels = json!({labels::ID: "a", labels::SERVER: "us"});
                    ok(json!([{"Id": "c1", "Labels": labels}]))
                }
                _ => (200, response.clone()),
            })
            .await;
            match engine.runtime().remove(&"a".into()).await {
                Ok(()) => assert!(gone, "{answer}"),
                Err(error) => {
                    assert!(!gone, "{answer}");
                    assert!(error.to_string().ends_with(": busy"), "{error}");
                }
            }
        }
    }

    #[tokio::test]
    async fn a_sandbox_is_found_by_its_label() {
        let engine = FakeEngine::start(|request| {
            if request.starts_with("GET /containers/json") {
                let of = |server: &str| json!({labels::ID: "a", labels::SERVER: server});
                return ok(json!([
                    {"Id": "ours", "Labels": of("us")},
                    {"Id": "theirs", "Labels": of("them")},
                ]));
            }
            match request.starts_with("DELETE /containers/ours") {
                true => (204, String::new()),
                false => missing(),
            }
        })
        .await;
        engine.runtime().remove(&"a".into()).await.unwrap();
        let removed = engine.requests("DELETE");
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert!(
            removed[0].starts_with("DELETE /containers/ours?"),
            "{removed:?}"
        );
        let engine = FakeEngine::start(|request| match request.starts_with("GET") {
            true => ok(json!([])),
            false => missing(),
        })
        .await;
        engine.runtime().remove(&"a".into()).await.unwrap();
    }
}
