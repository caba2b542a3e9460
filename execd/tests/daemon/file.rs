//! Files and directories over HTTP (contract: execd §10, A3).

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
};

use http::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{Answer, Daemon, daemon, eventually};

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
async fn lines_of_a_file_are_read_by_number() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f");
    fs::write(&file, "a\nb\r\nc\n").unwrap();
    let path = format!("/files/download?path={}", file.display());
    let lines = daemon.get(&format!("{path}&offset=2&limit=2")).await;
    assert_eq!((lines.status.as_u16(), lines.text()), (200, "b\nc"));
    assert_eq!(daemon.get(&format!("{path}&offset=9")).await.text(), "");
    for bad in ["offset=0", "limit=x"] {
        assert_eq!(
            daemon.get(&format!("{path}&{bad}")).await.code(),
            "INVALID_REQUEST_BODY"
        );
    }
    let both = daemon
        .get_with(&format!("{path}&limit=1"), &[("range", "bytes=0-1")])
        .await;
    assert_eq!(both.status, 400);
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
    assert_eq!(owner("a").0, 0, "only the leaf is given away");
    let again = json!({ "owner": "root", "mode": 777 });
    assert_eq!(directory(&again).await.status, 200);
    assert_eq!(owner("a/b"), (65534, 65534, 0o640), "it was there");
}

#[tokio::test]
async fn a_range_of_an_empty_file_is_refused() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("empty");
    fs::write(&file, "").unwrap();
    let path = format!("/files/download?path={}", file.display());
    let answer = daemon.get_with(&path, &[("range", "bytes=0-9")]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, ""));
    let date = answer.headers["last-modified"].to_str().unwrap().to_owned();
    let tag = answer.headers["etag"].to_str().unwrap().to_owned();
    for (name, value, status) in [
        ("if-modified-since", date.as_str(), 304),
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"another\"", 412),
    ] {
        let answer = daemon.get_with(&path, &[(name, value)]).await;
        assert_eq!(answer.status, status, "{name}: {value}");
    }
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
    let many = vec![("other", b"x".as_slice()); 1001];
    let answer = upload(&daemon, &many).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "INVALID_FILE")
    );
    assert!(answer.text().contains("1000 parts"), "{}", answer.text());
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
    assert_eq!(
        crate::support::texts(&events, osb_protocol::execd::event::EventKind::Stdout),
        ["right"]
    );
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

#[tokio::test]
async fn files_of_the_kernel_are_sent_whole_without_a_length() {
    let daemon = daemon();
    // Their reported sizes are 0 bytes and one page.
    let of_a_page = [
        "/sys/kernel/uevent_seqnum",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/online",
    ];
    let of_a_page = of_a_page.iter().find(|path| Path::new(path).exists());
    for path in ["/proc/version", of_a_page.expect("sysfs is mounted")] {
        let want = fs::read_to_string(path).unwrap();
        assert_ne!(
            fs::metadata(path).unwrap().len(),
            want.len() as u64,
            "{path}"
        );
        let whole = format!("/files/download?path={path}");
        for headers in [
            [].as_slice(),
            &[("range", "bytes=0-1")],
            &[("range", "bytes=2-")],
        ] {
            let answer = daemon.get_with(&whole, headers).await;
            assert_eq!(
                (answer.status.as_u16(), answer.text()),
                (200, &*want),
                "{path}"
            );
            for absent in ["content-length", "etag", "accept-ranges"] {
                assert!(!answer.headers.contains_key(absent), "{absent} of {path}");
            }
        }
        let lines = daemon.get(&format!("{whole}&limit=1")).await;
        assert_eq!(lines.text(), want.lines().next().unwrap());
    }
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
