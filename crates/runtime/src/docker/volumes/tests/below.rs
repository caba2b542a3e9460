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

/// Adds a container of another sandbox that has mounted a directory of the host.
fn add_mount(stage: &Stage, source: &Path, rw: bool) {
    let labels = json!({labels::ID: "b", labels::SERVER: "them"});
    let mount = json!({"Type": "bind", "Source": source, "Destination": "/x", "RW": rw});
    *stage.containers.lock().unwrap() =
        json!([{"Id": "b", "State": "running", "Labels": labels, "Mounts": [mount]}]);
}

#[tokio::test]
async fn what_another_sandbox_could_replace_is_refused_unless_the_operator_accepts_it() {
    for (source, rw, below, want) in [
        ("", true, "", None),
        ("", true, "sub", Some(VolumeFailure::SubPath)),
        ("", false, "sub", None),
        ("sub", true, "sub", None),
        ("sub/a", true, "sub", None),
        ("sub", true, "sub/a", Some(VolumeFailure::SubPath)),
        ("other", true, "sub", None),
    ] {
        let stage = Stage::set().await;
        let folder = stage.folder();
        add_mount(&stage, &folder.join(source), rw);
        let volumes = host(&folder, &json!({"subPath": below}));
        let made = stage.runtime().create(spec(&volumes), &|_| {}).await;
        let failure = match made {
            Ok(_) => None,
            Err(RuntimeError::Volume { failure, .. }) => Some(failure),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(failure, want, "{source:?} {rw} {below:?}");
    }
    let stage = Stage::set().await;
    let folder = stage.folder();
    add_mount(&stage, &folder, true);
    let volumes = host(&folder.join("sub"), &json!({}));
    let (failure, text) = refused(&stage.runtime(), &volumes).await;
    assert_eq!(failure, VolumeFailure::HostPathNotAllowed);
    assert!(text.contains("storage.allow_racy_paths"), "{text}");
    let accepted = stage.runtime_with(racy(&[folder]));
    accepted.create(spec(&volumes), &|_| {}).await.unwrap();
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
async fn a_sandbox_that_could_replace_a_directory_does_not_start_meanwhile() {
    let stage = Stage::set().await;
    let (runtime, folder) = (stage.runtime(), stage.folder());
    let below = spec(&host(&folder.join("sub"), &json!({})));
    let provided = runtime.provide_volumes(&below).await.unwrap();
    let turn = runtime.volumes_at_start(below.id(), &provided).await;
    let turn = turn.unwrap();
    let writer = spec(&host(&folder, &json!({})));
    let writers = runtime.provide_volumes(&writer).await.unwrap();
    let start = runtime.volumes_at_start(writer.id(), &writers);
    let mut start = std::pin::pin!(start);
    assert!(futures::poll!(&mut start).is_pending());
    // One that only reads is no danger.
    let reader = spec(&host(&folder, &json!({"readOnly": true})));
    let readers = runtime.provide_volumes(&reader).await.unwrap();
    let reading = runtime.volumes_at_start(reader.id(), &readers).await;
    drop(reading.unwrap());
    drop(turn);
    drop(start.await.unwrap());
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
