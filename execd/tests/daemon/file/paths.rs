//! Paths of requests: links, the working directory and odd names (contract: execd §2.4, §10.8).

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::symlink},
};

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{metadata, upload};
use crate::support::{Daemon, daemon, texts};

#[tokio::test]
async fn a_parent_behind_a_link_is_resolved_by_the_kernel() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let at = |path: &str| place.path().join(path);
    fs::create_dir_all(at("releases/7")).unwrap();
    symlink("releases/7", at("current")).unwrap();
    fs::write(at("conf"), "wrong").unwrap();
    fs::write(at("releases/conf"), "right").unwrap();
    let root = place.path().display();
    let download = format!("/files/download?path={root}/current/../conf");
    assert_eq!(daemon.get(&download).await.text(), "right");
    let listing = daemon
        .get(&format!("/directories/list?path={root}/current/.."))
        .await
        .json();
    assert_eq!(listing.as_array().unwrap().len(), 2, "{listing}");
    let search = format!("/files/search?path={root}/current/..&pattern=conf");
    assert_eq!(
        daemon.get(&search).await.json().as_array().unwrap().len(),
        1
    );
    let through = metadata(&at("current/../uploaded"));
    let sent = upload(&daemon, &[("metadata", &through), ("file", b"x")]).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
    assert!(at("releases/uploaded").exists());
    let made = at("current/../made");
    daemon
        .post("/directories", json!({ made.to_str().unwrap(): {} }))
        .await;
    assert!(at("releases/made").is_dir());
    let moves = json!([{ "src": at("current/../uploaded"), "dest": at("current/../moved") }]);
    assert_eq!(daemon.post("/files/mv", moves).await.status, 200);
    assert_eq!(
        daemon
            .delete(&format!("/files?path={root}/current/../moved"))
            .await
            .status,
        200
    );
    assert_eq!(fs::read_dir(at("releases")).unwrap().count(), 3);
    let command = json!({ "command": "cat conf", "cwd": at("current/..") });
    let events = daemon.run(command).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["right"]);
    assert_eq!(fs::read(at("conf")).unwrap(), b"wrong");
}

#[tokio::test]
async fn the_working_directory_is_not_deleted() {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    fs::create_dir_all(work.join("x/y")).unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.current_dir(&work);
    });
    let (work_text, above) = (work.display().to_string(), place.path().display());
    for given in [
        ".",
        "..",
        "x/.",
        "x/..",
        "./",
        &work_text,
        &above.to_string(),
        "/",
    ] {
        let refused = daemon.delete(&format!("/directories?path={given}")).await;
        assert_eq!(refused.status, 400, "{given}: {}", refused.text());
        assert_eq!(refused.code(), "INVALID_REQUEST_BODY");
    }
    assert!(work.join("x/y").is_dir());
    for given in ["x/y", "x/../x"] {
        let deleted = daemon.delete(&format!("/directories?path={given}")).await;
        assert_eq!(deleted.status, 200, "{given}: {}", deleted.text());
    }
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0);
}

#[tokio::test]
async fn names_need_not_be_utf_8() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let odd = |name: &[u8]| place.path().join(OsStr::from_bytes(name));
    fs::write(odd(b"a\xff"), "bytes").unwrap();
    fs::create_dir(odd(b"d\xfe")).unwrap();
    fs::write(odd(b"d\xfe").join("f"), "").unwrap();
    let root = place.path().display();
    let at = |route: &str, name: &str| format!("{route}?path={root}/{name}");
    assert_eq!(
        daemon.get(&at("/files/download", "a%FF")).await.text(),
        "bytes"
    );
    assert_eq!(daemon.get(&at("/files/info", "a%ff")).await.status, 200);
    assert_eq!(daemon.get(&at("/files/info", "a%fe")).await.status, 404);
    let list = daemon.get(&at("/directories/list", "d%FE")).await;
    assert_eq!(list.json().as_array().unwrap().len(), 1);
    assert_eq!(daemon.delete(&at("/files", "a%FF")).await.status, 200);
    assert_eq!(daemon.delete(&at("/directories", "d%FE")).await.status, 200);
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_that_blocks_a_directory_is_named() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "").unwrap();
    let why = format!("{} is not a directory", file.display());
    for below in [file.join("a"), file.join("a/b")] {
        let made = daemon
            .post("/directories", json!({ below.to_str().unwrap(): {} }))
            .await;
        let sent = upload(&daemon, &[("metadata", &metadata(&below)), ("file", b"x")]).await;
        let moves = json!([{ "src": file, "dest": below.join("c") }]);
        let moved = daemon.post("/files/mv", moves).await;
        for answer in [made, sent, moved] {
            assert_eq!(answer.status, 500);
            assert!(answer.text().contains(&why), "{}", answer.text());
        }
    }
}
