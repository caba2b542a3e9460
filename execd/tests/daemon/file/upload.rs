//! Uploads, whose forms name the files and their attributes (contract: execd §10.10).

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{form, metadata, upload};
use crate::support::{daemon, eventually};

#[tokio::test]
async fn a_connection_is_reusable_after_an_upload() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("f");
    let body = form(&[("metadata", &metadata(&path)), ("file", b"text")]);
    let epilogue = "bytes after the last part are ignored";
    let head = format!(
        "POST /files/upload HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\
         content-type: multipart/form-data; boundary=xyz\r\n\r\n",
        body.len() + epilogue.len()
    );
    let mut client = tokio::net::TcpStream::connect(("127.0.0.1", daemon.port()))
        .await
        .unwrap();
    client.write_all(head.as_bytes()).await.unwrap();
    client.write_all(&body).await.unwrap();
    eventually("the file is there", async || path.exists().then_some(())).await;
    let rest = format!("{epilogue}GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    client.write_all(rest.as_bytes()).await.unwrap();
    let mut answers = String::new();
    client.read_to_string(&mut answers).await.unwrap();
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 2, "{answers}");
}

#[tokio::test]
async fn an_upload_is_downloaded_unchanged() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let (first, second) = (place.path().join("new/a b.bin"), place.path().join("c"));
    let large: Vec<u8> = (0..5_000_000u32).map(|index| (index % 251) as u8).collect();
    // In the second pair the file precedes its metadata.
    let parts: [(&str, &[u8]); 4] = [
        ("metadata", &metadata(&first)),
        ("file", &large),
        ("file", b"second"),
        ("metadata", &metadata(&second)),
    ];
    let answer = upload(&daemon, &parts).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, ""));
    assert_eq!(
        fs::metadata(&first).unwrap().permissions().mode() & 0o777,
        0o640
    );
    assert_eq!(fs::read(&second).unwrap(), b"second");
    let path = format!("/files/download?path={}", first.display()).replace(' ', "+");
    let whole = daemon.get(&path).await;
    assert_eq!(whole.status, 200);
    assert_eq!(whole.body, large);
    assert_eq!(
        whole.headers["content-disposition"],
        "attachment; filename=\"a b.bin\""
    );
    for (range, want, content_range) in [
        ("bytes=0-9", &large[..10], "bytes 0-9/5000000"),
        (
            "bytes=-3",
            &large[4_999_997..],
            "bytes 4999997-4999999/5000000",
        ),
        (
            "bytes=1000000-",
            &large[1_000_000..],
            "bytes 1000000-4999999/5000000",
        ),
    ] {
        let part = daemon.get_with(&path, &[("range", range)]).await;
        assert_eq!(
            (part.status.as_u16(), &part.body[..]),
            (206, want),
            "{range}"
        );
        assert_eq!(part.headers["content-range"], content_range);
    }
    let beyond = daemon.get_with(&path, &[("range", "bytes=5000000-")]).await;
    assert_eq!(
        (beyond.status.as_u16(), beyond.code().as_str()),
        (416, "UNKNOWN")
    );
    assert_eq!(beyond.headers["content-range"], "bytes */5000000");
    assert_eq!(
        daemon.get_with(&path, &[("range", "lines=1")]).await.status,
        416
    );
    let tag = whole.headers["etag"].to_str().unwrap();
    assert_eq!(
        daemon
            .get_with(&path, &[("if-none-match", tag)])
            .await
            .status,
        304
    );
    let stale = [("range", "bytes=0-1"), ("if-range", "\"stale\"")];
    assert_eq!(daemon.get_with(&path, &stale).await.status, 200);
    assert_eq!(
        fs::read_dir(place.path().join("new")).unwrap().count(),
        1,
        "nothing is left over"
    );
}

#[tokio::test]
async fn malformed_forms_are_refused() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let target = metadata(&place.path().join("f"));
    let pair: [(&str, &[u8]); 2] = [("metadata", &target), ("file", b"x")];
    let twice: [(&str, &[u8]); 3] = [pair[0], pair[0], pair[1]];
    let no_json: [(&str, &[u8]); 2] = [("metadata", b"{"), ("file", b"x")];
    let directory = metadata(place.path());
    let onto_directory: [(&str, &[u8]); 2] = [("metadata", &directory), ("file", b"x")];
    for (parts, status, code) in [
        (&pair[..1], 400, "INVALID_FILE_CONTENT"),
        (&pair[1..], 400, "INVALID_FILE_METADATA"),
        (&twice[..], 400, "INVALID_FILE"),
        (&no_json[..], 400, "INVALID_FILE_METADATA"),
        (&onto_directory[..], 500, "RUNTIME_ERROR"),
    ] {
        let answer = upload(&daemon, parts).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (status, code)
        );
    }
    let no_form = daemon.post("/files/upload", json!({})).await;
    assert_eq!(
        (no_form.status.as_u16(), no_form.code().as_str()),
        (400, "INVALID_FILE")
    );
}

#[tokio::test]
async fn owners_change_only_when_named() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to change owners"
    );
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let owner = |name: &str| {
        let meta = fs::metadata(at(name)).unwrap();
        (meta.uid(), meta.gid(), meta.mode() & 0o777)
    };
    let pair = |name: &str, metadata: Value| {
        let mut metadata = metadata;
        metadata["path"] = json!(at(name));
        metadata.to_string().into_bytes()
    };
    let unprivileged = json!({ "owner": "nobody", "group": "nogroup", "mode": 640 });
    let named = pair("file", unprivileged.clone());
    let parts: [(&str, &[u8]); 2] = [("metadata", &named), ("file", b"1")];
    assert_eq!(upload(&daemon, &parts).await.status, 200);
    assert_eq!(owner("file"), (65534, 65534, 0o640));
    // Overwriting a file does not change its owner.
    let plain = pair("file", json!({}));
    let parts: [(&str, &[u8]); 2] = [("metadata", &plain), ("file", b"2")];
    assert_eq!(upload(&daemon, &parts).await.status, 200);
    assert_eq!(owner("file"), (65534, 65534, 0o640));

    let change = |name: &str, wanted: Value| {
        daemon.post(
            "/files/permissions",
            json!({ at(name).display().to_string(): wanted }),
        )
    };
    let group = change("file", json!({ "group": "daemon" })).await;
    assert_eq!(group.status, 200);
    assert_eq!(owner("file"), (65534, 1, 0o640));
    let unknown = change("file", json!({ "owner": "no-such-user" })).await;
    assert_eq!(unknown.status, 500, "{}", unknown.text());
    assert!(unknown.text().contains("no-such-user"));
    assert_eq!(change("none", json!({ "mode": 600 })).await.status, 500);
    assert_eq!(owner("file"), (65534, 1, 0o640));

    let directory = |wanted: &Value| {
        daemon.post(
            "/directories",
            json!({ at("a/b").display().to_string(): wanted }),
        )
    };
    assert_eq!(directory(&unprivileged).await.status, 200);
    assert_eq!(owner("a/b"), (65534, 65534, 0o640));
    let again = json!({ "owner": "root", "mode": 777 });
    assert_eq!(directory(&again).await.status, 200);
    assert_eq!(owner("a/b"), (65534, 65534, 0o640), "it was there");
}

#[tokio::test]
async fn parents_that_a_request_creates_get_its_owner() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to change owners"
    );
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    fs::create_dir_all(at("there/real")).unwrap();
    fs::set_permissions(at("there"), fs::Permissions::from_mode(0o705)).unwrap();
    std::os::unix::fs::symlink("there/real", at("link")).unwrap();
    let owner = |name: &str| {
        let meta = fs::metadata(at(name)).unwrap();
        (meta.uid(), meta.gid())
    };
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    fs::create_dir(at("plain")).unwrap();
    let (given, unprivileged) = (mode("plain"), (65534, 65534));
    let with = |name: &str, mode: i64| {
        json!({ "path": at(name), "owner": "nobody", "group": "nogroup", "mode": mode })
            .to_string()
            .into_bytes()
    };
    let first = with("there/a/b/file", 600);
    let later = with("link/c/d/file", 600);
    for parts in [
        [("metadata", &first[..]), ("file", &b"1"[..])],
        [("file", b"2"), ("metadata", &later)],
    ] {
        let answer = upload(&daemon, &parts).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let wanted = json!({ "owner": "nobody", "group": "nogroup", "mode": 700 });
    let body = json!({ at("there/e/f/leaf").display().to_string(): wanted });
    assert_eq!(daemon.post("/directories", body).await.status, 200);
    for new in [
        "there/a",
        "there/a/b",
        "there/a/b/file",
        "there/real/c",
        "there/real/c/d",
        "there/real/c/d/file",
        "there/e",
        "there/e/f",
        "there/e/f/leaf",
    ] {
        assert_eq!(owner(new), unprivileged, "{new}");
    }
    for (path, expected) in [
        ("there/a/b", given),
        ("there/real/c", given),
        ("there/e/f", given),
        ("there/e/f/leaf", 0o700),
        ("there/a/b/file", 0o600),
    ] {
        assert_eq!(mode(path), expected, "{path}");
    }
    // What was there before stays.
    assert_eq!((owner("there"), mode("there")), ((0, 0), 0o705));
    assert_eq!(owner("there/real"), (0, 0));

    // A part of the owner, and none.
    let group = json!({ at("g/leaf").display().to_string(): { "group": "nogroup" } });
    assert_eq!(daemon.post("/directories", group).await.status, 200);
    assert_eq!((owner("g"), owner("g/leaf")), ((0, 65534), (0, 65534)));
    let nothing = json!({ at("n/leaf").display().to_string(): {} });
    assert_eq!(daemon.post("/directories", nothing).await.status, 200);
    let moved = json!([{ "src": at("g/leaf"), "dest": at("m/leaf") }]);
    assert_eq!(daemon.post("/files/mv", moved).await.status, 200);
    assert_eq!((owner("n"), owner("m")), ((0, 0), (0, 0)));

    // An unknown name creates nothing.
    let unknown = json!({ "owner": "no-such-user" });
    let body = json!({ at("u/leaf").display().to_string(): unknown });
    assert_eq!(daemon.post("/directories", body).await.status, 500);
    let metadata = json!({ "path": at("u/file"), "owner": "no-such-user" }).to_string();
    let parts: [(&str, &[u8]); 2] = [("metadata", metadata.as_bytes()), ("file", b"3")];
    assert_eq!(upload(&daemon, &parts).await.status, 500);
    assert!(!at("u").exists());
}

#[tokio::test]
async fn forms_are_bounded_and_every_file_needs_a_path() {
    let daemon = daemon();
    let nowhere: [(&str, &[u8]); 2] = [("metadata", b"{\"path\":\"\"}"), ("file", b"x")];
    let answer = upload(&daemon, &nowhere).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "INVALID_FILE_METADATA")
    );
    let place = tempfile::tempdir().unwrap();
    let target = place.path().join("f");
    let rest = "x".repeat(64 << 10);
    let long = json!({ "path": target, "rest": rest }).to_string();
    let pair: [(&str, &[u8]); 2] = [("metadata", long.as_bytes()), ("file", b"x")];
    let answer = upload(&daemon, &pair).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    assert!(answer.text().contains("metadata is too long"));
    assert!(!target.exists());
    let many = vec![("other", b"x".as_slice()); 1001];
    let answer = upload(&daemon, &many).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "INVALID_FILE")
    );
    assert!(answer.text().contains("1000 parts"), "{}", answer.text());
}

#[tokio::test]
async fn a_refused_form_changes_no_file() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let (kept, fresh) = (place.path().join("kept"), place.path().join("fresh"));
    fs::write(&kept, "old").unwrap();
    let pair = |path: &Path| [("metadata", metadata(path)), ("file", b"new".to_vec())];
    let onto_directory = pair(place.path());
    let unknown_owner = json!({ "path": fresh, "owner": "no-such-user" });
    let unknown_owner = [
        ("metadata", unknown_owner.to_string().into_bytes()),
        ("file", b"new".to_vec()),
    ];
    let no_file = [("metadata", metadata(&fresh))];
    for refused in [&onto_directory[..], &unknown_owner, &no_file] {
        let parts = [&pair(&kept)[..], &pair(&fresh), refused].concat();
        let parts: Vec<_> = parts
            .iter()
            .map(|(name, part)| (*name, &part[..]))
            .collect();
        let answer = upload(&daemon, &parts).await;
        assert!(answer.status.as_u16() >= 400, "{}", answer.text());
        assert_eq!(fs::read(&kept).unwrap(), b"old");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    }
    let parts = [pair(&kept), pair(&fresh)].concat();
    let parts: Vec<_> = parts
        .iter()
        .map(|(name, part)| (*name, &part[..]))
        .collect();
    assert_eq!(upload(&daemon, &parts).await.status, 200);
    assert_eq!(
        (fs::read(&kept).unwrap(), fs::read(&fresh).unwrap()),
        (b"new".to_vec(), b"new".to_vec())
    );
}
