//! The server over a store that is full, locked, replaced or in use by another server.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use osb_runtime::{
    Expiry, RuntimeEvent,
    sim::{Options, SimRuntime},
};
use osb_store::Location;
use osb_testkit::{Database, TestServer, WebhookReceiver, running_at, scaled, soon, wait_until};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use sqlx::{
    ConnectOptions, Connection, PgConnection, SqliteConnection, sqlite::SqliteConnectOptions,
};
use tokio::time::{Instant, timeout};

/// Ten times what a refused write may take.
const BOUND: Duration = Duration::from_secs(40);

struct Answer {
    status: u16,
    body: Value,
    retry_after: bool,
}

impl Answer {
    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }

    fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }

    /// Checks that the write was refused as unavailable, with this word in the reason.
    fn is_refused_for(&self, reason: &str) {
        let seen = (self.status, self.code(), self.retry_after);
        let want = (503, "GENERAL::STORE_UNAVAILABLE", true);
        assert_eq!(seen, want, "{}", self.body);
        assert!(self.message().contains(reason), "{}", self.body);
    }
}

async fn ask(server: &TestServer, method: Method, path: &str, body: Option<Value>) -> Answer {
    let mut request = server.request(method, path);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = timeout(scaled(BOUND), request.send())
        .await
        .unwrap()
        .unwrap();
    let (status, retry_after) = (
        response.status(),
        response.headers().contains_key("retry-after"),
    );
    let text = response.text().await.unwrap();
    Answer {
        status: status.as_u16(),
        body: serde_json::from_str(&text).unwrap_or(Value::Null),
        retry_after,
    }
}

async fn create(server: &TestServer, timeout: u64) -> String {
    let mut body = TestServer::good_create();
    body["timeout"] = json!(timeout);
    let made = ask(server, Method::POST, "/v1/sandboxes", Some(body)).await;
    assert_eq!(made.status, 202, "{}", made.body);
    made.body["id"].as_str().unwrap().to_owned()
}

async fn get(server: &TestServer, id: &str) -> Answer {
    ask(server, Method::GET, &format!("/v1/sandboxes/{id}"), None).await
}

async fn delete(server: &TestServer, id: &str) -> Answer {
    ask(server, Method::DELETE, &format!("/v1/sandboxes/{id}"), None).await
}

async fn renew(server: &TestServer, id: &str, at: Value) -> Answer {
    let path = format!("/v1/sandboxes/{id}/renew-expiration");
    ask(
        server,
        Method::POST,
        &path,
        Some(json!({ "expiresAt": at })),
    )
    .await
}

async fn ready(server: &TestServer) -> Answer {
    ask(server, Method::GET, "/ready", None).await
}

async fn until_ready(server: &TestServer) {
    let look = || ready(server);
    let look = async || {
        let seen = look().await;
        (seen.status, seen.body)
    };
    wait_until("readiness", look, |seen| seen.0 == 200).await;
}

fn in_seconds(seconds: f64) -> Value {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    json!(now.as_secs_f64() + seconds)
}

async fn started(folder: &Path) -> (TestServer, Arc<SimRuntime>) {
    let sim = Arc::new(SimRuntime::new());
    let server = TestServer::over(Arc::clone(&sim) as _, folder, "")
        .await
        .unwrap();
    until_ready(&server).await;
    (server, sim)
}

/// A small file system, unmounted when dropped. Prints why and returns `None` where tests may not
/// mount.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(folder: &Path) -> Option<Self> {
        let path = folder.join("disk");
        std::fs::create_dir(&path).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "none"]);
        let mounted = mount.arg(&path).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            return Some(Self(path));
        }
        eprintln!("SKIPPED: a full disk is not tested, mounting a tmpfs needs root");
        None
    }

    /// Fills the file system to the last byte with the returned file.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("ballast");
        let mut ballast = std::fs::File::create(&path).unwrap();
        for size in [4096, 1] {
            while std::io::Write::write_all(&mut ballast, &vec![0; size]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(&self.0).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "{:?}",
            self.0
        );
    }
}

#[tokio::test]
async fn sqlite_a_full_disk_can_be_emptied_by_deleting() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let (server, sim) = started(&disk.0).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(create(&server, 600).await);
    }
    let ballast = disk.fill();
    // The write-ahead log may still have room for some writes; then the store is full.
    let full = async || {
        let renewed = renew(&server, &ids[0], in_seconds(7200.0)).await;
        (renewed.status, renewed.body)
    };
    wait_until("a refused renewal", full, |seen| seen.0 != 200).await;
    let refused = renew(&server, &ids[0], in_seconds(7200.0)).await;
    refused.is_refused_for("no space");
    let message = async || ready(&server).await.body["message"].to_string();
    wait_until("the reason", message, |message| {
        message.contains("no space")
    })
    .await;

    for id in &ids {
        assert_eq!(get(&server, id).await.status, 200, "reads go on");
        assert_eq!(delete(&server, id).await.status, 204);
        let seen = get(&server, id).await;
        assert_eq!(seen.status, 404, "acknowledged only when gone");
    }
    assert!(sim.sandboxes().is_empty());
    let list = ask(&server, Method::GET, "/v1/sandboxes", None).await;
    assert_eq!((list.status, &list.body["items"]), (200, &json!([])));
    let history = server.service.recent_history(0, 10).await.unwrap();
    assert_eq!(history.len(), 5, "what cannot be written yet is known");

    std::fs::remove_file(ballast).unwrap();
    until_ready(&server).await;
    server.stop().await;
    drop(server);
    let location = Location::Sqlite(disk.0.join("store.db"));
    let store = osb_store::open(&location).await.unwrap();
    let written = store.recent_history(None, 0, 10).await.unwrap();
    assert_eq!(written.len(), 5, "it was written once there was space");
    store.close().await;
}

#[tokio::test]
async fn sqlite_events_on_a_full_disk_are_sent_once_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(folder.path()) else {
        return;
    };
    let receiver = WebhookReceiver::start().await.unwrap();
    let more = format!(
        "[webhooks_delivery]\nallow_private = true\n[[webhooks]]\nname = 'ops'\nurl = '{}'\n\
         secret = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\n",
        receiver.url()
    );
    let options = Options {
        powers: true,
        ..Options::default()
    };
    let sim = Arc::new(SimRuntime::with_options(options));
    let server = TestServer::over(sim, &disk.0, &more).await.unwrap();
    until_ready(&server).await;
    let id = create(&server, 600).await;
    let received = async || receiver.kinds();
    let settled = async || {
        let list = ask(&server, Method::GET, "/v1/webhooks", None).await;
        (
            receiver.kinds().len(),
            list.body["items"][0]["pending"].clone(),
        )
    };
    wait_until("both are delivered", settled, |seen| *seen == (2, json!(0))).await;
    let ballast = disk.fill();
    let full = async || renew(&server, &id, in_seconds(7200.0)).await.status;
    wait_until("a refused renewal", full, |status| *status == 503).await;
    for change in ["pause", "resume"] {
        let path = format!("/v1/sandboxes/{id}/{change}");
        let done = ask(&server, Method::POST, &path, Some(json!({}))).await;
        assert_eq!(done.status, 202, "{}", done.body);
    }
    assert_eq!(delete(&server, &id).await.status, 204);
    let sent = receiver.kinds();
    let is_stored = |kind: &String| kind != "sandbox.paused" && kind != "sandbox.deleted";
    assert!(sent.iter().all(is_stored), "{sent:?}");
    std::fs::remove_file(ballast).unwrap();
    let is_over = |kinds: &Vec<String>| kinds.iter().any(|it| it == "sandbox.deleted");
    wait_until("the events", received, is_over).await;
    let mut kinds = receiver.kinds();
    // Renewals before the disk was full.
    kinds.retain(|kind| kind != "sandbox.renewed");
    let expected = ["created", "ready", "paused", "resumed", "deleted"];
    assert_eq!(kinds, expected.map(|kind| format!("sandbox.{kind}")));
    server.stop().await;
}

/// A connection that keeps servers from writing, as a backup or an editor of databases does.
enum Lock {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl Lock {
    async fn free(self) {
        match self {
            Self::Sqlite(connection) => connection.close().await.unwrap(),
            Self::Postgres(connection) => connection.close().await.unwrap(),
        }
    }
}

/// Holds the write lock of a store.
async fn lock(folder: &Path) -> Lock {
    if let Some(database) = Database::of(folder).unwrap() {
        let mut other = database.connect().await.unwrap();
        let lock = sqlx::raw_sql("BEGIN; LOCK TABLE holder IN EXCLUSIVE MODE");
        lock.execute(&mut other).await.unwrap();
        return Lock::Postgres(other);
    }
    let options = SqliteConnectOptions::new().filename(folder.join("store.db"));
    let mut other = options.connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    Lock::Sqlite(other)
}

#[tokio::test]
async fn a_locked_store_refuses_writes_soon_and_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = started(folder.path()).await;
    let (kept, deleted, due) = (
        create(&server, 600).await,
        create(&server, 600).await,
        create(&server, 600).await,
    );
    assert_eq!(
        renew(&server, &due, json!(soon().to_string())).await.status,
        200
    );
    let other = lock(folder.path()).await;
    let begun = Instant::now();
    renew(&server, &kept, in_seconds(7200.0))
        .await
        .is_refused_for("locked");
    // Ten concurrent writes do not wait for each other.
    let at_once = (0..10).map(|_| renew(&server, &kept, in_seconds(7200.0)));
    for refused in futures::future::join_all(at_once).await {
        refused.is_refused_for("locked");
    }
    assert!(
        begun.elapsed() < scaled(BOUND),
        "took {:?}",
        begun.elapsed()
    );
    ready(&server).await.is_refused_for("locked");
    assert_eq!(get(&server, &kept).await.status, 200, "reads go on");
    assert_eq!(delete(&server, &deleted).await.status, 204);
    assert_eq!(get(&server, &deleted).await.status, 404);
    // Sandboxes expire even while the store refuses writes.
    wait_until(
        "the expiry",
        async || sim.sandboxes(),
        |left| left.len() == 1,
    )
    .await;
    other.free().await;
    until_ready(&server).await;
    assert_eq!(renew(&server, &kept, in_seconds(7200.0)).await.status, 200);
    let history = async || {
        let entry = server.service.history(&due.as_str().into()).await.unwrap();
        entry.map(|entry| entry.reason)
    };
    wait_until("the history", history, |reason| {
        reason.as_deref() == Some("EXPIRED")
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn a_sandbox_that_comes_back_before_its_end_is_stored_keeps_its_renewal() {
    const LATER: &str = "2099-01-01T00:00:00Z";
    let at_home = |id: &str| {
        let mut sandbox = running_at(id, [127, 0, 0, 1].into(), None);
        let created = sandbox.origin.created_at;
        sandbox.origin.expiry = Expiry::At(created.plus_seconds(600).unwrap());
        sandbox
    };
    let folder = tempfile::tempdir().unwrap();
    let over = async |sim: &Arc<SimRuntime>| {
        let server = TestServer::over(Arc::clone(sim) as _, folder.path(), "");
        let server = server.await.unwrap();
        until_ready(&server).await;
        server
    };
    let whole = Arc::new(SimRuntime::with([at_home("a"), at_home("b")]));
    let server = over(&whole).await;
    assert_eq!(renew(&server, "a", json!(LATER)).await.status, 200);
    server.stop().await;
    drop(server);

    let partial = Arc::new(SimRuntime::new());
    let server = over(&partial).await;
    let other = lock(folder.path()).await;
    let all = vec![at_home("b")];
    let at = all[0].origin.created_at;
    partial.emit(RuntimeEvent::Synced { all, at }).await;
    let id = "a".into();
    let ended = async || server.service.history(&id).await.unwrap();
    let entry = wait_until("its end", ended, Option::is_some).await.unwrap();
    assert_eq!(entry.reason, "GONE_AT_START");
    let back = RuntimeEvent::Changed(Box::new(at_home("a")));
    partial.emit(back).await;
    let look = async || {
        let seen = get(&server, "a").await;
        (seen.status, seen.body)
    };
    let (_, seen) = wait_until("the sandbox", look, |seen| seen.0 == 200).await;
    assert_eq!(seen["expiresAt"], LATER, "{seen}");
    assert_eq!(ended().await, None, "it has not ended");
    other.free().await;
    until_ready(&server).await;
    server.stop().await;
    drop(server);

    let server = over(&whole).await;
    assert_eq!(get(&server, "a").await.body["expiresAt"], LATER);
    server.stop().await;
}

/// Runs a statement of another program on a store.
async fn execute(folder: &Path, sqlite: &'static str, postgres: &'static str) {
    if let Some(database) = Database::of(folder).unwrap() {
        let mut other = database.connect().await.unwrap();
        sqlx::raw_sql(postgres).execute(&mut other).await.unwrap();
        return;
    }
    let options = SqliteConnectOptions::new().filename(folder.join("store.db"));
    let mut other = options.connect().await.unwrap();
    sqlx::raw_sql(sqlite).execute(&mut other).await.unwrap();
}

#[tokio::test]
async fn an_entry_that_the_store_never_takes_delays_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = started(folder.path()).await;
    let refused = create(&server, 600).await;
    let others = [create(&server, 600).await, create(&server, 600).await];
    // Only the first one can come to the history as deleted while its image is marked.
    execute(
        folder.path(),
        "CREATE TABLE refused (id TEXT);
         CREATE TRIGGER refuse BEFORE INSERT ON sandbox_history
           WHEN new.id IN (SELECT id FROM refused)
         BEGIN SELECT RAISE(ABORT, 'refused'); END",
        "CREATE TABLE refused (id TEXT);
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS '
           BEGIN
             IF new.id IN (SELECT id FROM refused) THEN RAISE EXCEPTION ''refused''; END IF;
             RETURN new;
           END';
         CREATE TRIGGER refuse BEFORE INSERT ON sandbox_history
           FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .await;
    let mark = format!("INSERT INTO refused VALUES ('{refused}')").leak();
    execute(folder.path(), mark, mark).await;
    for id in [&refused, &others[0], &others[1]] {
        let id = id.as_str().into();
        server.service.delete(&id, true).await.unwrap();
        let known = server.service.history(&id).await.unwrap();
        assert!(known.is_some(), "what waits is known");
    }
    assert!(sim.sandboxes().is_empty());
    let stored = async || {
        let mut stored = stored_history(folder.path()).await;
        stored.sort();
        stored
    };
    let mut want = others.to_vec();
    want.sort();
    wait_until("the others", stored, |stored| *stored == want).await;
    // Given up at last: the log has all of it.
    let waits = async || {
        let known = server.service.history(&refused.as_str().into()).await;
        known.unwrap().is_some()
    };
    wait_until("the end of the attempts", waits, |waits| !waits).await;
    server.stop().await;
}

/// The ids in the history as another program sees them.
async fn stored_history(folder: &Path) -> Vec<String> {
    const QUERY: &str = "SELECT id FROM sandbox_history";
    if let Some(database) = Database::of(folder).unwrap() {
        let mut other = database.connect().await.unwrap();
        let query = sqlx::query_scalar(QUERY);
        return query.fetch_all(&mut other).await.unwrap();
    }
    let options = SqliteConnectOptions::new().filename(folder.join("store.db"));
    let mut other = options.connect().await.unwrap();
    let query = sqlx::query_scalar(QUERY);
    query.fetch_all(&mut other).await.unwrap()
}

#[tokio::test]
async fn sqlite_writes_to_a_deleted_database_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (server, sim) = started(folder.path()).await;
    let (kept, deleted) = (create(&server, 600).await, create(&server, 600).await);
    let path = folder.path().join("store.db");
    let aside = folder.path().join("aside.db");
    for replaced in [false, true] {
        std::fs::rename(&path, &aside).unwrap();
        if replaced {
            std::fs::write(&path, []).unwrap();
        }
        renew(&server, &kept, in_seconds(7200.0))
            .await
            .is_refused_for("replaced");
        let seen = async || {
            let seen = ready(&server).await;
            (seen.status, seen.body)
        };
        wait_until("the reason", seen, |(status, body)| {
            *status == 503 && body["message"].to_string().contains("replaced")
        })
        .await;
        std::fs::rename(&aside, &path).unwrap();
        until_ready(&server).await;
    }
    // The write-ahead log belongs to the database.
    let wal = folder.path().join("store.db-wal");
    std::fs::rename(&wal, &aside).unwrap();
    renew(&server, &kept, in_seconds(7200.0))
        .await
        .is_refused_for("replaced");
    assert_eq!(delete(&server, &deleted).await.status, 204);
    assert_eq!(sim.sandboxes().len(), 1);
    std::fs::rename(&aside, &wal).unwrap();
    assert_eq!(renew(&server, &kept, in_seconds(7200.0)).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn sqlite_a_store_has_one_server_under_any_path() {
    let folder = tempfile::tempdir().unwrap();
    let (server, _sim) = started(folder.path()).await;
    let path = folder.path().join("store.db");
    let links = folder.path().join("links");
    std::fs::create_dir(&links).unwrap();
    std::os::unix::fs::symlink(&path, links.join("symbolic.db")).unwrap();
    std::os::unix::fs::symlink(folder.path(), links.join("folder")).unwrap();
    std::fs::hard_link(&path, links.join("hard.db")).unwrap();
    for name in ["symbolic.db", "folder/store.db", "hard.db"] {
        let name = links.join(name);
        let second = osb_store::open(&Location::Sqlite(name.clone())).await;
        let error = second.unwrap_err();
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            error.to_string().contains(name.to_str().unwrap()),
            "{error}"
        );
        assert!(cause.contains("another server"), "{error}: {cause}");
    }
    let id = create(&server, 600).await;
    assert_eq!(renew(&server, &id, in_seconds(7200.0)).await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn sandboxes_of_another_instance_are_reported_not_touched() {
    let sim = Arc::new(SimRuntime::new());
    sim.set_foreign(3);
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "")
        .await
        .unwrap();
    let seen = async || ready(&server).await.body;
    let is_reported = |body: &Value| {
        let detail = body["detail"].as_str().unwrap_or_default();
        detail.starts_with("3 sandboxes") && body["status"] == "ready"
    };
    wait_until("the report", seen, is_reported).await;
    // The foreign sandboxes may be removed, or adopted.
    sim.set_foreign(0);
    server.service.reconcile().await;
    assert_eq!(ready(&server).await.body, json!({"status": "ready"}));
    let status = ask(&server, Method::GET, "/health", None).await;
    assert_eq!(status.status, StatusCode::OK.as_u16());
    server.stop().await;
}
