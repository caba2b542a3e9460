//! Directories that lie below one which sandboxes may write to.

use super::*;
use crate::{SecureKind, SecureRuntime};

/// A volume on an engine with an API version, whose directory is this one.
async fn with_volume(at: &Path, driver: &str, options: Value, api: &str) -> Stage {
    let volume = json!({
        "Name": "data", "Driver": driver, "Mountpoint": at, "Scope": "local", "Labels": {},
        "Options": options,
    });
    let version = json!({"ApiVersion": api});
    Stage::with(move |request| {
        if request.starts_with("GET /version") {
            return Some((200, version.to_string()));
        }
        let response = (200, volume.to_string());
        request.starts_with("GET /volumes/data").then_some(response)
    })
    .await
}

async fn negotiated(runtime: DockerRuntime) -> DockerRuntime {
    let docker = runtime.docker().unwrap().clone();
    docker.negotiate_version().await.unwrap();
    runtime
}

fn racy(allowed: &[PathBuf]) -> StorageConfig {
    StorageConfig {
        allowed_host_paths: allowed.to_vec(),
        allow_racy_paths: true,
        ..StorageConfig::default()
    }
}

fn claim_below(sub_path: &str) -> Value {
    let mut volumes = claim(&json!({}));
    volumes[0]["subPath"] = json!(sub_path);
    volumes
}

#[tokio::test]
async fn a_directory_of_a_volume_is_looked_up_by_the_engine() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    symlink("/etc", at.join("out")).unwrap();
    for (driver, options, sub_path, want) in [
        ("local", json!({}), "a//b", None),
        ("local", json!({}), "out", Some(VolumeFailure::SubPath)),
        ("nfs", json!({}), "a", Some(VolumeFailure::SubPathDriver)),
        (
            "local",
            json!({"type": "nfs"}),
            "a",
            Some(VolumeFailure::SubPathDriver),
        ),
    ] {
        let stage = with_volume(&at, driver, options, "1.45").await;
        let runtime = negotiated(stage.runtime()).await;
        let volumes = claim_below(sub_path);
        if let Some(want) = want {
            assert_eq!(refused(&runtime, &volumes).await.0, want);
            continue;
        }
        runtime.create(spec(&volumes), &|_| {}).await.unwrap();
        let sent = stage.sent();
        let mount = json!([{
            "Target": "/data", "Source": "data", "Type": "volume", "ReadOnly": false,
            "VolumeOptions": {"NoCopy": true, "Subpath": "a/b"},
        }]);
        assert_eq!(sent["HostConfig"]["Mounts"], mount);
        assert!(!sent.to_string().contains("--expect-mount"), "{sent}");
        assert_eq!(sent["Labels"][labels::CLAIMS], r#"["data"]"#, "in use");
        assert!(at.join("a/b").is_dir(), "what is missing is made");
    }
}

#[tokio::test]
async fn an_engine_that_cannot_look_up_directories_gets_none_unless_the_operator_accepts_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    let volumes = claim_below("a");
    let stage = with_volume(&at, "local", json!({}), "1.44").await;
    let runtime = negotiated(stage.runtime()).await;
    let (failure, text) = refused(&runtime, &volumes).await;
    assert_eq!(failure, VolumeFailure::SubPath);
    assert!(text.starts_with("volumes.0.subPath: "), "{text}");
    assert!(text.contains("API 1.45"), "{text}");
    assert!(text.contains("storage.allow_racy_paths"), "{text}");
    assert!(!at.join("a").exists());
    let runtime = negotiated(stage.runtime_with(racy(&[]))).await;
    runtime.create(spec(&volumes), &|_| {}).await.unwrap();
    let sent = stage.sent();
    let mount =
        json!([{"Target": "/data", "Source": at.join("a"), "Type": "bind", "ReadOnly": false}]);
    assert_eq!(sent["HostConfig"]["Mounts"], mount);
    assert!(sent.to_string().contains("--expect-mount=/data="), "{sent}");
}

#[tokio::test]
async fn the_engines_refusal_of_a_directory_names_the_volume() {
    let stage = Stage::with(|request| {
        let words = "cannot access path /v/_data/a: no such file or directory";
        let broken = (404, json!({"message": words}).to_string());
        request.ends_with("/start").then_some(broken)
    })
    .await;
    let unseen = stage.runtime_with(StorageConfig {
        sees_host: false,
        ..StorageConfig::default()
    });
    let (failure, text) = refused(&unseen, &claim_below("a")).await;
    assert_eq!(failure, VolumeFailure::SubPath);
    assert!(text.starts_with("volumes.0.subPath: "), "{text}");
}

/// A create of a sandbox with this id.
fn create_of(id: &str, volumes: &Value) -> CreateSpec {
    let mut spec = spec(volumes);
    spec.origin.id = id.into();
    spec
}

/// Creates a sandbox. Returns why a volume of it is refused.
async fn try_create(
    runtime: &DockerRuntime,
    id: &str,
    volumes: &Value,
) -> Option<(VolumeFailure, String)> {
    match runtime.create(create_of(id, volumes), &|_| {}).await {
        Ok(_) => None,
        Err(error @ RuntimeError::Volume { failure, .. }) => Some((failure, error.to_string())),
        Err(other) => panic!("{other}"),
    }
}

async fn refusal(runtime: &DockerRuntime, volumes: &Value) -> Option<VolumeFailure> {
    let refused = try_create(runtime, "n", volumes).await;
    refused.map(|(failure, _)| failure)
}

/// Lists the container that was created last, in a state.
fn list_last(stage: &Stage, state: &str) {
    let sent = stage.sent();
    let mounts = sent["HostConfig"]["Mounts"].as_array().unwrap().iter();
    let mounts = mounts.map(|mount| {
        json!({
            "Type": mount["Type"], "Source": mount["Source"], "Destination": mount["Target"],
            "RW": mount["ReadOnly"] == false,
        })
    });
    let mounts: Vec<Value> = mounts.collect();
    *stage.containers.lock().unwrap() =
        json!([{"Id": "b", "State": state, "Labels": sent["Labels"], "Mounts": mounts}]);
}

/// Lists a container of another sandbox that has mounted a directory of the host, without a note of it.
fn add_mount(stage: &Stage, source: &str, rw: bool) {
    let labels = json!({labels::ID: "b", labels::SERVER: "them"});
    let mount = json!({"Type": "bind", "Source": source, "Destination": "/x", "RW": rw});
    *stage.containers.lock().unwrap() =
        json!([{"Id": "b", "State": "running", "Labels": labels, "Mounts": [mount]}]);
}

#[tokio::test]
async fn directories_overlap_if_the_upper_one_may_be_written_to() {
    for (other, others, new, writes, want) in [
        ("x", true, "x/a", true, true),
        ("x", true, "x/a", false, true),
        ("x", false, "x/a", true, false),
        ("x/a", true, "x", true, true),
        ("x/a", false, "x", true, true),
        ("x/a", true, "x", false, false),
        ("x", true, "x", true, false),
        ("x", true, "xy", true, false),
        ("", true, "", true, false),
        ("", true, "x", false, true),
        ("x", false, "", true, true),
        ("x", true, "", false, false),
    ] {
        for is_noted in [true, false] {
            let stage = Stage::set().await;
            let folder = stage.folder();
            let volumes =
                |name: &str, writes: bool| host(&folder.join(name), &json!({"readOnly": !writes}));
            let runtime = stage.runtime();
            assert_eq!(
                try_create(&runtime, "b", &volumes(other, others)).await,
                None
            );
            match is_noted {
                true => list_last(&stage, "running"),
                false => add_mount(&stage, &folder.join(other).to_string_lossy(), others),
            }
            let refused = try_create(&runtime, "n", &volumes(new, writes)).await;
            let context = format!("{other:?} {others} {new:?} {writes} {is_noted}: {refused:?}");
            assert_eq!(refused.is_some(), want, "{context}");
            if let Some((failure, text)) = refused {
                assert_eq!(failure, VolumeFailure::HostPathNotAllowed, "{context}");
                assert!(text.starts_with("volumes.0.host.path: "), "{text}");
                assert!(text.contains("storage.allow_racy_paths"), "{text}");
                let others = folder.join(other);
                assert!(!text.contains(&*others.to_string_lossy()), "{text}");
                let accepted = stage.runtime_with(racy(std::slice::from_ref(&folder)));
                assert_eq!(refusal(&accepted, &volumes(new, writes)).await, None);
            }
        }
    }
}

#[tokio::test]
async fn a_renamed_directory_is_still_the_one_that_a_sandbox_has() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    let at = |name: &str| host(&folder.join(name), &json!({}));
    fs::create_dir_all(folder.join("x/sub")).unwrap();
    assert_eq!(try_create(&stage.runtime(), "b", &at("x")).await, None);
    list_last(&stage, "running");
    // By a sandbox that had the folder and has ended.
    fs::rename(folder.join("x"), folder.join("y")).unwrap();
    fs::create_dir(folder.join("x")).unwrap();
    // A new process knows what the labels say.
    let runtime = stage.runtime();
    let want = Some(VolumeFailure::HostPathNotAllowed);
    assert_eq!(refusal(&runtime, &at("y/sub")).await, want);
    let by_sub_path = host(&folder, &json!({"subPath": "y/sub"}));
    let want = Some(VolumeFailure::SubPath);
    assert_eq!(refusal(&runtime, &by_sub_path).await, want);
    for name in ["y", "beside"] {
        assert_eq!(refusal(&runtime, &at(name)).await, None, "{name}");
    }
    list_last(&stage, "exited");
    assert_eq!(refusal(&runtime, &at("y/sub")).await, None, "it ended");
}

#[tokio::test]
async fn a_renamed_directory_of_a_sandbox_of_an_earlier_release_is_known_by_execds_flags() {
    let found = Arc::new(Mutex::new(String::new()));
    let shown = Arc::clone(&found);
    let stage = Stage::with(move |request| {
        let flag = shown.lock().unwrap().clone();
        let container = json!({"Config": {"Entrypoint": ["/execd", "init", flag, "--"]}});
        let is_asked = request.starts_with("GET /containers/b/json");
        is_asked.then(|| (200, container.to_string()))
    })
    .await;
    let folder = stage.folder();
    fs::create_dir_all(folder.join("x/sub")).unwrap();
    add_mount(&stage, &folder.join("x").to_string_lossy(), true);
    let there = fs::metadata(folder.join("x")).unwrap();
    *found.lock().unwrap() = format!("--expect-mount=/x/={}:{}", there.dev(), there.ino());
    fs::rename(folder.join("x"), folder.join("y")).unwrap();
    let below = host(&folder.join("y/sub"), &json!({}));
    let want = Some(VolumeFailure::HostPathNotAllowed);
    assert_eq!(refusal(&stage.runtime(), &below).await, want);
    fs::create_dir(folder.join("x")).unwrap();
    assert_eq!(refusal(&stage.runtime(), &below).await, want);
}

#[tokio::test]
async fn a_directory_without_a_note_is_known_by_where_its_path_leads() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    fs::create_dir_all(folder.join("y/sub")).unwrap();
    // The path of the mount leads there by a link, which the engine does not show.
    symlink("y", folder.join("x")).unwrap();
    add_mount(&stage, &folder.join("x").to_string_lossy(), true);
    let below = host(&folder.join("y/sub"), &json!({}));
    let want = Some(VolumeFailure::HostPathNotAllowed);
    assert_eq!(refusal(&stage.runtime(), &below).await, want);
    // An image has the note of the sandbox that it was made of.
    let inherited = json!({
        labels::ID: "b", labels::HELD: r#"{"version":1,"id":"other","held":[]}"#,
    });
    stage.containers.lock().unwrap()[0]["Labels"] = inherited;
    assert_eq!(refusal(&stage.runtime(), &below).await, want);
    // What is gone is in no sandbox's way.
    add_mount(&stage, &folder.join("gone").to_string_lossy(), true);
    assert_eq!(refusal(&stage.runtime(), &below).await, None);
}

#[tokio::test]
async fn a_volume_that_an_image_declares_is_above_nothing() {
    let stage = Stage::set().await;
    let volumes = host(&stage.folder().join("sub"), &json!({}));
    for source in ["", "data"] {
        add_mount(&stage, source, true);
        let refused = refusal(&stage.runtime(), &volumes).await;
        assert_eq!(refused, None, "{source:?}");
    }
}

#[tokio::test]
async fn a_sandbox_that_has_not_started_counts_unless_this_process_checks_again() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    let whole = host(&folder, &json!({}));
    assert_eq!(try_create(&stage.runtime(), "b", &whole).await, None);
    list_last(&stage, "created");
    let runtime = stage.runtime();
    let below = host(&folder.join("sub"), &json!({}));
    let want = Some(VolumeFailure::HostPathNotAllowed);
    assert_eq!(refusal(&runtime, &below).await, want, "by another process");
    let in_progress = runtime.creating.enter(&"b".into());
    assert_eq!(refusal(&runtime, &below).await, None);
    drop(in_progress);
}

#[tokio::test]
async fn what_every_sandbox_gets_counts_always() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    fs::create_dir_all(folder.join("x/a")).unwrap();
    for (modes, name, read_only, want) in [
        ("", "x/a", true, true),
        (":rw", "x/a", true, true),
        (":ro", "x/a", false, false),
        (":ro,z", "x/a", false, false),
        (":ro", "", false, true),
        ("", "", true, false),
        ("", "x", false, false),
    ] {
        let bind = format!("{}:/b{modes}", folder.join("x").display());
        let runtime = stage.engine.runtime_with(DockerConfig {
            network: NetworkMode::Named("ours".to_owned()),
            sandbox_binds: vec!["volume:/v".to_owned(), bind],
            storage: StorageConfig {
                allowed_host_paths: vec![folder.clone()],
                ..StorageConfig::default()
            },
            ..fake_engine::config()
        });
        let volumes = host(&folder.join(name), &json!({"readOnly": read_only}));
        let refused = try_create(&runtime, "n", &volumes).await;
        assert_eq!(refused.is_some(), want, "{modes} {name}: {refused:?}");
        if let Some((_, text)) = refused {
            assert!(text.contains("docker.sandbox_binds"), "{text}");
        }
    }
}

#[tokio::test]
async fn a_named_volume_that_shows_a_directory_of_the_host_counts_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path().canonicalize().unwrap();
    fs::create_dir_all(at.join("x/a")).unwrap();
    // The operator's own link, where no sandbox can change it.
    let links = tempfile::tempdir().unwrap();
    let link = links.path().join("link");
    symlink(at.join("x"), &link).unwrap();
    let options = json!({"type": "none", "o": "bind", "device": link});
    let stage = with_volume(&at.join("unused"), "local", options, "1.45").await;
    let runtime = stage.runtime_with(StorageConfig {
        allowed_host_paths: vec![at.clone()],
        ..StorageConfig::default()
    });
    let below = host(&at.join("x/a"), &json!({}));
    assert_eq!(try_create(&runtime, "b", &below).await, None);
    list_last(&stage, "running");
    let (failure, text) = try_create(&runtime, "n", &claim(&json!({}))).await.unwrap();
    assert_eq!(failure, VolumeFailure::HostPathNotAllowed);
    assert!(text.starts_with("volumes.0.pvc.claimName: "), "{text}");
    stage.remove_user();
    assert_eq!(try_create(&runtime, "b", &claim(&json!({}))).await, None);
    list_last(&stage, "running");
    let want = Some(VolumeFailure::HostPathNotAllowed);
    assert_eq!(refusal(&runtime, &below).await, want);
}

#[tokio::test]
async fn only_a_sandbox_with_directories_of_the_host_has_a_note() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    assert_eq!(try_create(&runtime, "b", &claim(&json!({}))).await, None);
    assert_eq!(stage.sent()["Labels"][labels::HELD], "");
    let volumes = host(&stage.folder(), &json!({}));
    assert_eq!(try_create(&runtime, "b", &volumes).await, None);
    let noted = stage.sent()["Labels"][labels::HELD].clone();
    let noted: Value = serde_json::from_str(noted.as_str().unwrap()).unwrap();
    assert_eq!((&noted["version"], &noted["id"]), (&json!(1), &json!("b")));
    assert!(!labels::is_public(labels::HELD), "clients do not see it");
}

#[tokio::test]
async fn a_directory_that_is_replaced_during_the_create_is_not_mounted() {
    for is_accepted in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::create_dir(at.join("sub")).unwrap();
        let sub = at.join("sub");
        // As if another sandbox did it while the image was pulled.
        let stage = Stage::with(move |request| {
            if request.starts_with("POST /containers/create?name=osb-") {
                fs::remove_dir(&sub).unwrap();
                symlink("/etc", &sub).unwrap();
            }
            None
        })
        .await;
        let runtime = stage.runtime_with(StorageConfig {
            allow_racy_paths: is_accepted,
            ..racy(std::slice::from_ref(&at))
        });
        let volumes = host(&at, &json!({"subPath": "sub"}));
        let (failure, text) = refused(&runtime, &volumes).await;
        assert_eq!(failure, VolumeFailure::SubPath);
        assert!(text.contains("was replaced"), "{text}");
        assert_eq!(stage.engine.requests("POST /containers/c/start"), [""; 0]);
    }
}

#[tokio::test]
async fn a_directory_whose_parent_is_replaced_during_the_create_is_not_mounted() {
    for is_accepted in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path().canonicalize().unwrap();
        fs::create_dir_all(at.join("p/sub")).unwrap();
        let inside = at.clone();
        // The note has the number of the parent.
        let stage = Stage::with(move |request| {
            if request.starts_with("POST /containers/create?name=osb-") {
                fs::rename(inside.join("p"), inside.join("q")).unwrap();
                fs::create_dir(inside.join("p")).unwrap();
                fs::rename(inside.join("q/sub"), inside.join("p/sub")).unwrap();
            }
            None
        })
        .await;
        let runtime = stage.runtime_with(StorageConfig {
            allow_racy_paths: is_accepted,
            ..racy(std::slice::from_ref(&at))
        });
        let refused = refusal(&runtime, &host(&at.join("p/sub"), &json!({}))).await;
        let want = (!is_accepted).then_some(VolumeFailure::HostPathNotAllowed);
        assert_eq!(refused, want);
    }
}

#[tokio::test]
async fn two_sandboxes_whose_directories_overlap_do_not_start_at_the_same_time() {
    let stage = Stage::set().await;
    let (runtime, folder) = (stage.runtime(), stage.folder());
    let below = create_of("below", &host(&folder.join("sub"), &json!({})));
    let writer = create_of("writer", &host(&folder, &json!({})));
    let reader = create_of("reader", &host(&folder, &json!({"readOnly": true})));
    let start = async |spec: &CreateSpec| {
        let provided = runtime.provide_volumes(spec).await.unwrap();
        runtime.volumes_at_start(spec.id(), &provided).await
    };
    for (first, second) in [(&below, &writer), (&writer, &below)] {
        let in_progress = [first, second, &reader].map(|it| runtime.creating.enter(it.id()));
        start(first).await.unwrap();
        let refused = start(second).await;
        assert!(
            matches!(refused, Err(RuntimeError::Volume { index: 0, .. })),
            "{refused:?}"
        );
        if first.id() == below.id() {
            start(&reader).await.unwrap();
        }
        // Another attempt of the same create.
        start(first).await.unwrap();
        let [ended, _others @ ..] = in_progress;
        drop(ended);
        start(second).await.unwrap();
    }
}

#[tokio::test]
async fn another_runtime_gets_only_what_no_sandbox_can_replace() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    let runtime = stage.engine.runtime_with(DockerConfig {
        network: NetworkMode::Named("ours".to_owned()),
        storage: racy(std::slice::from_ref(&folder)),
        secure_runtime: Some(SecureRuntime::usual(SecureKind::Gvisor)),
        ..fake_engine::config()
    });
    let volumes = host(&folder, &json!({"subPath": "sub"}));
    let (failure, text) = refused(&runtime, &volumes).await;
    assert_eq!(failure, VolumeFailure::SubPath);
    assert!(text.contains("[secure_runtime]"), "{text}");
    let volumes = host(&folder.join("sub"), &json!({}));
    let (failure, _) = refused(&runtime, &volumes).await;
    assert_eq!(failure, VolumeFailure::HostPathNotAllowed);
    assert!(!folder.join("sub").exists());
    let volumes = spec(&host(&folder, &json!({})));
    runtime.create(volumes, &|_| {}).await.unwrap();
}
