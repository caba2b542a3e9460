//! Warm sidecars on an engine whose sidecars answer.

use std::time::Duration;

use osb_service::Supervisor;
use serde_json::json;

use super::fake_host::{FakeHost, config};
use super::*;
use crate::{
    NetworkPolicy, Runtime, RuntimeError, SecureKind, SecureRuntime, Stage,
    docker::{EgressConfig, labels},
};

const RULES: &str = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;
/// Guards against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sandbox with a network policy.
fn spec() -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.origin.id = crate::new_id();
    spec.origin.secure_access = None;
    spec.origin.egress_token = Some("own".to_owned().into());
    spec.network_policy = Some(NetworkPolicy {
        rules: RULES.to_owned(),
        variables: [].into(),
    });
    spec
}

/// The same with a named volume.
fn with_volume(path: &str) -> CreateSpec {
    let mut spec = spec();
    let volume = json!({"name": "v", "mountPath": path, "pvc": {"claimName": "c"}});
    // Only for its texts: the engine of these tests has no volumes.
    spec.origin.volumes = vec![serde_json::from_value(volume).unwrap()];
    spec
}

async fn until(what: &str, is_true: impl Fn() -> bool) {
    let waiting = async {
        while !is_true() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, waiting).await;
    waited.unwrap_or_else(|_| panic!("{what}"));
}

/// A server's runtime with a warm sidecar.
async fn warmed(host: &FakeHost) -> (Arc<DockerRuntime>, Supervisor) {
    let (runtime, tasks) = (host.runtime(), Supervisor::new());
    start(Arc::clone(&runtime), &tasks);
    until("one waits", || is_full(&runtime)).await;
    (runtime, tasks)
}

fn is_full(runtime: &DockerRuntime) -> bool {
    runtime.warm_sidecars().unwrap().waiting == 1
}

/// Takes a warm sidecar as the domain does.
fn taken(runtime: &DockerRuntime) -> CreateSpec {
    let mut spec = spec();
    runtime.prepare(&mut spec);
    spec.prepared.as_ref().expect("one waits").commit();
    spec
}

async fn create(runtime: &DockerRuntime, spec: CreateSpec) -> Result<SandboxId, RuntimeError> {
    let made = runtime.create(spec, &|_: Stage| {}).await;
    made.map(|observed| observed.origin.id)
}

fn counts(runtime: &DockerRuntime) -> (u64, u64, u64) {
    let warm = runtime.warm_sidecars().unwrap();
    (warm.hits, warm.misses, warm.failures)
}

#[tokio::test]
async fn a_create_claims_the_one_that_waits() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let [warm] = host.of_role("egress").try_into().unwrap();
    let before = host.containers()[&warm].clone();
    assert_eq!(before["HostConfig"]["NetworkMode"], "n");
    let spec = taken(&runtime);
    let (id, token) = (spec.id().clone(), spec.origin.egress_token.clone());
    assert_eq!(before["Labels"][labels::ID], id.as_str());
    assert_eq!(create(&runtime, spec).await.unwrap(), id);
    assert_eq!(host.claimed(), [(id.to_string(), RULES.to_owned())]);
    let [main] = host.of_role("").try_into().unwrap();
    let main = &host.containers()[&main];
    assert_eq!(
        main["HostConfig"]["NetworkMode"],
        format!("container:{warm}")
    );
    let labels = &main["Labels"];
    let token = secrecy::ExposeSecret::expose_secret(&token.unwrap()).to_owned();
    assert_eq!(labels[labels::EGRESS_TOKEN], token);
    let env = before["Env"].as_array().unwrap();
    assert!(env.contains(&json!(format!("OPENSANDBOX_EGRESS_TOKEN={token}"))));
    for (port, label) in [
        ("44772/tcp", labels::EXECD_PORT),
        ("8080/tcp", labels::HTTP_PORT),
    ] {
        let published = &before["HostConfig"]["PortBindings"][port][0]["HostPort"];
        assert_eq!(labels[label], *published, "{port}");
        assert!(published.is_string(), "{port}");
    }
    assert_eq!(counts(&runtime), (1, 0, 0));
    let read = runtime.copying().unwrap().read_environment(&id).await;
    assert_eq!(read.unwrap().network_policy.as_deref(), Some(RULES));

    // Its place is taken by another one, and both outlive a sweep.
    until("another one waits", || is_full(&runtime)).await;
    runtime.sweep().await.unwrap();
    assert_eq!(host.of_role("egress").len(), 2);
    let all = runtime.observe_all().await.unwrap();
    assert_eq!(all.len(), 1, "one that waits is no sandbox: {all:?}");
    assert_eq!(all[0].status.lost, None);

    runtime.remove(&id).await.unwrap();
    let left = host.containers();
    assert!(!left.contains_key(&warm) && left.len() == 1, "{left:?}");
    tasks.drain(PATIENCE).await;
    assert!(
        host.containers().is_empty(),
        "a server that stops leaves none"
    );
}

#[tokio::test]
async fn what_needs_another_sidecar_gets_a_cold_one() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let policy = |spec: &mut CreateSpec, change: &dyn Fn(&mut NetworkPolicy)| {
        change(spec.network_policy.as_mut().unwrap());
    };
    let changes: [&dyn Fn(&mut CreateSpec); 4] = [
        &|spec| spec.network_policy = None,
        &|spec| spec.origin.secure_access = Some("s".to_owned().into()),
        &|spec| {
            policy(spec, &|it| {
                let name = "OPENSANDBOX_EGRESS_LOG_LEVEL".to_owned();
                it.variables.insert(name, "debug".to_owned());
            });
        },
        &|spec| policy(spec, &|it| it.rules = " ".repeat(LONGEST_POLICY + 1)),
    ];
    for change in changes {
        let mut spec = spec();
        change(&mut spec);
        let id = spec.id().clone();
        runtime.prepare(&mut spec);
        assert_eq!(*spec.id(), id);
        assert!(spec.prepared.is_none());
    }
    let mut spec = spec();
    policy(&mut spec, &|it| {
        let name = "OPENSANDBOX_EGRESS_LOG_LEVEL".to_owned();
        it.variables.insert(name, "debug".to_owned());
    });
    let id = create(&runtime, spec).await.unwrap();
    assert_eq!(host.claimed(), []);
    assert_eq!(counts(&runtime), (0, 1, 0));
    assert!(is_full(&runtime));
    runtime.remove(&id).await.unwrap();
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn one_that_cannot_be_claimed_or_does_not_fit_any_more_is_replaced_by_a_cold_one() {
    for is_claim_refused in [true, false] {
        let host = FakeHost::start().await;
        let (runtime, tasks) = warmed(&host).await;
        let [warm] = host.of_role("egress").try_into().unwrap();
        match is_claim_refused {
            true => host.fail_claims(409),
            // Found out by a create since.
            false => assert!(runtime.lose_ipv6()),
        }
        let spec = taken(&runtime);
        let id = spec.id().clone();
        assert_eq!(create(&runtime, spec).await.unwrap(), id);
        let all = host.containers();
        assert!(!all.contains_key(&warm), "{all:?}");
        let env = |body: &serde_json::Value| body["Env"].to_string().contains("AWAIT_CLAIM");
        let group = all
            .values()
            .filter(|it| it["Labels"][labels::ID] == id.as_str());
        let group: Vec<_> = group.map(env).collect();
        assert_eq!(group, [false, false], "{all:?}");
        assert_eq!(counts(&runtime), (0, 0, 1));
        runtime.remove(&id).await.unwrap();
        tasks.drain(PATIENCE).await;
        assert!(host.containers().is_empty());
    }
}

#[tokio::test]
async fn no_cold_one_is_started_beside_one_that_cannot_be_removed() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let warm: [String; 1] = host.of_role("egress").try_into().unwrap();
    assert_eq!(warm, ["c1"]);
    host.fail_claims(409);
    host.fail("DELETE /containers/c1", 500, "busy");
    let spec = taken(&runtime);
    let id = spec.id().clone();
    create(&runtime, spec).await.unwrap_err();
    let of_sandbox = || -> Vec<String> {
        let all = host.containers().into_iter();
        all.filter(|(_, it)| it["Labels"][labels::ID] == id.as_str())
            .map(|(container, _)| container)
            .collect()
    };
    assert_eq!(of_sandbox(), warm);
    runtime.remove(&id).await.unwrap();
    assert_eq!(of_sandbox(), [""; 0]);
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn a_create_that_fails_leaves_nothing() {
    for step in ["create", "start"] {
        let host = FakeHost::start().await;
        let (runtime, tasks) = warmed(&host).await;
        host.fail_main(step);
        let spec = taken(&runtime);
        let id = spec.id().clone();
        create(&runtime, spec).await.unwrap_err();
        let all = host.containers();
        let left = all
            .values()
            .any(|it| it["Labels"][labels::ID] == id.as_str());
        assert!(!left, "{step}: {all:?}");
        assert!(!runtime.warm.owns(&id), "{step}");
        tasks.drain(PATIENCE).await;
    }
}

#[tokio::test]
async fn one_that_a_create_does_not_use_serves_the_next_unless_its_id_is_known() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let mut spec = spec();
    runtime.prepare(&mut spec);
    let id = spec.id().clone();
    assert!(!is_full(&runtime), "no other create gets it");
    runtime.sweep().await.unwrap();
    assert!(runtime.warm.owns(&id), "it stays meanwhile");
    // Refused by a quota.
    drop(spec);
    assert!(is_full(&runtime));
    let spec = taken(&runtime);
    assert_eq!(*spec.id(), id);
    drop(spec);
    assert!(!runtime.warm.owns(&id));
    runtime.sweep().await.unwrap();
    let all = host.containers();
    let left = all
        .values()
        .any(|it| it["Labels"][labels::ID] == id.as_str());
    assert!(!left, "{all:?}");
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn those_of_a_server_that_was_killed_are_removed_and_are_no_sandboxes() {
    let host = FakeHost::start().await;
    let (_killed, _tasks) = warmed(&host).await;
    let neighbour = host.engine.runtime_with(DockerConfig {
        instance: "them".to_owned(),
        ..config()
    });
    assert_eq!(neighbour.foreign().await.unwrap(), []);
    neighbour.sweep().await.unwrap();
    assert_eq!(host.of_role("egress").len(), 1, "another server's");
    let next = host.runtime();
    assert_eq!(next.observe_all().await.unwrap().len(), 0);
    next.sweep().await.unwrap();
    assert!(host.containers().is_empty());
}

#[tokio::test]
async fn one_that_ends_while_it_waits_is_replaced() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let id = runtime.warm.locked().waiting[0].id.clone();
    assert!(!runtime.warm.lose(&"another".into()));
    assert!(runtime.warm.lose(&id));
    until("another one waits", || is_full(&runtime)).await;
    assert!(!runtime.warm.owns(&id));
    runtime.sweep().await.unwrap();
    assert_eq!(host.of_role("egress").len(), 1, "what is left of it goes");
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn one_that_ends_while_a_create_has_it_serves_no_other() {
    let host = FakeHost::start().await;
    let (runtime, tasks) = warmed(&host).await;
    let mut spec = spec();
    runtime.prepare(&mut spec);
    let id = spec.id().clone();
    assert!(!runtime.warm.lose(&id), "it does not wait");
    // Refused by a quota.
    drop(spec);
    assert!(!runtime.warm.owns(&id));
    until("another one waits", || is_full(&runtime)).await;
    assert!(!runtime.warm.owns(&id));
    runtime.sweep().await.unwrap();
    assert_eq!(host.of_role("egress").len(), 1, "what is left of it goes");
    tasks.drain(PATIENCE).await;
}

/// Settings of the newest sidecar that was created cold.
fn cold_settings(host: &FakeHost) -> serde_json::Value {
    let bodies = host.engine.bodies("POST /containers/create");
    let is_cold = |body: &&serde_json::Value| body["Labels"][labels::ROLE] == "egress";
    let newest = bodies.iter().rfind(is_cold).expect("there was one");
    newest["HostConfig"]["Sysctls"].clone()
}

#[tokio::test]
async fn words_in_a_mount_path_do_not_turn_ipv6_on_for_others() {
    let words = [
        "/etc/hostname/disable_ipv6",
        "/etc/open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory",
    ];
    for (step, path) in [
        ("create", words[0]),
        ("create", words[1]),
        ("start", words[1]),
    ] {
        let host = FakeHost::start().await;
        let runtime = host.runtime();
        let message = format!("lstat /var/lib/docker/overlay2/a/merged{path}");
        host.fail_main_with(Some((step, 500, format!("{message}: not a directory"))));
        let error = create(&runtime, with_volume(path)).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Start { .. }), "{error:?}");
        assert!(error.to_string().contains(path), "{error}");
        assert_eq!(
            host.engine.requests("POST /containers/create").len(),
            3,
            "tried once"
        );
        // Whatever the engine appends to its path.
        host.fail_main_with(Some((step, 500, message)));
        create(&runtime, with_volume(path)).await.unwrap_err();
        host.fail_main_with(None);
        create(&runtime, spec()).await.unwrap();
        let settings = cold_settings(&host);
        assert_eq!(
            settings.as_object().map(|it| it.len()),
            Some(3),
            "{settings}"
        );
        assert!(runtime.lose_ipv6(), "it was known until now");
    }
}

#[tokio::test]
async fn a_create_finds_out_about_ipv6_for_itself_and_a_sidecar_of_no_client_for_all() {
    let host = FakeHost::start().await;
    let runtime = host.runtime();
    host.lose_ipv6(1);
    create(&runtime, spec()).await.unwrap();
    assert!(cold_settings(&host).is_null());
    create(&runtime, spec()).await.unwrap();
    assert!(cold_settings(&host).is_object());

    host.lose_ipv6(1);
    let tasks = Supervisor::new();
    start(Arc::clone(&runtime), &tasks);
    until("one waits", || is_full(&runtime)).await;
    assert!(!runtime.lose_ipv6(), "it found out");
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn what_fails_is_removed_and_tried_again() {
    for (request, status, message) in [
        ("POST /containers/create", 500, "broken"),
        ("POST /containers/create", 404, "network n not found"),
        ("POST /containers/c1/start", 500, "broken"),
        (
            "POST /containers/c1/start",
            400,
            "open /proc/sys/net/ipv6/conf/all/disable_ipv6: no such file or directory",
        ),
    ] {
        let host = FakeHost::start().await;
        host.fail(request, status, message);
        let (runtime, tasks) = warmed(&host).await;
        assert_eq!(host.containers().len(), 1, "{message}");
        let lacks_ipv6 = message.contains("ipv6");
        assert_eq!(runtime.lose_ipv6(), !lacks_ipv6);
        tasks.drain(PATIENCE).await;
    }
}

#[tokio::test]
async fn a_server_that_stops_at_once_removes_those_of_one_that_crashed() {
    let host = FakeHost::start().await;
    let (_crashed, _its_tasks) = warmed(&host).await;
    let (_runtime, tasks) = warmed(&host).await;
    assert_eq!(host.of_role("egress").len(), 2);
    tasks.drain(PATIENCE).await;
    assert!(host.containers().is_empty());
}

#[tokio::test]
async fn an_image_that_is_not_here_is_left_to_the_first_create() {
    let host = FakeHost::start().await;
    host.fail("POST /containers/create", 404, "No such image: egress");
    let (runtime, tasks) = (host.runtime(), Supervisor::new());
    start(Arc::clone(&runtime), &tasks);
    until("it was tried", || {
        !host.engine.requests("POST /containers/create").is_empty()
    })
    .await;
    let id = create(&runtime, spec()).await.unwrap();
    until("one waits", || is_full(&runtime)).await;
    assert_eq!(host.engine.requests("POST /images"), [""; 0]);
    assert_eq!(counts(&runtime), (0, 1, 0));
    runtime.remove(&id).await.unwrap();
    tasks.drain(PATIENCE).await;
}

#[tokio::test]
async fn an_image_that_knows_no_claims_gets_none() {
    let host = FakeHost::start().await;
    host.become_another_release();
    let (runtime, tasks) = (host.runtime(), Supervisor::new());
    start(Arc::clone(&runtime), &tasks);
    until("the refill ends", || tasks.running() == 0).await;
    assert!(host.containers().is_empty());
    let id = create(&runtime, spec()).await.unwrap();
    assert_eq!(counts(&runtime), (0, 1, 0));
    runtime.remove(&id).await.unwrap();
}

#[tokio::test]
async fn there_are_none_where_none_are_wanted_or_no_policy_can_be_enforced() {
    let host = FakeHost::start().await;
    let without = |change: fn(&mut DockerConfig)| {
        let mut config = config();
        change(&mut config);
        host.engine.runtime_with(config)
    };
    let egress = |config: &mut DockerConfig, change: fn(&mut EgressConfig)| {
        change(config.egress.as_mut().unwrap());
    };
    let mut none = config();
    egress(&mut none, |it| it.warm = 0);
    for runtime in [
        host.engine.runtime_with(none),
        without(|config| config.egress = None),
        without(|config| config.network = crate::docker::NetworkMode::Host),
        without(|config| config.secure_runtime = Some(SecureRuntime::usual(SecureKind::Gvisor))),
    ] {
        assert_eq!(runtime.warm_sidecars(), None);
        let tasks = Supervisor::new();
        start(Arc::new(runtime), &tasks);
        assert_eq!(tasks.running(), 0);
    }
    assert!(host.containers().is_empty());
}
