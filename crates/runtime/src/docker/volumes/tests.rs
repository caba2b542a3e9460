//! Volumes of creates, removals and sweeps, on an engine with scripted responses.

mod below;

use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    sync::{Arc, Mutex},
};

use osb_protocol::lifecycle::Volume;
use serde_json::{Value, json};

use super::*;
use crate::{
    CreateSpec, Runtime,
    docker::{
        NetworkMode, StorageConfig,
        fake_engine::{self, FakeEngine, FakeVolumes},
    },
};

/// An engine with volumes, and containers of other sandboxes that can change.
struct Stage {
    engine: FakeEngine,
    volumes: Arc<FakeVolumes>,
    containers: Arc<Mutex<Value>>,
    folder: tempfile::TempDir,
}

impl Stage {
    async fn set() -> Self {
        Self::with(|_| None).await
    }

    /// An engine that gives some requests another response.
    async fn with(special: impl Fn(&str) -> Option<(u16, String)> + Send + Sync + 'static) -> Self {
        let volumes = Arc::<FakeVolumes>::default();
        let containers = Arc::new(Mutex::new(json!([])));
        let (shared, listed) = (Arc::clone(&volumes), Arc::clone(&containers));
        let engine = FakeEngine::start_reading(move |request, body| {
            if let Some(response) = special(request) {
                return response;
            }
            if request.starts_with("GET /containers/json") {
                return (200, listed.lock().unwrap().to_string());
            }
            if request.starts_with("GET /containers/c/json") {
                let container = json!({
                    "Created": "2031-05-01T10:00:00Z",
                    "Config": {"Labels": {labels::ID: "a", labels::SERVER: "us"}},
                    "State": {"Running": true, "StartedAt": "2031-05-01T10:00:01Z"},
                });
                return (200, container.to_string());
            }
            let of_volumes = shared.respond(request, body);
            of_volumes.unwrap_or_else(|| FakeEngine::with_volumes(request))
        })
        .await;
        Self {
            engine,
            volumes,
            containers,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// A back end that may mount the folder of the test.
    fn runtime(&self) -> DockerRuntime {
        self.runtime_with(StorageConfig {
            allowed_host_paths: vec![self.folder()],
            ..StorageConfig::default()
        })
    }

    fn runtime_with(&self, storage: StorageConfig) -> DockerRuntime {
        self.engine.runtime_with(DockerConfig {
            network: NetworkMode::Named("ours".to_owned()),
            storage,
            ..fake_engine::config()
        })
    }

    /// Adds a container of another sandbox that uses a volume.
    fn add_user(&self, id: &str, claims: &[&str]) {
        let labels = json!({
            labels::ID: id, labels::SERVER: "us", labels::CLAIMS: json!(claims).to_string(),
        });
        *self.containers.lock().unwrap() =
            json!([{"Id": id, "State": "running", "Labels": labels}]);
    }

    fn remove_user(&self) {
        *self.containers.lock().unwrap() = json!([]);
    }

    /// Names of the volumes but execd's.
    fn names(&self) -> Vec<String> {
        let mut names = self.volumes.names();
        names.retain(|name| !name.starts_with("opensandbox-execd-"));
        names
    }

    /// The latest create request of a main container.
    fn sent(&self) -> Value {
        let mut bodies = self.engine.bodies("POST /containers/create?name=osb-");
        bodies.pop().expect("a create request")
    }
}

/// A create of sandbox `a` with these volumes.
fn spec(volumes: &Value) -> CreateSpec {
    let mut spec = labels::tests::spec();
    spec.volumes = serde_json::from_value(volumes.clone()).unwrap();
    let kept = spec.volumes.iter().map(Volume::without_credentials);
    spec.origin.volumes = kept.collect();
    spec.origin.tenant = None;
    spec
}

fn claim(more: &Value) -> Value {
    let mut claim = json!({"claimName": "data"});
    claim
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([{"name": "v", "mountPath": "/data", "pvc": claim}])
}

fn host(path: &Path, more: &Value) -> Value {
    let mut volume = json!({"name": "v", "mountPath": "/data", "host": {"path": path}});
    volume
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([volume])
}

async fn refused(runtime: &DockerRuntime, volumes: &Value) -> (VolumeFailure, String) {
    let made = runtime.create(spec(volumes), &|_| {}).await;
    match made.unwrap_err() {
        error @ RuntimeError::Volume { failure, .. } => (failure, error.to_string()),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_volume_that_was_made_for_a_sandbox_goes_with_it() {
    for (more, left) in [
        (json!({"deleteOnSandboxTermination": true}), &[][..]),
        (json!({}), &["data"][..]),
    ] {
        let stage = Stage::set().await;
        let runtime = stage.runtime();
        runtime.create(spec(&claim(&more)), &|_| {}).await.unwrap();
        let sent = stage.sent();
        let mount =
            json!([{"Target": "/data", "Source": "data", "Type": "volume", "ReadOnly": false}]);
        assert_eq!(sent["HostConfig"]["Mounts"], mount);
        assert_eq!(sent["Labels"][labels::CLAIMS], r#"["data"]"#);
        let managed = if left.is_empty() { r#"["data"]"# } else { "" };
        assert_eq!(sent["Labels"][labels::VOLUMES], managed);
        let made = &stage.engine.bodies("POST /volumes/create")[0];
        assert_eq!(made["Labels"][labels::VOLUMES], "server");
        assert_eq!(made["Labels"][labels::SERVER], "us");
        runtime.sweep().await.unwrap();
        assert_eq!(stage.names(), ["data"], "in use");
        runtime.remove(&"a".into()).await.unwrap();
        assert_eq!(stage.names(), left);
        runtime.sweep().await.unwrap();
        assert_eq!(stage.names(), left);
    }
}

#[tokio::test]
async fn two_entries_of_a_volume_count_together() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    let volumes = json!([
        {"name": "a", "mountPath": "/a", "pvc": {"claimName": "data"}},
        {"name": "b", "mountPath": "/b", "pvc": {"claimName": "data", "deleteOnSandboxTermination": true}},
    ]);
    runtime.create(spec(&volumes), &|_| {}).await.unwrap();
    assert_eq!(stage.sent()["Labels"][labels::VOLUMES], r#"["data"]"#);
    runtime.remove(&"a".into()).await.unwrap();
    assert_eq!(stage.names(), [""; 0]);
}

#[tokio::test]
async fn a_volume_stays_while_another_sandbox_uses_it() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    let transient = claim(&json!({"deleteOnSandboxTermination": true}));
    runtime.create(spec(&transient), &|_| {}).await.unwrap();
    stage.add_user("b", &["data"]);
    runtime.remove(&"a".into()).await.unwrap();
    assert_eq!(stage.names(), ["data"]);
    // Its other user ends, and this process learns of that by a list only.
    stage.remove_user();
    runtime.observe_all().await.unwrap();
    stage.runtime().sweep().await.unwrap();
    assert_eq!(stage.names(), [""; 0]);
}

#[tokio::test]
async fn volumes_of_others_are_used_and_never_removed() {
    let stage = Stage::set().await;
    let theirs = json!({
        labels::VOLUMES: "server", labels::SERVER: "them", labels::TRANSIENT: "true",
    });
    stage.volumes.add("theirs", theirs);
    stage.volumes.add("data", json!({}));
    let runtime = stage.runtime();
    let transient = claim(&json!({"deleteOnSandboxTermination": true}));
    runtime.create(spec(&transient), &|_| {}).await.unwrap();
    assert_eq!(stage.sent()["Labels"][labels::VOLUMES], "");
    runtime.remove(&"a".into()).await.unwrap();
    runtime.sweep().await.unwrap();
    assert_eq!(stage.names(), ["data", "theirs"]);
}

#[tokio::test]
async fn a_missing_volume_is_named_if_none_is_to_be_made() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    let missing = claim(&json!({"createIfNotExists": false}));
    let (failure, text) = refused(&runtime, &missing).await;
    assert_eq!(failure, VolumeFailure::ClaimMissing);
    assert!(text.starts_with("volumes.0.pvc.claimName: "), "{text}");
    for name in ["opensandbox-execd-0123", "osb-owner-0123"] {
        let own = claim(&json!({"claimName": name}));
        assert_eq!(refused(&runtime, &own).await.0, VolumeFailure::ClaimName);
    }
    let hidden = json!({labels::EXECD_BUILD: "0123"});
    stage.volumes.add("data", hidden);
    assert_eq!(
        refused(&runtime, &claim(&json!({}))).await.0,
        VolumeFailure::ClaimName
    );
    assert_eq!(
        stage.engine.requests("POST /containers/create?name=osb-"),
        [""; 0]
    );
}

#[tokio::test]
async fn a_volume_that_cannot_be_inspected_is_no_reason_to_wait() {
    let stage = Stage::with(|request| {
        let broken = (500, json!({"message": "driver failed"}).to_string());
        request.starts_with("GET /volumes/data").then_some(broken)
    })
    .await;
    let (failure, text) = refused(&stage.runtime(), &claim(&json!({}))).await;
    assert_eq!(failure, VolumeFailure::ClaimInspect);
    assert!(text.contains("driver failed"), "{text}");
}

#[tokio::test]
async fn a_failed_create_removes_the_volumes_that_it_made() {
    let stage = Stage::with(|request| {
        let broken = (500, json!({"message": "no start"}).to_string());
        request.ends_with("/start").then_some(broken)
    })
    .await;
    let volumes = json!([
        {"name": "a", "mountPath": "/a", "pvc": {"claimName": "one", "deleteOnSandboxTermination": true}},
        {"name": "b", "mountPath": "/b", "pvc": {"claimName": "two"}},
    ]);
    let made = stage.runtime().create(spec(&volumes), &|_| {}).await;
    assert!(matches!(made, Err(RuntimeError::Start { .. })), "{made:?}");
    assert_eq!(stage.names(), ["two"]);
    let volumes = json!([
        {"name": "a", "mountPath": "/a", "pvc": {"claimName": "one", "deleteOnSandboxTermination": true}},
        {"name": "b", "mountPath": "/b", "pvc": {"claimName": "three", "createIfNotExists": false}},
    ]);
    let (failure, text) = refused(&stage.runtime(), &volumes).await;
    assert_eq!(failure, VolumeFailure::ClaimMissing);
    assert!(text.starts_with("volumes.1."), "{text}");
    assert_eq!(stage.names(), ["two"]);
}

#[tokio::test]
async fn a_crash_leaves_no_volume_behind() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    let transient = spec(&claim(&json!({"deleteOnSandboxTermination": true})));
    // The process ended before it created the container.
    runtime.provide_volumes(&transient).await.unwrap();
    runtime.sweep().await.unwrap();
    assert_eq!(
        stage.names(),
        ["data"],
        "its create is in progress, as far as this process knows"
    );
    stage.runtime().sweep().await.unwrap();
    assert_eq!(stage.names(), [""; 0]);
}

#[tokio::test]
async fn a_create_that_ends_during_a_list_is_not_forgotten() {
    let stage = Stage::set().await;
    let runtime = stage.runtime();
    let transient = spec(&claim(&json!({"deleteOnSandboxTermination": true})));
    let under_way = runtime.creating.enter(transient.id());
    runtime.provide_volumes(&transient).await.unwrap();
    let (before, creating) = (runtime.with_belongings(), runtime.creating.all());
    // The list was read before its container existed.
    drop(under_way);
    runtime.replace_belongings(&before, &creating, &[]);
    assert!(!runtime.belongings(transient.id()).is_empty());
    runtime.replace_belongings(&before, &runtime.creating.all(), &[]);
    assert!(runtime.belongings(transient.id()).is_empty(), "it is gone");
}

#[tokio::test]
async fn a_tenant_has_volumes_of_its_own() {
    let stage = Stage::set().await;
    let mut tenants = spec(&claim(&json!({})));
    tenants.origin.tenant = Some(Arc::from("team a"));
    stage.runtime().create(tenants, &|_| {}).await.unwrap();
    let [name] = &stage.names()[..] else {
        panic!("{:?}", stage.names());
    };
    assert!(
        name.starts_with("osb-tenant-") && name.ends_with("-data"),
        "{name}"
    );
    assert_eq!(stage.sent()["HostConfig"]["Mounts"][0]["Source"], *name);
}

#[tokio::test]
async fn a_directory_of_the_host_is_mounted_as_it_was_found() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    fs::create_dir(folder.join("real")).unwrap();
    symlink("real", folder.join("link")).unwrap();
    let volumes = host(
        &folder.join("link"),
        &json!({"subPath": "new", "readOnly": true}),
    );
    stage
        .runtime()
        .create(spec(&volumes), &|_| {})
        .await
        .unwrap();
    let mount = json!([{
        "Target": "/data", "Source": folder.join("real/new"), "Type": "bind", "ReadOnly": true,
    }]);
    let sent = stage.sent();
    assert_eq!(sent["HostConfig"]["Mounts"], mount);
    let made = fs::metadata(folder.join("real/new")).unwrap();
    let check = format!("--expect-mount=/data={}:{}", made.dev(), made.ino());
    let init = sent["Entrypoint"].as_array().unwrap();
    assert_eq!(init[4..], [json!(check), json!("--")]);
    assert_eq!(sent["Healthcheck"]["Test"], json!(["NONE"]));
    assert_eq!(sent["Labels"][labels::CLAIMS], "");
}

#[tokio::test]
async fn no_path_leads_out_of_the_allowed_directories() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    symlink("/etc", folder.join("out")).unwrap();
    let runtime = stage.runtime();
    for (path, more, want) in [
        (
            folder.join("out"),
            json!({}),
            VolumeFailure::HostPathNotAllowed,
        ),
        (
            folder.clone(),
            json!({"subPath": "out"}),
            VolumeFailure::SubPath,
        ),
        (
            folder.clone(),
            json!({"subPath": "out/x"}),
            VolumeFailure::SubPath,
        ),
        (
            folder.clone(),
            json!({"subPath": "../x"}),
            VolumeFailure::SubPath,
        ),
        ("/etc".into(), json!({}), VolumeFailure::HostPathNotAllowed),
    ] {
        let (failure, text) = refused(&runtime, &host(&path, &more)).await;
        assert_eq!(failure, want, "{text}");
    }
    let unseen = stage.runtime_with(StorageConfig {
        allowed_host_paths: vec![folder.clone()],
        sees_host: false,
        ..StorageConfig::default()
    });
    let (failure, text) = refused(&unseen, &host(&folder, &json!({}))).await;
    assert_eq!(failure, VolumeFailure::HostPathNotAllowed);
    assert!(text.contains("storage.host_is_local"), "{text}");
    assert_eq!(
        stage.engine.requests("POST /containers/create?name=osb-"),
        [""; 0]
    );
}

/// A create with a directory of a bucket.
fn bucket(secret: &str) -> Value {
    json!([{"name": "v", "mountPath": "/data", "subPath": "sub", "ossfs": {
        "bucket": "data", "endpoint": "https://oss.example", "accessKeyId": "hunter1",
        "accessKeySecret": secret,
    }}])
}

#[tokio::test]
async fn a_bucket_is_mounted_for_a_sandbox_and_its_key_is_nowhere_else() {
    let stage = Stage::set().await;
    let folder = stage.folder();
    let (programs, table) = ossfs::tests::install(&folder);
    let runtime = |in_container: bool| {
        let mut runtime = stage.runtime_with(StorageConfig {
            ossfs_mount_root: folder.join("mnt"),
            programs: Some(programs.clone()),
            in_container,
            ..StorageConfig::default()
        });
        runtime.volumes.ossfs.set_table(&table);
        runtime
    };
    let mounted = || fs::read_to_string(&table).unwrap().contains("fuse.ossfs2");
    let first = runtime(false);
    first
        .create(spec(&bucket("hunter2")), &|_| {})
        .await
        .unwrap();
    let sent = stage.sent();
    let place = PathBuf::from(sent["HostConfig"]["Mounts"][0]["Source"].as_str().unwrap());
    assert!(place.starts_with(folder.join("mnt/.paths/data")), "{sent}");
    let mount = json!([{"Target": "/data", "Source": place, "Type": "bind", "ReadOnly": false}]);
    assert_eq!(sent["HostConfig"]["Mounts"], mount);
    assert_eq!(
        sent["Labels"][labels::OSSFS_MOUNTS],
        json!([place]).to_string()
    );
    assert!(!sent.to_string().contains("hunter"), "{sent}");
    assert!(mounted());
    // Another process, to which the containers are all that is known.
    *stage.containers.lock().unwrap() =
        json!([{"Id": "c", "State": "running", "Labels": sent["Labels"]}]);
    let second = runtime(true);
    // Every connection begins with a list.
    second.observe_all().await.unwrap();
    second.sweep().await.unwrap();
    assert!(mounted(), "a container uses it");
    let mut other = spec(&bucket("hunter3"));
    other.origin.id = "b".into();
    second.create(other, &|_| {}).await.unwrap();
    let others = stage.sent()["HostConfig"]["Mounts"][0]["Source"].clone();
    let others = PathBuf::from(others.as_str().unwrap());
    assert_ne!(others, place, "another key has a mount of its own");
    second.remove(&"b".into()).await.unwrap();
    assert!(mounted() && !others.exists());
    second.remove(&"a".into()).await.unwrap();
    assert!(!mounted() && !place.exists());
}

#[tokio::test]
async fn the_mount_of_a_failed_create_ends() {
    let stage = Stage::with(|request| {
        let broken = (500, json!({"message": "no start"}).to_string());
        request.ends_with("/start").then_some(broken)
    })
    .await;
    let folder = stage.folder();
    let (programs, table) = ossfs::tests::install(&folder);
    let mut runtime = stage.runtime_with(StorageConfig {
        ossfs_mount_root: folder.join("mnt"),
        programs: Some(programs),
        ..StorageConfig::default()
    });
    runtime.volumes.ossfs.set_table(&table);
    let failed = runtime.create(spec(&bucket("hunter2")), &|_| {}).await;
    assert!(
        matches!(failed, Err(RuntimeError::Start { .. })),
        "{failed:?}"
    );
    let left = fs::read_to_string(&table).unwrap();
    assert!(!left.contains("fuse.ossfs2"), "{left}");
}
