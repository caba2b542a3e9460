//! Volumes on a real engine: what sandboxes see of them, and what stays behind.

mod coverage;
mod overlaps;

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use osb_runtime::docker::{DockerConfig, StorageConfig};
use osb_testkit::{TestServer, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::stage::{IMAGE, Stage, answer, body, create, delete, docker, get, ready};

/// A directory of the host that sandboxes may get.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().canonicalize().unwrap()
    }
}

/// Starts a server whose sandboxes may get the folder, also where others could replace it: engines before
/// API 1.45 have no other way to mount a directory of a volume.
async fn server(stage: &Stage, folder: &Folder) -> TestServer {
    server_with(stage, folder, true).await
}

async fn server_with(stage: &Stage, folder: &Folder, allow_racy_paths: bool) -> TestServer {
    let path = folder.path();
    let more = format!("[storage]\nallowed_host_paths = ['{}']", path.display());
    let tune = |config: &mut DockerConfig| {
        config.storage = StorageConfig {
            allowed_host_paths: vec![path],
            allow_racy_paths,
            ..StorageConfig::default()
        };
    };
    let server = stage.server_with_settings(tune, &more).await;
    ready(&server).await;
    server
}

fn with(volumes: Value) -> Value {
    let mut body = body();
    body["volumes"] = volumes;
    body
}

fn host(path: &Path, more: Value) -> Value {
    let mut volume = json!({"name": "v", "mountPath": "/data", "host": {"path": path}});
    volume
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([volume])
}

fn claim(name: &str, more: Value) -> Value {
    let mut claim = json!({"claimName": name});
    claim
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!([{"name": "v", "mountPath": "/data", "pvc": claim}])
}

/// Runs a line in a sandbox's container.
fn shell(stage: &Stage, id: &str, line: &str) -> String {
    docker(&["exec", &stage.container_of(id), "sh", "-c", line])
}

/// Sends a create that is refused; its status, code and message.
async fn refused(server: &TestServer, volumes: Value) -> (u16, String, String) {
    refused_create(server, &with(volumes)).await
}

async fn refused_create(server: &TestServer, body: &Value) -> (u16, String, String) {
    let request = server.request(Method::POST, "/v1/sandboxes").json(body);
    let (status, answer) = answer(request).await;
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    (status.as_u16(), text("code"), text("message"))
}

/// A name that no other test uses.
fn name(stage: &Stage, suffix: &str) -> String {
    let instance = stage.instance.to_lowercase().replace(['.', '_'], "-");
    format!("osbtest-{instance}-{suffix}")
}

/// Whether the engine has a volume. Fails if it cannot say so.
fn exists(volume: &str) -> bool {
    let listed = std::process::Command::new("docker")
        .args(["volume", "ls", "--quiet"])
        .output()
        .unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let names = String::from_utf8(listed.stdout).unwrap();
    names.lines().any(|name| name == volume)
}

/// An image that is removed when dropped.
struct Image(String);

impl Image {
    /// Makes an image from that of the sandboxes: runs a line in it, and adds an instruction.
    fn made(stage: &Stage, suffix: &str, line: &str, change: &str) -> Self {
        let image = Self(format!("{}:latest", name(stage, suffix)));
        let container = docker(&["create", IMAGE, "sh", "-c", line]);
        docker(&["start", "--attach", &container]);
        let made = docker(&["commit", "--change", change, &container, &image.0]);
        assert!(made.starts_with("sha256:"), "{made}");
        docker(&["rm", "--volumes", &container]);
        image
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        docker(&["image", "rm", "--force", &self.0]);
    }
}

/// A volume that is removed when dropped.
struct Kept(String);

impl Drop for Kept {
    fn drop(&mut self) {
        docker(&["volume", "rm", "--force", &self.0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_of_the_host_is_read_and_written() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    fs::write(folder.path().join("note"), "from the host").unwrap();
    let server = server(&stage, &folder).await;
    let id = create(&server, &with(host(&folder.path(), json!({})))).await;
    assert_eq!(
        shell(&stage, &id, "cat /data/note; echo box > /data/answer"),
        "from the host"
    );
    assert_eq!(
        fs::read_to_string(folder.path().join("answer")).unwrap(),
        "box\n"
    );
    let (_, seen) = get(&server, &id).await;
    assert_eq!(seen["status"]["state"], "Running", "{seen}");
    delete(&server, &id).await;
    let read_only = host(&folder.path(), json!({"readOnly": true}));
    let id = create(&server, &with(read_only)).await;
    let line = "cat /data/note; touch /data/x 2>/dev/null || echo -n refused";
    assert_eq!(shell(&stage, &id, line), "from the hostrefused");
    delete(&server, &id).await;
    assert!(
        folder.path().join("answer").exists(),
        "the host's files stay"
    );
    // A single file.
    let file = host(
        &folder.path().join("note"),
        json!({"mountPath": "/etc/note"}),
    );
    let id = create(&server, &with(file)).await;
    assert_eq!(shell(&stage, &id, "cat /etc/note"), "from the host");
    delete(&server, &id).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_below_is_all_that_a_sandbox_sees() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    fs::create_dir(folder.path().join("sub")).unwrap();
    fs::write(folder.path().join("sub/inner"), "x").unwrap();
    fs::write(folder.path().join("outer"), "x").unwrap();
    let server = server(&stage, &folder).await;
    let id = create(
        &server,
        &with(host(&folder.path(), json!({"subPath": "sub"}))),
    )
    .await;
    assert_eq!(shell(&stage, &id, "ls /data"), "inner");
    delete(&server, &id).await;
    // What is missing is made.
    let new = host(&folder.path().join("new/er"), json!({"subPath": "deep"}));
    let id = create(&server, &with(new)).await;
    assert_eq!(shell(&stage, &id, "touch /data/x && ls /data"), "x");
    assert!(folder.path().join("new/er/deep/x").exists());
    delete(&server, &id).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_another_sandbox_could_replace_is_refused() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let server = server_with(&stage, &folder, false).await;
    let below = || with(host(&folder.path(), json!({"subPath": "sub"})));
    let first = create(&server, &below()).await;
    let second = create(&server, &below()).await;
    delete(&server, &first).await;
    delete(&server, &second).await;
    let writer = create(&server, &with(host(&folder.path(), json!({})))).await;
    let volumes = below()["volumes"].clone();
    let (status, code, message) = refused(&server, volumes).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::INVALID_SUB_PATH"),
        "{message}"
    );
    assert!(message.contains("storage.allow_racy_paths"), "{message}");
    delete(&server, &writer).await;
    let reader = create(
        &server,
        &with(host(&folder.path(), json!({"readOnly": true}))),
    )
    .await;
    let id = create(&server, &below()).await;
    assert_eq!(shell(&stage, &id, "touch /data/x; ls /data"), "x");
    delete(&server, &id).await;
    delete(&server, &reader).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_leads_out_of_the_allowed_directories() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let (folder, outside) = (Folder::new(), Folder::new());
    symlink(outside.path(), folder.path().join("out")).unwrap();
    let server = server(&stage, &folder).await;
    let at = |path: PathBuf, more: Value| host(&path, more);
    for (volumes, code) in [
        (
            at(folder.path().join("out"), json!({})),
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        (
            at(outside.path(), json!({})),
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        (at("/".into(), json!({})), "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (
            at(folder.path(), json!({"subPath": "out"})),
            "VOLUME::INVALID_SUB_PATH",
        ),
        (
            at(folder.path(), json!({"subPath": "../x"})),
            "VOLUME::INVALID_SUB_PATH",
        ),
    ] {
        let (status, seen, message) = refused(&server, volumes).await;
        assert_eq!((status, seen.as_str()), (400, code), "{message}");
    }
    // A sandbox makes the link.
    let first = create(&server, &with(host(&folder.path(), json!({})))).await;
    shell(&stage, &first, "ln -s / /data/made");
    let made = at(folder.path(), json!({"subPath": "made/etc"}));
    let (status, code, message) = refused(&server, made).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::INVALID_SUB_PATH"),
        "{message}"
    );
    assert!(message.contains("symbolic link"), "{message}");
    delete(&server, &first).await;
    assert_eq!(stage.containers(), [""; 0]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_shared_and_goes_with_its_last_sandbox() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let server = server(&stage, &folder).await;
    let volume = name(&stage, "shared");
    let _removed = Kept(volume.clone());
    let transient = claim(&volume, json!({"deleteOnSandboxTermination": true}));
    let first = create(&server, &with(transient)).await;
    shell(
        &stage,
        &first,
        "mkdir /data/sub; echo kept > /data/sub/note",
    );
    let mut below = claim(&volume, json!({}));
    below[0]["subPath"] = json!("sub");
    below[0]["readOnly"] = json!(true);
    let second = create(&server, &with(below)).await;
    let line = "cat /data/note; touch /data/x 2>/dev/null || echo refused";
    assert_eq!(shell(&stage, &second, line), "kept\nrefused");
    delete(&server, &first).await;
    assert!(exists(&volume), "the second sandbox uses it");
    assert_eq!(shell(&stage, &second, "cat /data/note"), "kept");
    // A link within the volume does not lead out of it.
    let third = create(&server, &with(claim(&volume, json!({})))).await;
    shell(&stage, &third, "ln -s /etc /data/out");
    let mut out = claim(&volume, json!({}));
    out[0]["subPath"] = json!("out");
    let (status, code, message) = refused(&server, out).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::INVALID_SUB_PATH"),
        "{message}"
    );
    delete(&server, &third).await;
    delete(&server, &second).await;
    assert!(!exists(&volume), "nothing uses it any more");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_are_to_stay_stay() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let server = server(&stage, &folder).await;
    let [kept, theirs] = ["kept", "theirs"].map(|it| Kept(name(&stage, it)));
    docker(&["volume", "create", &theirs.0]);
    for volumes in [
        claim(&kept.0, json!({})),
        claim(&theirs.0, json!({"deleteOnSandboxTermination": true})),
    ] {
        let id = create(&server, &with(volumes)).await;
        shell(&stage, &id, "echo kept > /data/note");
        delete(&server, &id).await;
    }
    server.service.reconcile().await;
    let read = |volume: &Kept| {
        let mount = format!("{}:/data:ro", volume.0);
        docker(&[
            "run",
            "--rm",
            "--volume",
            &mount,
            IMAGE,
            "cat",
            "/data/note",
        ])
    };
    assert_eq!(
        (read(&kept), read(&theirs)),
        ("kept".to_owned(), "kept".to_owned())
    );
    let missing = claim(&name(&stage, "none"), json!({"createIfNotExists": false}));
    let (status, code, message) = refused(&server, missing).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::PVC_NOT_FOUND"),
        "{message}"
    );
    // The volume with execd, which every sandbox runs.
    let execd = docker(&[
        "volume",
        "ls",
        "--quiet",
        "--filter",
        "label=opensandbox.io/execd-build",
    ]);
    let execd = execd.lines().next().unwrap().to_owned();
    let (status, code, message) = refused(&server, claim(&execd, json!({}))).await;
    assert_eq!(
        (status, code.as_str()),
        (400, "VOLUME::INVALID_PVC_NAME"),
        "{message}"
    );
    server.stop().await;
}

#[test]
fn a_volume_whose_sandbox_vanished_is_removed_after_a_restart() {
    let mut stage = Stage::set();
    let folder = Folder::new();
    let process = || tokio::runtime::Runtime::new().unwrap();
    let volume = name(&stage, "crash");
    let _removed = Kept(volume.clone());
    let first = process();
    first.block_on(async {
        stage.engine.up().unwrap();
        let server = server(&stage, &folder).await;
        let transient = claim(&volume, json!({"deleteOnSandboxTermination": true}));
        create(&server, &with(transient)).await;
    });
    // The server is killed, and another program removes the container.
    first.shutdown_timeout(Duration::from_secs(60));
    for container in stage.containers() {
        docker(&["rm", "--force", &container]);
    }
    assert!(exists(&volume));
    process().block_on(async {
        stage.engine.cut().unwrap();
        stage.engine.up().unwrap();
        let server = server(&stage, &folder).await;
        wait_until("the sweep", async || exists(&volume), |it| !it).await;
        server.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_create_leaves_no_volume() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let folder = Folder::new();
    let server = server(&stage, &folder).await;
    let volume = name(&stage, "failed");
    let _removed = Kept(volume.clone());
    let mut body = with(claim(&volume, json!({"deleteOnSandboxTermination": true})));
    body["resourceLimits"]["gpu"] = json!("1");
    let request = server.request(Method::POST, "/v1/sandboxes").json(&body);
    let (status, answer) = answer(request).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{answer}");
    assert!(!exists(&volume));
    server.stop().await;
}

/// Programs that mount a folder of the host in place of a bucket.
fn install_programs(folder: &Path, bucket: &Path) -> std::ffi::OsString {
    let mount = format!("exec mount --bind '{}' \"$2\"", bucket.display());
    for (name, line) in [
        ("ossfs2", mount.as_str()),
        ("fusermount", "exec umount \"$2\""),
    ] {
        // Written by another process: the kernel runs no file that is open for writing, and processes that
        // other tests start inherit open files for a moment.
        let script = "printf '#!/bin/sh\\n%s\\n' \"$2\" > \"$1\" && chmod 755 \"$1\"";
        let written = std::process::Command::new("sh")
            .args(["-c", script, "sh"])
            .arg(folder.join(name))
            .arg(line)
            .status();
        assert!(written.unwrap().success());
    }
    let folders = [
        folder,
        Path::new("/usr/bin"),
        Path::new("/bin"),
        Path::new("/usr/sbin"),
    ];
    std::env::join_paths(folders).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_is_shared_and_its_mount_ends_with_its_last_sandbox() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: buckets are not tested, mounting needs root");
        return;
    }
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let (folder, bucket) = (Folder::new(), Folder::new());
    fs::write(bucket.path().join("note"), "from the bucket").unwrap();
    let programs = install_programs(&folder.path(), &bucket.path());
    let root = folder.path().join("mnt");
    let storage = StorageConfig {
        ossfs_mount_root: root.clone(),
        programs: Some(programs),
        ..StorageConfig::default()
    };
    let started = async || {
        let storage = storage.clone();
        let server = stage.server_tuned(|config| config.storage = storage).await;
        ready(&server).await;
        server
    };
    let server = started().await;
    let volumes = |secret: &str| {
        json!([{"name": "v", "mountPath": "/data", "ossfs": {
            "bucket": "data", "endpoint": "oss.example", "accessKeyId": "id",
            "accessKeySecret": secret,
        }}])
    };
    let first = create(&server, &with(volumes("hunter2"))).await;
    let line = "cat /data/note; echo box > /data/answer";
    assert_eq!(shell(&stage, &first, line), "from the bucket");
    let second = create(&server, &with(volumes("hunter2"))).await;
    assert_eq!(shell(&stage, &second, "cat /data/answer"), "box");
    let other = create(&server, &with(volumes("hunter3"))).await;
    let seen = docker(&["inspect", &stage.container_of(&first)]);
    assert!(!seen.contains("hunter"), "{seen}");
    let mounts = |at: &str| {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let at = root.join(at);
        table.matches(&*at.to_string_lossy()).count()
    };
    let is_mounted = || mounts("data ") == 1;
    assert!(is_mounted());
    assert_eq!(
        mounts(".paths/data/"),
        1,
        "another key has a mount of its own"
    );
    // Another process knows who uses them.
    server.stop().await;
    drop(server);
    let server = started().await;
    delete(&server, &other).await;
    assert_eq!(mounts(".paths/data/"), 0);
    delete(&server, &first).await;
    assert!(is_mounted(), "the second sandbox uses it");
    assert_eq!(shell(&stage, &second, "cat /data/note"), "from the bucket");
    delete(&server, &second).await;
    assert!(!is_mounted());
    assert!(
        bucket.path().join("answer").exists(),
        "the bucket keeps its files"
    );
    server.stop().await;
}
