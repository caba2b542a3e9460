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

/// The place of an overlay is what its path led to when the session was created.
#[tokio::test]
async fn links_of_overlay_paths_are_resolved_once() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    // A session may have a `/tmp` of its own, where the links are its own as well.
    for profile in ["strict", "balanced"] {
        let place = isolated.place.path().canonicalize().unwrap().join(profile);
        fs::create_dir(&place).unwrap();
        resolved_once(&isolated, &place, profile).await;
    }
}

async fn resolved_once(isolated: &Isolated, place: &Path, profile: &str) {
    let at = |name: &str| place.join(name);
    for name in ["over", "plain", "outside"] {
        fs::create_dir(at(name)).unwrap();
        fs::write(at(name).join("f"), name).unwrap();
    }
    let lead = |to: [&str; 2]| {
        for (link, to) in ["link", "rw"].into_iter().zip(to) {
            let _none_yet = fs::remove_file(at(link));
            symlink(to, at(link)).unwrap();
        }
    };
    lead(["over", "plain"]);
    let body = json!({ "profile": profile, "overlays": [
        { "path": at("link") },
        { "path": at("rw"), "mode": "rw" },
    ]});
    let id = isolated.created(&body).await;
    let path = format!("/v1/isolated/session/{id}");
    let code = format!(
        "pwd; cat f; echo; echo 1 > new; echo 1 > {}/one",
        at("rw").display()
    );
    let output = isolated.output_of(&id, &code).await;
    assert_eq!(output, format!("{}|over", at("over").display()));
    let list = format!("{path}/directories/list?path={}", at("link").display());
    let list = async || {
        let listed = isolated.daemon.get(&list).await.json();
        let entries = listed.as_array().unwrap().iter();
        let path = |entry: &Value| entry["path"].as_str().unwrap().to_owned();
        entries.map(path).collect::<Vec<_>>()
    };
    let shown_as = |name: &str| at("over").join(name).display().to_string();
    assert_eq!(list().await, ["f", "new"].map(shown_as));

    lead(["outside", "outside"]);
    let shown = isolated.daemon.get(&format!("{path}/diff")).await.json();
    let changed = shown["changes"][0]["path"].as_str().unwrap();
    assert_eq!(changed, at("link/new").to_str().unwrap());
    assert_eq!(isolated.settle(&id, "commit").await, 1);
    assert_eq!(fs::read_to_string(at("over/new")).unwrap(), "1\n");
    // The commit has mounted everything again.
    let code = format!(
        "pwd; cat f; echo; echo 2 > later; echo 2 > {}/two; cat {}/one",
        at("plain").display(),
        at("plain").display()
    );
    let output = isolated.output_of(&id, &code).await;
    assert_eq!(output, format!("{}|over|1", at("over").display()));
    assert!(at("plain/one").exists() && at("plain/two").exists());
    assert_eq!(list().await, ["f", "later", "new"].map(shown_as));
    assert_eq!(isolated.settle(&id, "commit").await, 1);
    assert!(at("over/later").exists());
    assert_eq!(fs::read_dir(at("outside")).unwrap().count(), 1);
}

#[tokio::test]
async fn an_overlay_that_became_a_link_is_not_followed() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let place = isolated.place.path();
    let outside = place.join("outside");
    fs::create_dir(&outside).unwrap();
    for what in ["commit", "discard"] {
        let work = place.join(what).join("deep");
        fs::create_dir_all(&work).unwrap();
        fs::create_dir_all(outside.join("deep")).unwrap();
        let body = json!({ "overlays": [{ "path": work }] });
        let id = isolated.created(&body).await;
        isolated.output_of(&id, "echo x > file").await;
        // A directory above the overlay's counts as well.
        fs::rename(place.join(what), place.join("moved")).unwrap();
        symlink(&outside, place.join(what)).unwrap();
        let path = format!("/v1/isolated/session/{id}");
        let done = isolated
            .daemon
            .post(&format!("{path}/{what}"), json!({}))
            .await;
        assert!(done.status.as_u16() >= 400, "{}", done.text());
        let body = json!({ "code": "echo y > y" });
        let _refused = isolated.daemon.post(&format!("{path}/run"), body).await;
        assert_eq!(fs::read_dir(outside.join("deep")).unwrap().count(), 0);
        fs::remove_dir_all(place.join("moved")).unwrap();
    }
}

/// Paths that no session may cover are not reached through links either.
#[tokio::test]
async fn overlays_do_not_lead_to_places_of_execd_or_the_session() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let at = |name: &str| isolated.place.path().join(name);
    symlink("/proc", at("proc")).unwrap();
    symlink("uppers", at("own")).unwrap();
    fs::create_dir_all(at("uppers")).unwrap();
    for (link, mode, why) in [
        ("proc", "rw", "belongs to the session itself"),
        ("own", "rw", "belongs to execd"),
        ("own", "overlay", "belongs to execd"),
    ] {
        let body = json!({ "overlays": [{ "path": at(link), "mode": mode }] });
        let answer = isolated.daemon.post("/v1/isolated/session", body).await;
        assert_eq!(answer.status, 400, "{link}: {}", answer.text());
        assert!(answer.text().contains(why), "{}", answer.text());
    }
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
