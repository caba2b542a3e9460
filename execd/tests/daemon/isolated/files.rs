//! Files of a session (contract: execd A5).

use std::{fs, os::unix::fs::symlink};

use http::Method;
use serde_json::{Value, json};

use super::Isolated;
use crate::support::{Answer, eventually};

/// Builds a form with one file, as the official SDK does.
fn form(metadata: &str, content: &[u8]) -> Vec<u8> {
    let part = |name: &str, content: &[u8]| {
        let head = format!(
            "--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=\"x\"\r\n\r\n"
        );
        [head.as_bytes(), content, b"\r\n"].concat()
    };
    [
        part("metadata", metadata.as_bytes()),
        part("file", content),
        b"--b--\r\n".to_vec(),
    ]
    .concat()
}

impl Isolated {
    async fn get(&self, id: &str, path: &str) -> Answer {
        self.daemon
            .get(&format!("/v1/isolated/session/{id}/{path}"))
            .await
    }

    async fn post(&self, id: &str, path: &str, body: Value) -> Answer {
        self.daemon
            .post(&format!("/v1/isolated/session/{id}/{path}"), body)
            .await
    }

    async fn upload(&self, id: &str, path: &str, content: &[u8]) -> Answer {
        let metadata =
            json!({ "path": path, "owner": null, "group": null, "mode": 644 }).to_string();
        let body = form(&metadata, content);
        let kind = ("content-type", "multipart/form-data; boundary=b");
        let path = format!("/v1/isolated/session/{id}/files/upload");
        Answer::of(self.daemon.send(Method::POST, &path, &[kind], body).await).await
    }
}

#[tokio::test]
async fn files_are_those_of_the_session_s_view() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    fs::write(isolated.work().join("lower"), "lower").unwrap();
    for body in [
        json!({ "uid": 4242, "gid": 4343 }),
        json!({ "uid": 4242, "gid": 4343, "overlays": [], "workspace": { "path": isolated.work(), "persist": false } }),
    ] {
        let id = isolated.session(body).await;
        let work = isolated.work();
        let at = |name: &str| work.join(name).to_str().unwrap().to_owned();
        let answer = isolated.upload(&id, &at("deep/up"), b"one two two").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(
            !work.join("deep").exists(),
            "the sandbox's own tree is not touched"
        );
        assert_eq!(
            isolated
                .output_of(&id, "cat deep/up; echo; stat -c '%u %g %a' deep/up")
                .await,
            "one two two|4242 4343 644"
        );
        isolated
            .output_of(&id, "echo inside > made; rm lower")
            .await;
        assert_eq!(
            isolated.get(&id, "files/download?path=made").await.text(),
            "inside\n"
        );
        assert_eq!(
            isolated.get(&id, "files/download?path=lower").await.status,
            404
        );
        let info = isolated
            .get(&id, &format!("files/info?path={}", at("made")))
            .await
            .json();
        let info = &info[at("made")];
        assert_eq!(
            (&info["path"], &info["owner"], &info["type"]),
            (&json!(at("made")), &json!("4242"), &json!("file"))
        );
        for member in ["size", "modified_at", "created_at", "group", "mode"] {
            assert!(!info[member].is_null(), "{member}");
        }
        let found = isolated
            .get(&id, "files/search?path=.&pattern=up*")
            .await
            .json();
        assert_eq!(found[0]["path"], json!(at("deep/up")));
        let listed = isolated
            .get(&id, &format!("directories/list?path={}", work.display()))
            .await
            .json();
        let listed: Vec<_> = listed
            .as_array()
            .unwrap()
            .iter()
            .map(|info| info["path"].clone())
            .collect();
        assert_eq!(listed, [json!(at("deep")), json!(at("made"))]);
        // Counts are returned even when not requested.
        let body = json!({ at("deep/up"): { "old": "two", "new": "2" } });
        let answer = isolated.post(&id, "files/replace", body).await;
        assert_eq!(
            answer.json(),
            json!({ at("deep/up"): { "replacedCount": 2 } })
        );
        let moved = isolated
            .post(&id, "files/mv", json!([{ "src": "made", "dest": "moved" }]))
            .await;
        assert_eq!(moved.status, 200, "{}", moved.text());
        let mode = json!({ "moved": { "mode": 600 } });
        assert_eq!(
            isolated.post(&id, "files/permissions", mode).await.status,
            200
        );
        let made = isolated
            .post(&id, "directories", json!({ "new/er": { "mode": 0 } }))
            .await;
        assert_eq!(made.status, 200, "{}", made.text());
        assert_eq!(
            isolated
                .output_of(&id, "stat -c '%n %a' moved new/er")
                .await,
            "moved 600|new/er 755"
        );
        let gone = format!("/v1/isolated/session/{id}/files?path=moved&path=absent");
        assert_eq!(isolated.daemon.delete(&gone).await.status, 200);
        let gone = format!("/v1/isolated/session/{id}/directories?path=new");
        assert_eq!(isolated.daemon.delete(&gone).await.status, 200);
        assert_eq!(isolated.output_of(&id, "ls").await, "deep");
        let part = [("range", "bytes=4-6")];
        let path = format!("/v1/isolated/session/{id}/files/download?path=deep/up");
        let answer = isolated.daemon.get_with(&path, &part).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (206, "2 2"));
        assert_eq!(isolated.get(&id, "files/search").await.status, 400);
        assert_eq!(isolated.get(&id, "files/nonsense").await.status, 404);
    }
}

#[tokio::test]
async fn paths_outside_are_refused_and_read_only_is_reported() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let root = isolated.place.path();
    for name in ["one", "two", "three"] {
        fs::create_dir(root.join(name)).unwrap();
        fs::write(root.join(name).join("f"), name).unwrap();
    }
    symlink("/etc/passwd", root.join("one/out")).unwrap();
    let body = json!({ "overlays": [
        { "path": root.join("one") },
        { "path": root.join("two"), "mode": "rw" },
        { "path": root.join("three"), "mode": "ro" },
    ]});
    let id = isolated.created(&body).await;
    let at = |name: &str| root.join(name).to_str().unwrap().to_owned();
    for path in ["/etc/passwd", "../two/../../x", "out"] {
        let answer = isolated
            .get(&id, &format!("files/download?path={path}"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "INVALID_REQUEST_BODY"),
            "{path}"
        );
        assert!(answer.text().contains("outside all overlay mounts"));
    }
    assert_eq!(isolated.upload(&id, "out", b"x").await.status, 400);
    assert_eq!(
        isolated
            .get(&id, &format!("files/download?path={}", at("three/f")))
            .await
            .text(),
        "three"
    );
    let answer = isolated.upload(&id, &at("three/f"), b"x").await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(
        answer.json()["message"]
            .as_str()
            .unwrap()
            .contains("workspace is read-only")
    );
    let across = json!([{ "src": "f", "dest": at("two/g") }]);
    assert_eq!(isolated.post(&id, "files/mv", across).await.status, 400);
    assert_eq!(isolated.upload(&id, &at("two/g"), b"x").await.status, 200);
    assert_eq!(fs::read(root.join("two/g")).unwrap(), b"x");
}

#[tokio::test]
async fn a_disconnect_ends_blocked_work() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    // Larger than all buffers in between.
    isolated
        .output_of(&id, "head -c 67108864 /dev/zero > big")
        .await;
    let path = format!("/v1/isolated/session/{id}/files/download?path=big");
    let response = isolated.daemon.send(Method::GET, &path, &[], "").await;
    assert_eq!(response.status(), 200);
    drop(response);
    eventually("the worker is gone", async || {
        (isolated
            .output_of(&id, "ps -e -o args= | grep -c '[i]solated-init'")
            .await
            == "2")
            .then_some(())
    })
    .await;
}
