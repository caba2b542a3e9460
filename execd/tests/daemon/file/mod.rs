//! Files and directories over HTTP (contract: execd §10, A3).

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use http::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Daemon, daemon};

mod download;
mod find;
mod paths;
mod upload;

/// Builds a form as the official SDK does.
pub(crate) fn form(parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, content) in parts {
        let head = format!(
            "--xyz\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"a\\\"b.txt\"\r\nContent-Type: application/octet-stream\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--xyz--\r\n");
    body
}

async fn upload(daemon: &Daemon, parts: &[(&str, &[u8])]) -> Answer {
    let kind = [("content-type", "multipart/form-data; boundary=xyz")];
    Answer::of(
        daemon
            .send(Method::POST, "/files/upload", &kind, form(parts))
            .await,
    )
    .await
}

fn metadata(path: &Path) -> Vec<u8> {
    json!({ "path": path, "owner": null, "group": null, "mode": 640 })
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn a_tree_is_created_changed_and_deleted() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().display().to_string();
    let made = daemon
        .post(
            "/directories",
            json!({ format!("{root}/d/e"): { "mode": 750 } }),
        )
        .await;
    assert_eq!((made.status.as_u16(), made.text()), (200, ""));
    fs::write(place.path().join("d/f.txt"), "one two two").unwrap();
    let info = daemon
        .get(&format!("/files/info?path={root}/d/f.txt&path={root}/d/e"))
        .await
        .json();
    let file = &info[format!("{root}/d/f.txt")];
    assert_eq!((&file["type"], &file["size"]), (&json!("file"), &json!(11)));
    let directory = &info[format!("{root}/d/e")];
    assert_eq!(
        (&directory["type"], &directory["mode"]),
        (&json!("directory"), &json!(750))
    );

    let wanted = json!({ format!("{root}/d/f.txt"): { "old": "two", "new": "2" } });
    let counted = daemon
        .post("/files/replace?verbose=true", wanted.clone())
        .await
        .json();
    assert_eq!(
        counted[format!("{root}/d/f.txt")],
        json!({ "replacedCount": 2 })
    );
    assert_eq!(daemon.post("/files/replace", wanted).await.text(), "");
    let mode = json!({ format!("{root}/d/f.txt"): { "mode": 600 } });
    assert_eq!(daemon.post("/files/permissions", mode).await.status, 200);

    let moved = json!([{ "src": format!("{root}/d/f.txt"), "dest": format!("{root}/n/g.txt") }]);
    assert_eq!(daemon.post("/files/mv", moved.clone()).await.status, 200);
    assert_eq!(
        daemon.post("/files/mv", moved).await.code(),
        "FILE_NOT_FOUND"
    );
    assert_eq!(fs::read(place.path().join("n/g.txt")).unwrap(), b"one 2 2");

    let paths = |answer: Value| -> Vec<String> {
        let entries = answer.as_array().unwrap().clone();
        entries
            .iter()
            .map(|entry| entry["path"].as_str().unwrap().replace(&root, ""))
            .collect()
    };
    let listed = daemon
        .get(&format!("/directories/list?path={root}&depth=2"))
        .await
        .json();
    assert_eq!(paths(listed), ["/d", "/d/e", "/n", "/n/g.txt"]);
    let found = daemon
        .get(&format!("/files/search?path={root}&pattern=*.txt"))
        .await
        .json();
    assert_eq!(paths(found), ["/n/g.txt"]);

    let refused = daemon.delete(&format!("/files?path={root}/d")).await;
    assert!(refused.status == 500 && refused.text().contains("path is a directory"));
    for _ in 0..2 {
        assert_eq!(
            daemon
                .delete(&format!("/files?path={root}/n/g.txt"))
                .await
                .status,
            200
        );
        assert_eq!(
            daemon
                .delete(&format!("/directories?path={root}/d"))
                .await
                .status,
            200
        );
    }
    let gone = daemon.get(&format!("/files/info?path={root}/d")).await;
    assert_eq!(
        (gone.status.as_u16(), gone.code().as_str()),
        (404, "FILE_NOT_FOUND")
    );
}

#[tokio::test]
async fn special_bits_of_modes_are_set_and_shown() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let root = place.path().display().to_string();
    let on_disk = |name: &str| {
        let meta = fs::metadata(place.path().join(name)).unwrap();
        meta.permissions().mode() & 0o7777
    };
    let shown = async |name: &str| {
        let path = format!("{root}/{name}");
        let info = daemon.get(&format!("/files/info?path={path}")).await.json();
        let listed = format!("/directories/list?path={root}");
        let listed = daemon.get(&listed).await.json();
        let entries = listed.as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["path"] == path.as_str());
        assert_eq!(info[&path]["mode"], entry.unwrap()["mode"], "{name}");
        info[&path]["mode"].as_u64().unwrap()
    };
    for (wire, bits) in [
        (644, 0o644),
        (1777, 0o1777),
        (2755, 0o2755),
        (4750, 0o4750),
        (6711, 0o6711),
        (7777, 0o7777),
        (1000, 0o1000),
    ] {
        let (file, directory, changed) =
            (format!("f{wire}"), format!("d{wire}"), format!("c{wire}"));
        let metadata = json!({ "path": format!("{root}/{file}"), "mode": wire }).to_string();
        let parts: [(&str, &[u8]); 2] = [("metadata", metadata.as_bytes()), ("file", b"x")];
        assert_eq!(upload(&daemon, &parts).await.status, 200);
        let made = json!({ format!("{root}/{directory}"): { "mode": wire } });
        assert_eq!(daemon.post("/directories", made).await.status, 200);
        fs::write(place.path().join(&changed), "").unwrap();
        let mode = json!({ format!("{root}/{changed}"): { "mode": wire } });
        assert_eq!(daemon.post("/files/permissions", mode).await.status, 200);
        for name in [&file, &directory, &changed] {
            assert_eq!(on_disk(name), bits, "{name}");
            assert_eq!(shown(name).await, wire, "{name}");
        }
        // New content keeps them.
        let again = json!({ "path": format!("{root}/{file}") }).to_string();
        let parts: [(&str, &[u8]); 2] = [("metadata", again.as_bytes()), ("file", b"y")];
        assert_eq!(upload(&daemon, &parts).await.status, 200);
        assert_eq!(on_disk(&file), bits, "{file}");
    }
    for bad in [8777, 1789, -1777] {
        let mode = json!({ format!("{root}/f644"): { "mode": bad } });
        assert_eq!(daemon.post("/files/permissions", mode).await.status, 500);
    }
}

#[tokio::test]
async fn texts_are_replaced_in_several_files_and_a_tilde_is_the_home() {
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("HOME", place.path());
    });
    let at = |name: &str| place.path().join(name);
    fs::write(at("a"), "x x x").unwrap();
    fs::write(at("b"), "nothing").unwrap();
    let replaced = |wanted: Value| daemon.post("/files/replace?verbose=true", wanted);
    let both = json!({ "~/a": { "old": "x", "new": "" }, "~/b": { "old": "x", "new": "y" } });
    assert_eq!(
        replaced(both).await.json(),
        json!({ "~/a": { "replacedCount": 3 }, "~/b": { "replacedCount": 0 } })
    );
    assert_eq!(fs::read(at("a")).unwrap(), b"  ");
    for (name, old, status, code) in [
        ("~/b", "", 400, "INVALID_REQUEST_BODY"),
        ("~/none", "x", 404, "FILE_NOT_FOUND"),
    ] {
        let answer = replaced(json!({ name: { "old": old, "new": "z" } })).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code)
        );
    }
    assert_eq!(fs::read(at("b")).unwrap(), b"nothing");
    let got = daemon.get("/files/download?path=~/b").await;
    assert_eq!(got.text(), "nothing");
    assert_eq!(daemon.delete("/files?path=~/b").await.status, 200);
    assert!(!at("b").exists());
}

#[tokio::test]
async fn malformed_queries_are_refused() {
    let daemon = daemon();
    for (path, status, code) in [
        ("/files/download", 400, "MISSING_QUERY"),
        ("/files/search", 400, "MISSING_QUERY"),
        ("/files/search?path=/none", 404, "FILE_NOT_FOUND"),
        ("/files/download?path=/none", 404, "FILE_NOT_FOUND"),
        ("/files/download?path=/", 400, "INVALID_REQUEST_BODY"),
        ("/directories/list", 400, "MISSING_QUERY"),
        (
            "/directories/list?path=/&depth=-1",
            400,
            "INVALID_REQUEST_BODY",
        ),
        (
            "/directories/list?path=/etc/passwd",
            400,
            "INVALID_REQUEST_BODY",
        ),
        ("/directories/list?path=/none", 404, "FILE_NOT_FOUND"),
    ] {
        let answer = daemon.get(path).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code),
            "{path}"
        );
    }
    assert_eq!(daemon.get("/files/info").await.json(), json!({}));
}
