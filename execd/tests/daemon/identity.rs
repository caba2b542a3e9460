//! Files as another user (contract: execd A3.3). Needs root, as in a sandbox.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    path::Path,
};

use http::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    file::form,
    support::{Answer, Daemon, alive, daemon, eventually},
};

/// User and group without an entry in the account files.
const UID: u32 = 12_345;
const GID: u32 = 54_321;
const AS: &str = "/v1/filesystem/12345/54321";

/// Starts a daemon, and creates a folder that every user may write.
fn setting() -> (Daemon, tempfile::TempDir) {
    assert!(
        rustix::process::geteuid().is_root(),
        "these tests switch users, so they need root"
    );
    let place = tempfile::tempdir().unwrap();
    mode(place.path(), 0o777);
    (daemon(), place)
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Builds an upload of one file.
fn upload_of(path: &Path, content: &[u8]) -> Vec<u8> {
    let metadata = json!({ "path": path, "mode": 640 }).to_string();
    form(&[("metadata", metadata.as_bytes()), ("file", content)])
}

async fn upload(daemon: &Daemon, path: &Path, content: &[u8]) -> Answer {
    let kind = [("content-type", "multipart/form-data; boundary=xyz")];
    let to = format!("{AS}/files/upload");
    let body = upload_of(path, content);
    Answer::of(daemon.send(Method::POST, &to, &kind, body).await).await
}

#[tokio::test]
async fn every_route_works_as_another_user() {
    let (daemon, place) = setting();
    let root = place.path().display();
    let at = |path: &str| place.path().join(path);
    let owner = |path: &Path| {
        let meta = path.metadata().unwrap();
        (meta.uid(), meta.gid())
    };
    let post = async |path: &str, body: Value| {
        let answer = daemon.post(&format!("{AS}{path}"), body).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    };
    let get = async |path: &str| {
        let answer = daemon.get(&format!("{AS}{path}")).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer
    };

    let made = post(
        "/directories",
        json!({ format!("{root}/d"): { "mode": 750 } }),
    )
    .await;
    assert_eq!(
        (made.text(), &made.headers["content-length"]),
        ("", &"0".parse().unwrap())
    );
    assert_eq!(owner(&at("d")), (UID, GID));
    let large: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
    let answer = upload(&daemon, &at("d/large"), &large).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, ""));
    assert_eq!(owner(&at("d/large")), (UID, GID));
    let whole = get(&format!("/files/download?path={root}/d/large")).await;
    assert!(whole.body == large, "the download differs");
    assert_eq!(whole.headers["content-length"], "5000000");
    assert!(!whole.headers.contains_key("connection"));
    let range = [("range", "bytes=-3")];
    let path = format!("{AS}/files/download?path={root}/d/large");
    let part = daemon.get_with(&path, &range).await;
    assert_eq!(
        (part.status.as_u16(), &part.body[..]),
        (206, &large[4_999_997..])
    );

    fs::write(at("d/f"), "one two").unwrap();
    chown(at("d/f"), Some(UID), Some(GID)).unwrap();
    let wanted = json!({ format!("{root}/d/f"): { "old": "two", "new": "2" } });
    let counted = post("/files/replace?verbose=true", wanted).await;
    assert_eq!(counted.json()[format!("{root}/d/f")]["replacedCount"], 1);
    post(
        "/files/permissions",
        json!({ format!("{root}/d/f"): { "mode": 600 } }),
    )
    .await;
    let info = get(&format!("/files/info?path={root}/d/f")).await.json();
    let info = &info[format!("{root}/d/f")];
    assert_eq!(
        (&info["owner"], &info["group"], &info["mode"]),
        (&json!("12345"), &json!("54321"), &json!(600))
    );
    post(
        "/files/mv",
        json!([{ "src": format!("{root}/d/f"), "dest": format!("{root}/g") }]),
    )
    .await;
    let count = |answer: Answer| answer.json().as_array().unwrap().len();
    assert_eq!(
        count(get(&format!("/files/search?path={root}&pattern=g")).await),
        1
    );
    let found = get(&format!("/files/find?path={root}&pattern=g&text=one")).await;
    assert_eq!(found.json()["entries"][0]["count"], 1, "{}", found.text());
    assert_eq!(
        count(get(&format!("/directories/list?path={root}&depth=2")).await),
        3
    );
    for (path, gone) in [("/files?path=", "g"), ("/directories?path=", "d")] {
        let answer = daemon.delete(&format!("{AS}{path}{root}/{gone}")).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, ""));
        assert!(!at(gone).exists());
    }
    let unknown = daemon.get(&format!("{AS}/ping")).await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.text()),
        (404, "404 page not found")
    );
}

#[tokio::test]
async fn the_kernel_checks_permissions() {
    let (daemon, place) = setting();
    let root = place.path().display();
    let at = |path: &str| place.path().join(path);
    // A directory that only root may enter, one that only root may write, and one with the sticky
    // bit, where users may delete only their own files.
    for (directory, bits) in [("closed", 0o700), ("fixed", 0o755), ("sticky", 0o1777)] {
        fs::create_dir(at(directory)).unwrap();
        fs::write(at(directory).join("f"), "secret").unwrap();
        mode(&at(directory).join("f"), 0o640);
        mode(&at(directory), bits);
    }
    symlink(at("closed/f"), at("link")).unwrap();
    // The daemon's group could open the first file, and root's capabilities the second.
    fs::write(at("group"), "secret").unwrap();
    mode(&at("group"), 0o060);
    fs::write(at("mine"), "secret").unwrap();
    chown(at("mine"), Some(UID), Some(GID)).unwrap();
    mode(&at("mine"), 0);

    let mut answers = Vec::new();
    for path in [
        "files/info?path={root}/closed/f",
        "files/download?path={root}/closed/f",
        "files/download?path={root}/fixed/f",
        "files/download?path={root}/link",
        "files/download?path={root}/group",
        "files/download?path={root}/mine",
        "files/search?path={root}/closed",
        "files/find?path={root}/closed",
        "directories/list?path={root}/closed",
    ] {
        let path = path.replace("{root}", &root.to_string());
        answers.push((path.clone(), daemon.get(&format!("{AS}/{path}")).await));
    }
    for path in [
        "files?path={root}/fixed/f",
        "files?path={root}/sticky/f",
        "directories?path={root}/fixed",
    ] {
        let path = path.replace("{root}", &root.to_string());
        answers.push((path.clone(), daemon.delete(&format!("{AS}/{path}")).await));
    }
    for (path, body) in [
        (
            "files/mv",
            json!([{ "src": format!("{root}/sticky/f"), "dest": format!("{root}/x") }]),
        ),
        (
            "files/permissions",
            json!({ format!("{root}/fixed/f"): { "mode": 777 } }),
        ),
        (
            "files/permissions",
            json!({ format!("{root}/mine"): { "owner": "root" } }),
        ),
        (
            "files/replace",
            json!({ format!("{root}/fixed/f"): { "old": "s", "new": "" } }),
        ),
        ("directories", json!({ format!("{root}/fixed/new"): {} })),
    ] {
        answers.push((
            path.to_owned(),
            daemon.post(&format!("{AS}/{path}"), body).await,
        ));
    }
    for path in ["fixed/new", "fixed/f", "link"] {
        answers.push((path.to_owned(), upload(&daemon, &at(path), b"x").await));
    }
    for (path, answer) in answers {
        assert_eq!(answer.code(), "RUNTIME_ERROR", "{path}");
        let (status, text) = (answer.status, answer.text());
        assert_eq!(status, 500, "{path}: {text}");
        assert!(text.contains("permission"), "{path}: {text}");
    }
    for file in ["closed/f", "fixed/f", "sticky/f"] {
        assert_eq!(fs::read(at(file)).unwrap(), b"secret", "{file}");
        let meta = at(file).metadata().unwrap();
        assert_eq!((meta.mode() & 0o777, meta.uid()), (0o640, 0), "{file}");
    }
    assert_eq!(fs::read_dir(at("fixed")).unwrap().count(), 1);
    // Root may do all of that, and members of the owning group have the group's permissions.
    for (identity, path) in [
        ("0/0", "closed/f"),
        ("12345/0", "fixed/f"),
        ("12345/0", "group"),
    ] {
        let path = format!("/v1/filesystem/{identity}/files/download?path={root}/{path}");
        let answer = daemon.get(&path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.text()),
            (200, "secret"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn the_token_is_checked_before_the_identity() {
    let daemon = Daemon::start(&["--port", "0", "--access-token", "secret-token"], |_| {});
    let token = [("x-execd-access-token", "secret-token")];
    for (identity, message) in [
        ("x/y", "invalid uid: x"),
        ("4294967295/1", "invalid uid: 4294967295"),
        ("1/-1", "invalid gid: -1"),
        ("1/%2B1", "invalid gid: +1"),
    ] {
        let path = format!("/v1/filesystem/{identity}/files/info?path=/");
        assert_eq!(daemon.get(&path).await.status, 401);
        let answer = daemon.get_with(&path, &token).await;
        assert_eq!(answer.status, 400, "{identity}");
        assert_eq!(answer.code(), "INVALID_REQUEST_BODY");
        assert_eq!(answer.json()["message"], message);
    }
}

#[tokio::test]
async fn an_unavailable_identity_is_reported() {
    let daemon = Daemon::without_capabilities("-setuid,-setgid", &["--port", "0"]);
    let answer = daemon.get(&format!("{AS}/files/info?path=/")).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.code(), "FILESYSTEM_IDENTITY_UNAVAILABLE");
    assert_eq!(daemon.get("/ping").await.status, 200);
}

/// Sends the first part of an upload.
async fn begin_upload(daemon: &Daemon, path: &Path, headers: &str) -> TcpStream {
    let body = upload_of(path, &[7; 1000]);
    let head = format!(
        "POST {AS}/files/upload HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n{headers}\
         content-type: multipart/form-data; boundary=xyz\r\n\r\n",
        body.len()
    );
    let begun = [head.as_bytes(), &body[..body.len() - 500]].concat();
    let mut client = TcpStream::connect(("127.0.0.1", daemon.port()))
        .await
        .unwrap();
    client.write_all(&begun).await.unwrap();
    client
}

/// Sends the first part of an upload, and waits until a worker has received it.
async fn half_an_upload(daemon: &Daemon, path: &Path, headers: &str) -> (TcpStream, i32) {
    let client = begin_upload(daemon, path, headers).await;
    let beside = path.parent().unwrap();
    eventually("the upload began", async || {
        (fs::read_dir(beside).unwrap().count() == 1).then_some(())
    })
    .await;
    let workers = workers_of(daemon);
    assert_eq!(workers.len(), 1, "{workers:?}");
    (client, workers[0])
}

/// Returns the PIDs of the daemon's workers.
fn workers_of(daemon: &Daemon) -> Vec<i32> {
    let children = format!("/proc/{0}/task", daemon.pid());
    fs::read_dir(children)
        .unwrap()
        .flat_map(|task| {
            let children = fs::read_to_string(task.unwrap().path().join("children")).unwrap();
            let children: Vec<i32> = children
                .split_ascii_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect();
            children
        })
        .collect()
}

#[tokio::test]
async fn a_request_is_refused_when_all_workers_stay_busy() {
    // `limits::FILE_WORKERS`.
    const WORKERS: usize = 256;
    let (daemon, place) = setting();
    let mut clients = Vec::new();
    for index in 0..WORKERS {
        let path = place.path().join(index.to_string());
        clients.push(begin_upload(&daemon, &path, "").await);
    }
    eventually("all workers are busy", async || {
        (workers_of(&daemon).len() == WORKERS).then_some(())
    })
    .await;
    let info = format!("{AS}/files/info?path={}", place.path().display());
    let refused = daemon.get(&info).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.code(), "SERVICE_UNAVAILABLE");
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(
        refused.text().contains("256 file workers"),
        "{}",
        refused.text()
    );
    // Requests without another identity need no worker.
    let own = format!("/files/info?path={}", place.path().display());
    assert_eq!(daemon.get(&own).await.status, 200);
    drop(clients);
    eventually("a worker is free", async || {
        (daemon.get(&info).await.status == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_disconnect_ends_the_work() {
    let (daemon, place) = setting();
    let (client, worker) = half_an_upload(&daemon, &place.path().join("f"), "").await;
    let status = fs::read_to_string(format!("/proc/{worker}/status")).unwrap();
    let line = |name: &str| status.lines().find(|line| line.starts_with(name)).unwrap();
    assert_eq!(line("Uid:"), "Uid:\t12345\t12345\t12345\t12345");
    assert_eq!(line("Gid:"), "Gid:\t54321\t54321\t54321\t54321");
    assert_eq!(line("Groups:").trim_end(), "Groups:");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(line(set).ends_with("\t0000000000000000"), "{}", line(set));
    }
    drop(client);
    eventually("the worker ended", async || (!alive(worker)).then_some(())).await;
    assert_eq!(
        fs::read_dir(place.path()).unwrap().count(),
        0,
        "nothing is left over"
    );
}

#[tokio::test]
async fn a_hanging_worker_is_killed() {
    let (daemon, place) = setting();
    let (client, worker) = half_an_upload(&daemon, &place.path().join("f"), "").await;
    kill_process(Pid::from_raw(worker).unwrap(), Signal::STOP).unwrap();
    drop(client);
    eventually("the worker was killed", async || {
        (!alive(worker)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_death_of_a_worker_is_reported() {
    let (daemon, place) = setting();
    let (mut client, worker) = half_an_upload(&daemon, &place.path().join("f"), "").await;
    kill_process(Pid::from_raw(worker).unwrap(), Signal::KILL).unwrap();
    let mut answer = vec![0; 4096];
    let len = client.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..len]);
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(
        answer.contains("FILESYSTEM_IDENTITY_UNAVAILABLE"),
        "{answer}"
    );
}

#[tokio::test]
async fn a_worker_cannot_read_the_token() {
    let token = "secret-of-the-daemon";
    let place = tempfile::tempdir().unwrap();
    mode(place.path(), 0o777);
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("EXECD_ACCESS_TOKEN", token);
    });
    let header = format!("x-execd-access-token: {token}\r\n");
    let (_client, worker) = half_an_upload(&daemon, &place.path().join("f"), &header).await;
    let environ = fs::read(format!("/proc/{worker}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environ).contains(token));
    // Its memory is hidden from processes of its user, who no longer owns these files.
    let owner = fs::metadata(format!("/proc/{worker}/environ"))
        .unwrap()
        .uid();
    assert_eq!(owner, 0);
}
