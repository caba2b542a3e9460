//! Isolated sessions (contract: execd A4 to A8).

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::PathBuf,
    process::Command,
};

use http::Method;
use osb_protocol::execd::event::{Event, EventKind};
use serde_json::{Value, json};

use crate::support::{Answer, Daemon, alive, events, eventually, texts};

mod background;
mod changes;
mod files;
mod limits;
mod runs;
mod scripts;

/// A daemon with a directory for uppers and a working directory.
struct Isolated {
    daemon: Daemon,
    place: tempfile::TempDir,
}

impl Isolated {
    /// Starts a daemon; prints why and returns `None` where namespaces are unavailable.
    async fn new() -> Option<Self> {
        Self::with("", |_| {}).await
    }

    async fn with(config: &str, prepare: impl FnOnce(&mut Command)) -> Option<Self> {
        let place = tempfile::tempdir().unwrap();
        let config_file = place.path().join("isolation.toml");
        let (uppers, work) = (place.path().join("uppers"), place.path().join("work"));
        fs::create_dir(&work).unwrap();
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "upper_root = {:?}\nallowed_writable = [{:?}]\n{config}",
            uppers,
            place.path().join("allowed")
        );
        fs::write(&config_file, text).unwrap();
        let daemon = Daemon::start(&["--port", "0"], |command| {
            command.env("EXECD_ISOLATION_CONFIG", &config_file);
            prepare(command);
        });
        let capabilities = daemon.get("/v1/isolated/capabilities").await.json();
        if capabilities["setpriv_available"] != json!(true) {
            eprintln!("SKIPPED: no isolated sessions here: {capabilities}");
            return None;
        }
        Some(Self { daemon, place })
    }

    fn work(&self) -> PathBuf {
        self.place.path().join("work")
    }

    fn uppers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.place.path().join("uppers"));
        let entries = entries.into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Creates a session whose workspace is the working directory.
    async fn session(&self, more: Value) -> String {
        self.created(&self.body(more)).await
    }

    fn body(&self, more: Value) -> Value {
        let mut body = json!({ "workspace": { "path": self.work() } });
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    }

    async fn created(&self, body: &Value) -> String {
        let answer = self.daemon.post("/v1/isolated/session", body.clone()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let created = answer.json();
        assert!(created["created_at"].as_str().unwrap().ends_with('Z'));
        created["session_id"].as_str().unwrap().to_owned()
    }

    async fn run_with(&self, id: &str, body: Value) -> Vec<Event> {
        let answer = self
            .daemon
            .post(&format!("/v1/isolated/session/{id}/run"), body)
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.headers["content-type"], "text/event-stream");
        let events = events(&answer.body);
        assert_eq!(events[0].kind, EventKind::Init);
        assert_ne!(events[0].text, id);
        events
    }

    async fn run(&self, id: &str, code: &str) -> Vec<Event> {
        self.run_with(id, json!({ "code": code })).await
    }

    /// Returns the output of a run that must succeed.
    async fn output_of(&self, id: &str, code: &str) -> String {
        let events = self.run(id, code).await;
        assert_eq!(
            events.last().unwrap().exit_code(),
            Some(0),
            "{code}: {events:?}"
        );
        texts(&events, EventKind::Stdout).join("|")
    }

    async fn delete(&self, id: &str) {
        let answer = self
            .daemon
            .delete(&format!("/v1/isolated/session/{id}"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert!(answer.body.is_empty());
    }
}

/// Returns the class and value of the error that ends a run.
fn failure(events: &[Event]) -> (String, String) {
    let error = events.last().unwrap().error.clone();
    let error = error.unwrap_or_else(|| panic!("no error: {events:?}"));
    (error.ename, error.evalue)
}

fn exit(code: &str) -> (String, String) {
    ("ExitError".to_owned(), code.to_owned())
}

#[tokio::test]
async fn a_session_is_created_read_listed_and_deleted() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let daemon = &isolated.daemon;
    assert_eq!(
        daemon.get("/v1/isolated/sessions").await.json(),
        json!({ "sessions": [] })
    );
    let id = isolated
        .session(json!({ "idle_timeout_seconds": 300 }))
        .await;
    let other = isolated.session(json!({})).await;
    let info = daemon
        .get(&format!("/v1/isolated/session/{id}"))
        .await
        .json();
    assert_eq!(info["status"], "active");
    assert_eq!(info["created_at"], info["last_run_at"]);
    assert!(
        (290..=300).contains(&info["idle_remaining_seconds"].as_u64().unwrap()),
        "{info}"
    );
    let work = json!(isolated.work());
    assert_eq!(
        info["workspace"],
        json!({ "path": work, "mode": "overlay" })
    );
    assert_eq!(
        info["overlays"],
        json!([{ "path": work, "mode": "overlay", "persist": true }])
    );
    assert_eq!(info["profile"], "strict");
    assert_eq!(info["idle_timeout_seconds"], 300);
    assert!(info.get("share_net").is_none());
    isolated.output_of(&id, "sleep 0.01").await;
    let info = daemon
        .get(&format!("/v1/isolated/session/{id}"))
        .await
        .json();
    assert!(info["last_run_at"].as_str() > info["created_at"].as_str());
    let list = daemon.get("/v1/isolated/sessions").await.json();
    let ids = list["sessions"].as_array().unwrap().iter();
    let ids: Vec<&str> = ids
        .map(|entry| entry["session_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, [&id, &other]);
    assert!(list["sessions"][1].get("idle_remaining_seconds").is_none());
    assert_eq!(isolated.uppers().len(), 2);
    isolated.delete(&id).await;
    assert_eq!(isolated.uppers().len(), 1);
    for (method, path) in [
        (Method::GET, ""),
        (Method::DELETE, ""),
        (Method::GET, "/runs/x"),
        (Method::GET, "/runs/x/logs"),
        (Method::GET, "/files/info?path=a"),
        (Method::DELETE, "/files?path=a"),
        (Method::GET, "/directories/list?path=a"),
    ] {
        let path = format!("/v1/isolated/session/{id}{path}");
        let answer = Answer::of(daemon.send(method, &path, &[], "").await).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "SESSION_NOT_FOUND")
        );
    }
    let answer = daemon
        .post(
            &format!("/v1/isolated/session/{id}/run"),
            json!({ "code": "true" }),
        )
        .await;
    assert_eq!(answer.code(), "SESSION_NOT_FOUND");
}

#[tokio::test]
async fn a_session_has_few_rights() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let outside = isolated.place.path().join("outside");
    fs::write(&outside, "secret").unwrap();
    let id = isolated.session(json!({})).await;
    for (code, want) in [
        (
            "echo $$ $(ps -e | wc -l) | awk '{print ($1<100), ($2<12)}'",
            "1 1",
        ),
        ("hostname", "sandbox"),
        ("id -u", "0"),
        ("touch /etc/x 2>/dev/null || echo read-only", "read-only"),
        (
            "touch /usr/x /var/x 2>/dev/null || echo read-only",
            "read-only",
        ),
        ("echo x > /tmp/mine && ls -A /tmp | wc -l", "2"),
        (
            "grep CapEff /proc/self/status; grep CapBnd /proc/self/status",
            "CapEff:\t0000000000000000|CapBnd:\t0000000000000000",
        ),
        (
            "grep NoNewPrivs /proc/self/status; grep Seccomp: /proc/self/status",
            "NoNewPrivs:\t1|Seccomp:\t2",
        ),
        (
            "echo x > /proc/sys/kernel/core_pattern 2>/dev/null || echo no",
            "no",
        ),
        ("head -c 1 /proc/kcore 2>/dev/null | wc -c", "0"),
        ("mount -t tmpfs x /mnt 2>/dev/null || echo no", "no"),
        ("umount /tmp 2>/dev/null || echo no", "no"),
        ("unshare -U true 2>/dev/null || echo no", "no"),
        ("unshare -m true 2>/dev/null || echo no", "no"),
        ("cat /proc/1/environ 2>/dev/null || echo no", "no"),
        (
            "ls /dev | tr '\\n' ' '",
            "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ",
        ),
        ("ls /run | grep -v mount; echo x > /run/x && echo ok", "ok"),
        ("kill -KILL 1; echo survived", "survived"),
        (
            "head -c 4 /dev/zero | wc -c; echo > /dev/null && echo ok",
            "4|ok",
        ),
    ] {
        assert_eq!(isolated.output_of(&id, code).await, want, "{code}");
    }
    assert_eq!(fs::read_to_string(&outside).unwrap(), "secret");
    // The directories of uppers are hidden, even where their parent is visible.
    let body = json!({ "overlays": [{ "path": isolated.place.path(), "mode": "ro" }] });
    let id = isolated.created(&body).await;
    let code = format!(
        "ls {} | wc -l",
        isolated.place.path().join("uppers").display()
    );
    assert_eq!(isolated.output_of(&id, &code).await, "0");
    let code = format!(
        "cat {}; echo; echo x > {} || echo no",
        outside.display(),
        outside.display()
    );
    assert_eq!(isolated.output_of(&id, &code).await, "secret|no");
}

#[tokio::test]
async fn overlays_of_every_mode() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let root = isolated.place.path().join("tree");
    for name in ["over", "memory", "rw", "ro", "over/nested"] {
        fs::create_dir_all(root.join(name)).unwrap();
        fs::write(root.join(name).join("f"), name).unwrap();
    }
    let at = |name: &str| root.join(name);
    let body = json!({ "overlays": [
        { "path": at("over/nested"), "mode": "rw" },
        { "path": at("over") },
        { "path": at("memory"), "mode": "overlay", "persist": false },
        { "path": at("rw"), "mode": "rw" },
        { "path": at("ro"), "mode": "ro" },
    ]});
    let id = isolated.created(&body).await;
    let code = format!(
        "cd {}; pwd; for d in over memory rw over/nested ro; do echo new > $d/f; rm -f $d/none; \
         echo x > $d/new; cat $d/f; done 2>/dev/null; echo",
        root.display()
    );
    let output = isolated.output_of(&id, &code).await;
    assert_eq!(output, format!("{}|new|new|new|new|ro", root.display()));
    let read = |name: &str| fs::read_to_string(at(name).join("f")).unwrap();
    assert_eq!(
        [read("over"), read("memory"), read("ro")],
        ["over", "memory", "ro"]
    );
    assert_eq!([read("rw"), read("over/nested")], ["new\n", "new\n"]);
    let body = json!({ "overlays": [{ "path": at("made/new") }] });
    isolated.created(&body).await;
    symlink("over", at("link")).unwrap();
    let id = isolated
        .created(&json!({ "overlays": [{ "path": at("link") }] }))
        .await;
    assert_eq!(
        isolated
            .output_of(&id, "cat f; echo; echo x > new && cat new")
            .await,
        "over|x"
    );
    assert_eq!(fs::metadata(at("made/new")).unwrap().mode() & 0o777, 0o755);
}

#[tokio::test]
async fn sessions_run_as_the_requested_user() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    fs::write(isolated.work().join("roots"), "").unwrap();
    let id = isolated.session(json!({ "uid": 4242, "gid": 4343 })).await;
    let code = "id -u; id -g; id -G; echo x > own && stat -c '%u %g' own . roots";
    assert_eq!(
        isolated.output_of(&id, code).await,
        "4242|4343|4343|4242 4343|4242 4343|0 0"
    );
    assert_eq!(
        isolated
            .output_of(&id, "echo x >> roots 2>/dev/null || echo no")
            .await,
        "no"
    );
    let info = isolated
        .daemon
        .get(&format!("/v1/isolated/session/{id}"))
        .await
        .json();
    assert_eq!((&info["uid"], &info["gid"]), (&json!(4242), &json!(4343)));
    let capabilities = isolated
        .daemon
        .get("/v1/isolated/capabilities")
        .await
        .json();
    if capabilities["userns_available"] != json!(true) {
        eprintln!("SKIPPED in part: no user namespaces here: {capabilities}");
        return;
    }
    let body = json!({ "workspace": { "path": isolated.work(), "mode": "rw" }, "uid": 4242, "gid": 4343, "uid_mode": "userns" });
    let id = isolated.created(&body).await;
    assert_eq!(
        isolated
            .output_of(
                &id,
                "id -u; id -g; echo x > outside; cat /proc/sys/user/max_user_namespaces"
            )
            .await,
        "4242|4343|0"
    );
    assert_eq!(
        fs::metadata(isolated.work().join("outside")).unwrap().uid(),
        0
    );
    let id = isolated
        .session(json!({ "uid": 7, "gid": 8, "uid_mode": "userns" }))
        .await;
    assert_eq!(
        isolated
            .output_of(&id, "echo x > up; stat -c '%u %g' up")
            .await,
        "7 8"
    );
}

#[tokio::test]
async fn profiles_binds_and_networks() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let allowed = isolated.place.path().join("allowed");
    fs::create_dir_all(allowed.join("data")).unwrap();
    fs::write(allowed.join("file"), "f").unwrap();
    symlink("data", allowed.join("link")).unwrap();
    let balanced = isolated.session(json!({ "profile": "balanced" })).await;
    let shared = isolated.place.path().join("shared");
    isolated
        .output_of(&balanced, &format!("echo x > {}", shared.display()))
        .await;
    assert!(shared.exists(), "/tmp is the sandbox's");
    let id = isolated
        .session(json!({
            "extra_writable": [allowed.join("link")],
            "binds": [
                { "source": allowed.join("file"), "dest": "/tmp/in/file", "readonly": true },
                { "source": allowed.join("data"), "dest": "/run/data", "readonly": null },
            ],
            "share_net": false,
        }))
        .await;
    let real = allowed.join("data").canonicalize().unwrap();
    let info = isolated
        .daemon
        .get(&format!("/v1/isolated/session/{id}"))
        .await
        .json();
    assert_eq!(info["extra_writable"], json!([real]));
    assert_eq!(info["share_net"], json!(false));
    let code = format!(
        "cat /tmp/in/file; echo; echo x > /tmp/in/file || echo no; echo y > /run/data/y; echo z > {}/z; \
         cat /proc/net/dev | grep -c :; echo > /dev/tcp/127.0.0.1/{} || echo apart",
        real.display(),
        isolated.daemon.port(),
    );
    assert_eq!(isolated.output_of(&id, &code).await, "f|no|1|apart");
    assert_eq!(fs::read_to_string(real.join("y")).unwrap(), "y\n");
    assert_eq!(fs::read_to_string(real.join("z")).unwrap(), "z\n");
    let body = isolated
        .body(json!({ "binds": [{ "source": allowed.join("data"), "dest": "/usr/none" }] }));
    let answer = isolated.daemon.post("/v1/isolated/session", body).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (400, "RUNTIME_ERROR")
    );
    assert!(answer.text().contains("binds[0].dest"), "{}", answer.text());
}

#[tokio::test]
async fn secrets_and_configuration_stay_outside() {
    let prepare = |command: &mut Command| {
        command
            .env("MY_API_KEY", "k")
            .env("PLAIN", "p")
            .env("JUPYTER_TOKEN", "j");
    };
    let Some(isolated) = Isolated::with("", prepare).await else {
        return;
    };
    let ask = "echo ${MY_API_KEY-none} ${PLAIN-none} ${JUPYTER_TOKEN-none} ${EXECD_ISOLATION_CONFIG-none}";
    let allow = json!({ "mode": "allow", "keys": ["MY_API_KEY", "JUPYTER_TOKEN", "PATH"] });
    for (rule, want) in [
        (json!(null), "none p none none"),
        (
            json!({ "mode": "deny", "keys": ["PLAIN"] }),
            "k none none none",
        ),
        (allow, "k none none none"),
    ] {
        let id = isolated.session(json!({ "env_passthrough": rule })).await;
        assert_eq!(isolated.output_of(&id, ask).await, want);
    }
}

#[tokio::test]
async fn nothing_remains_when_a_session_or_the_daemon_ends() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let marker = |name: &str| format!("sleep 1000 & exec -a {name} sleep 100000 &");
    let dying = isolated.session(json!({})).await;
    let staying = isolated.session(json!({})).await;
    // Names are unique to this run, because another may run the same test.
    let own = |name: &str| format!("{name}-{}", std::process::id());
    let (lost, kept) = (own("dying"), own("staying"));
    isolated.output_of(&dying, &marker(&lost)).await;
    isolated.output_of(&staying, &marker(&kept)).await;
    // A shell does not wait until its background child has executed the program.
    let marked = async |name: &str| {
        eventually("the process runs", async || {
            with_name(name).first().copied()
        })
        .await
    };
    let pid = marked(&kept).await;
    // The init process of one session is killed from outside.
    let init = parent_of_namespace(marked(&lost).await);
    Command::new("kill")
        .args(["-KILL", &init.to_string()])
        .status()
        .unwrap();
    let path = format!("/v1/isolated/session/{dying}");
    eventually("the session is cleaned up", async || {
        (isolated.daemon.get(&path).await.status == 404).then_some(())
    })
    .await;
    assert!(with_name(&lost).is_empty());
    assert_eq!(isolated.uppers().len(), 1);
    let Isolated { daemon, place } = isolated;
    daemon.signal(rustix::process::Signal::TERM);
    assert!(daemon.wait().await.success());
    assert!(!alive(pid));
    assert_eq!(
        fs::read_dir(place.path().join("uppers")).unwrap().count(),
        0
    );
}

/// A stopping daemon sends SIGTERM to all its descendants, and the sessions end on their own.
#[tokio::test]
async fn a_signal_to_the_process_around_a_session_ends_nothing() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let marker = format!("inside-{}", std::process::id());
    let code = format!("exec -a {marker} sleep 100000 & A=1");
    isolated.output_of(&id, &code).await;
    let inside = eventually("the process runs", async || {
        with_name(&marker).first().copied()
    })
    .await;
    let outer = number_in_status(parent_of_namespace(inside), "PPid:");
    let outer = rustix::process::Pid::from_raw(outer).unwrap();
    use rustix::process::Signal;
    for signal in [Signal::HUP, Signal::INT, Signal::USR1, Signal::TERM] {
        rustix::process::kill_process(outer, signal).unwrap();
    }
    assert_eq!(isolated.output_of(&id, "echo $A").await, "1");
    assert!(alive(inside));
    isolated.delete(&id).await;
    assert!(!alive(inside) && !alive(outer.as_raw_nonzero().get()));
}

/// Returns the processes whose first argument is this.
fn with_name(name: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).next() == Some(name.as_bytes())
    })
    .collect()
}

/// Returns the last number in a line of a process's status.
fn number_in_status(pid: i32, name: &str) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.unwrap().split_ascii_whitespace().last().unwrap();
    number.parse().unwrap()
}

/// Returns the first process in the PID namespace of another process.
fn parent_of_namespace(pid: i32) -> i32 {
    let mut at = pid;
    while number_in_status(at, "NSpid:") != 1 {
        at = number_in_status(at, "PPid:");
    }
    at
}

#[tokio::test]
async fn only_leftovers_of_earlier_daemons_are_removed() {
    let place = tempfile::tempdir().unwrap();
    let uppers = place.path().join("uppers");
    fs::create_dir_all(uppers.join("0123456789abcdef0123456789abcdef/upper/deep")).unwrap();
    fs::create_dir_all(uppers.join("mine/data")).unwrap();
    let config = place.path().join("isolation.toml");
    fs::write(&config, format!("upper_root = {uppers:?}")).unwrap();
    let config = config.to_str().unwrap();
    let daemon = Daemon::start(&["--port", "0", "--isolation-config", config], |_| {});
    eventually("the leftovers are removed", async || {
        (fs::read_dir(&uppers).unwrap().count() == 1).then_some(())
    })
    .await;
    assert!(uppers.join("mine/data").exists());
    drop(daemon);
    fs::write(config, "upper_max_bytes = \"many\"").unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0", "--isolation-config", config])
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("upper_max_bytes"));
}

#[tokio::test]
async fn bad_requests_are_distinguished_from_missing_rights() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let run = format!("/v1/isolated/session/{id}/run");
    for body in [
        json!({}),
        json!({ "code": "" }),
        json!({ "code": "a\0" }),
        json!({ "code": "true", "timeout_seconds": -1 }),
        json!({ "code": "true", "envs": { "A=B": "" } }),
    ] {
        let answer = isolated.daemon.post(&run, body.clone()).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (400, "INVALID_REQUEST_BODY"),
            "{body}"
        );
    }
    let answer = isolated
        .daemon
        .post("/v1/isolated/session", json!({}))
        .await;
    assert_eq!(
        answer.json()["message"],
        "workspace or overlays is required"
    );
    let daemon = Daemon::without_capabilities("-sys_admin", &["--port", "0"]);
    let capabilities = daemon.get("/v1/isolated/capabilities").await;
    assert_eq!(capabilities.status, 200);
    let capabilities = capabilities.json();
    assert_eq!(capabilities["setpriv_available"], json!(false));
    assert_eq!(capabilities["runtimeInit"], json!({ "version": 1 }));
    if capabilities["userns_available"] == json!(false) {
        assert_eq!(capabilities["available"], json!(false));
        assert!(
            capabilities["message"]
                .as_str()
                .unwrap()
                .contains("namespaces"),
            "{capabilities}"
        );
    }
    let answer = daemon
        .post("/v1/isolated/session", isolated.body(json!({})))
        .await;
    assert_eq!(answer.status, 503, "{}", answer.text());
    // Either no sessions are available, or only sessions of this mode.
    let code = match capabilities["available"] == json!(false) {
        true => "SERVICE_UNAVAILABLE",
        false => "NOT_SUPPORTED",
    };
    assert_eq!(answer.code(), code);
    // Routes that clean up work everywhere.
    let unknown = "/v1/isolated/session/none";
    for answer in [
        daemon.delete(unknown).await,
        daemon.get(&format!("{unknown}/files/info?path=/x")).await,
        daemon.delete(&format!("{unknown}/files?path=/x")).await,
    ] {
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (404, "SESSION_NOT_FOUND")
        );
    }
}
