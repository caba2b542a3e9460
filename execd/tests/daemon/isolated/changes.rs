//! Listing, applying and discarding the changes of a session.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

use serde_json::{Value, json};

use super::Isolated;

impl Isolated {
    /// Returns the changes as lines: kind of change, path below the working directory, type.
    async fn diff(&self, id: &str) -> Vec<String> {
        let answer = self
            .daemon
            .get(&format!("/v1/isolated/session/{id}/diff"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let diff = answer.json();
        assert_eq!(diff["truncated"], json!(false));
        let work = format!("{}/", self.work().display());
        let line = |change: &Value| {
            let path = change["path"].as_str().unwrap().replacen(&work, "", 1);
            format!(
                "{} {path} {}",
                change["change"].as_str().unwrap(),
                change["type"].as_str().unwrap_or("-")
            )
        };
        diff["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(line)
            .collect()
    }

    async fn settle(&self, id: &str, what: &str) -> u64 {
        let answer = self
            .daemon
            .post(&format!("/v1/isolated/session/{id}/{what}"), json!({}))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()["changes"].as_u64().unwrap()
    }
}

/// Creates a tree of files to change.
fn tree(work: &Path) {
    for directory in ["gone/deep", "replaced/deep", "kept", "turned"] {
        fs::create_dir_all(work.join(directory)).unwrap();
        fs::write(work.join(directory).join("f"), directory).unwrap();
    }
    fs::write(work.join("file"), "old").unwrap();
    fs::write(work.join("mode"), "mode").unwrap();
    fs::set_permissions(work.join("mode"), fs::Permissions::from_mode(0o644)).unwrap();
    symlink("file", work.join("link")).unwrap();
}

const CHANGE: &str = "rm -r gone; rm -r replaced; mkdir replaced; echo r > replaced/new; echo k >> kept/f; \
    rm -r turned; echo t > turned; echo new > file; chmod 600 mode; ln -sfn kept link; mkdir -p added/deep; \
    echo a > added/deep/f; mkfifo pipe";

#[tokio::test]
async fn changes_are_listed_and_applied() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let work = isolated.work();
    tree(&work);
    let before = fs::metadata(&work).unwrap();
    let id = isolated.session(json!({ "uid": 0 })).await;
    assert!(isolated.diff(&id).await.is_empty());
    isolated.output_of(&id, "A=state; cd kept").await;
    isolated
        .output_of(
            &id,
            &format!("cd ..; {CHANGE}; touch -d 2001-02-03 file; cd kept"),
        )
        .await;
    let changes = isolated.diff(&id).await;
    let want = [
        "added added directory",
        "added added/deep directory",
        "added added/deep/f file",
        "modified file file",
        "deleted gone -",
        "modified kept/f file",
        "modified link symlink",
        "modified mode file",
        "added pipe other",
        "deleted replaced/deep -",
        "added replaced/new file",
        "modified turned file",
    ];
    assert_eq!(changes, want);
    assert_eq!(fs::read_to_string(work.join("file")).unwrap(), "old");
    assert_eq!(isolated.settle(&id, "commit").await, 12);
    let read = |name: &str| fs::read_to_string(work.join(name)).unwrap();
    assert_eq!(
        [read("file"), read("turned"), read("replaced/new")],
        ["new\n", "t\n", "r\n"]
    );
    assert_eq!([read("kept/f"), read("added/deep/f")], ["keptk\n", "a\n"]);
    assert!(!work.join("gone").exists() && !work.join("replaced/deep").exists());
    assert_eq!(
        fs::metadata(work.join("mode")).unwrap().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::metadata(work.join("file")).unwrap().mtime(),
        981_158_400
    );
    assert_eq!(fs::read_link(work.join("link")).unwrap(), Path::new("kept"));
    let after = fs::metadata(&work).unwrap();
    assert_eq!((after.mode(), after.uid()), (before.mode(), before.uid()));
    // The session keeps its state and has no changes now.
    assert_eq!(
        isolated.output_of(&id, "echo $A; pwd; cat ../file").await,
        format!("state|{}|new", work.join("kept").display())
    );
    assert!(isolated.diff(&id).await.is_empty());
    assert_eq!(isolated.settle(&id, "commit").await, 0);
    isolated.output_of(&id, "echo second > ../file").await;
    assert_eq!(isolated.diff(&id).await, ["modified file file"]);
}

#[tokio::test]
async fn what_is_nested_too_deeply_is_neither_listed_nor_applied() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({ "uid": 0 })).await;
    let code = "for i in $(seq 300); do mkdir d; cd d; done; echo x > file; cd /tmp";
    isolated.output_of(&id, code).await;
    let path = format!("/v1/isolated/session/{id}");
    let listed = isolated.daemon.get(&format!("{path}/diff")).await;
    let commit = format!("{path}/commit");
    let applied = isolated.daemon.post(&commit, json!({})).await;
    for answer in [listed, applied] {
        assert_eq!(answer.status, 500, "{}", answer.text());
        assert!(answer.text().contains("200 levels"), "{}", answer.text());
    }
    assert!(!isolated.work().join("d").exists());
    isolated.delete(&id).await;
    assert_eq!(isolated.daemon.get("/ping").await.status, 200);
}

/// The trees are mounted again for a commit, long after their paths were checked.
#[tokio::test]
async fn a_bind_that_became_a_link_is_not_followed() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let place = isolated.place.path();
    let (bound, outside) = (place.join("allowed/data"), place.join("outside"));
    for directory in [&bound, &outside] {
        fs::create_dir_all(directory).unwrap();
    }
    let more = json!({ "binds": [{ "source": bound, "dest": "/run/data" }] });
    let id = isolated.session(more).await;
    isolated
        .output_of(&id, "echo x > file; echo x > /run/data/x")
        .await;
    assert!(bound.join("x").exists());
    fs::rename(&bound, place.join("allowed/moved")).unwrap();
    symlink(&outside, &bound).unwrap();
    let path = format!("/v1/isolated/session/{id}");
    let _refused = isolated
        .daemon
        .post(&format!("{path}/commit"), json!({}))
        .await;
    let body = json!({ "code": "echo y > /run/data/y" });
    let _refused = isolated.daemon.post(&format!("{path}/run"), body).await;
    assert!(!outside.join("y").exists());
}

#[tokio::test]
async fn changes_are_discarded() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let work = isolated.work();
    tree(&work);
    let id = isolated.session(json!({ "uid": 4242, "gid": 4242 })).await;
    isolated
        .output_of(&id, "A=state; echo new > new; rm file")
        .await;
    assert_eq!(
        isolated.diff(&id).await,
        ["deleted file -", "added new file"]
    );
    assert_eq!(isolated.settle(&id, "discard").await, 2);
    assert_eq!(
        isolated
            .output_of(
                &id,
                "echo $A; cat file; echo; ls new 2>/dev/null; echo > mine"
            )
            .await,
        "state|old"
    );
    assert!(!work.join("mine").exists() && work.join("file").exists());
}

#[tokio::test]
async fn a_commit_does_not_follow_links() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let (work, outside) = (isolated.work(), isolated.place.path().join("outside"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(work.join("dir")).unwrap();
    fs::write(work.join("dir/f"), "").unwrap();
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "echo x > dir/f").await;
    // A process outside the session replaces the directory with a link.
    fs::remove_dir_all(work.join("dir")).unwrap();
    symlink(&outside, work.join("dir")).unwrap();
    isolated.settle(&id, "commit").await;
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    assert_eq!(fs::read_to_string(work.join("dir/f")).unwrap(), "x\n");
}

#[tokio::test]
async fn changes_without_an_upper_or_above_the_limit_are_refused() {
    let Some(isolated) = Isolated::with("diff_max_bytes = 10", |_| {}).await else {
        return;
    };
    let body = json!({ "workspace": { "path": isolated.work(), "mode": "rw" } });
    let id = isolated.created(&body).await;
    for (path, status) in [("diff", 400), ("commit", 400), ("discard", 400)] {
        let path = format!("/v1/isolated/session/{id}/{path}");
        let answer = match status == 400 && path.ends_with("diff") {
            true => isolated.daemon.get(&path).await,
            false => isolated.daemon.post(&path, json!({})).await,
        };
        assert_eq!(answer.status, status);
        assert!(answer.text().contains("no upper directory"));
    }
    let id = isolated.session(json!({})).await;
    isolated
        .output_of(&id, "echo 'more than ten bytes' > f")
        .await;
    let answer = isolated
        .daemon
        .post(&format!("/v1/isolated/session/{id}/commit"), json!({}))
        .await;
    assert!(
        answer.status == 400 && answer.text().contains("diff_max_bytes"),
        "{}",
        answer.text()
    );
    let body = json!({ "code": "sleep 1000", "background": true });
    let run = isolated
        .daemon
        .post(&format!("/v1/isolated/session/{id}/run"), body)
        .await;
    assert_eq!(run.status, 202);
    let answer = isolated
        .daemon
        .post(&format!("/v1/isolated/session/{id}/discard"), json!({}))
        .await;
    assert_eq!(answer.status, 409, "{}", answer.text());
}
