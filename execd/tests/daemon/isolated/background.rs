//! Background runs (contract: execd A4.5).

use std::fs;

use serde_json::{Value, json};

use super::{Isolated, parent_of_namespace};
use crate::support::{Answer, eventually};

impl Isolated {
    async fn background(&self, id: &str, code: &str) -> Answer {
        let body = json!({ "code": code, "background": true, "envs": { "E": "env" } });
        self.daemon
            .post(&format!("/v1/isolated/session/{id}/run"), body)
            .await
    }

    /// Starts a run and returns the path of its routes.
    async fn started(&self, id: &str, code: &str) -> (String, Value) {
        let answer = self.background(id, code).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        let started = answer.json();
        assert_eq!(started["session_id"], id);
        let run = started["run_id"].as_str().unwrap();
        (format!("/v1/isolated/session/{id}/runs/{run}"), started)
    }

    async fn ended(&self, run: &str) -> Value {
        eventually("the run ended", async || {
            let status = self.daemon.get(run).await.json();
            (status["running"] == json!(false)).then_some(status)
        })
        .await
    }

    /// Returns the output after a cursor, and the next cursor.
    async fn logs(&self, run: &str, cursor: u64) -> (String, u64) {
        let answer = self
            .daemon
            .get(&format!("{run}/logs?cursor={cursor}"))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let next = answer.headers["execd-isolated-tail-cursor"]
            .to_str()
            .unwrap();
        (answer.text().to_owned(), next.parse().unwrap())
    }
}

#[tokio::test]
async fn background_runs_are_reported_until_they_end() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "A=state; cd /usr").await;
    let code = "echo $A $E; pwd; echo err >&2; cat; until [ -e /tmp/go ]; do sleep 0.01; done; echo end; exit 7";
    let (run, started) = isolated.started(&id, code).await;
    let status = isolated.daemon.get(&run).await.json();
    assert_eq!(status["running"], json!(true));
    assert_eq!(status["started_at"], started["started_at"]);
    assert!(status.get("exit_code").is_none() && status.get("finished_at").is_none());
    let cursor = eventually("the output arrived", async || {
        let (text, cursor) = isolated.logs(&run, 0).await;
        (text == "state env\n/usr\nerr\n").then_some(cursor)
    })
    .await;
    assert_eq!(isolated.logs(&run, cursor).await, (String::new(), cursor));
    assert_eq!(
        isolated.logs(&run, 1 << 40).await,
        (String::new(), cursor),
        "clamped"
    );
    assert_eq!(
        isolated.output_of(&id, "touch /tmp/go; echo mine $A").await,
        "mine state"
    );
    let status = isolated.ended(&run).await;
    assert_eq!(
        (&status["exit_code"], status.get("error")),
        (&json!(7), None)
    );
    assert!(status["finished_at"].is_string());
    assert_eq!(isolated.logs(&run, cursor).await.0, "end\n");
    let (run, _) = isolated.started(&id, "if then").await;
    assert_ne!(isolated.ended(&run).await["exit_code"], json!(0));
    let (run, _) = isolated.started(&id, "A=other; true").await;
    assert_eq!(isolated.ended(&run).await["exit_code"], json!(0));
    assert_eq!(isolated.output_of(&id, "echo $A").await, "state");
    for (cursor, message) in [
        ("abc", "cursor must be an integer"),
        ("-1", "cursor cannot be negative"),
    ] {
        let answer = isolated
            .daemon
            .get(&format!("{run}/logs?cursor={cursor}"))
            .await;
        assert_eq!(
            (answer.status.as_u16(), answer.json()["message"].as_str()),
            (400, Some(message))
        );
    }
    // The output is not in the user's tree, and no other session has it.
    assert_eq!(isolated.output_of(&id, "ls -A $OLDPWD").await, "");
    let other = isolated.session(json!({})).await;
    let foreign = run.replace(&id, &other);
    assert_eq!(isolated.daemon.get(&foreign).await.status, 404);
    isolated.delete(&id).await;
    assert_eq!(isolated.daemon.get(&run).await.status, 404);
}

#[tokio::test]
async fn background_runs_end_and_report_errors_like_a_script() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    isolated.output_of(&id, "A=1; f() { :; }; set -u").await;
    for (code, status, want) in [
        (
            "echo 'abc",
            2,
            "bash: eval: line 1: unexpected EOF while looking for matching `''\n",
        ),
        (
            "echo one\nif then",
            2,
            "one\nbash: eval: line 2: syntax error near unexpected token `then'\n\
             bash: eval: line 2: `if then'\n",
        ),
        ("echo $NONE", 1, "bash: line 1: NONE: unbound variable\n"),
        ("echo a \\", 0, "a\n"),
        ("trap 'echo X $? $#' EXIT; (exit 3)", 3, "X 3 0\n"),
        ("trap 'echo D' DEBUG; :; :", 0, "D\nD\n"),
        ("echo $LINENO\necho $A $LINENO", 0, "1\n1 2\n"),
        ("set -e; trap 'echo E' ERR; false; echo no", 1, "E\n"),
    ] {
        let (run, _) = isolated.started(&id, code).await;
        let ended = isolated.ended(&run).await;
        assert_eq!(isolated.logs(&run, 0).await.0, want, "{code}");
        assert_eq!(ended["exit_code"], json!(status), "{code}");
    }
}

#[tokio::test]
async fn logs_are_paged_and_limited() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    const PAGE: u64 = 16 << 20;
    let id = isolated.session(json!({})).await;
    let code = "head -c 20971520 /dev/zero | tr '\\0' x; touch written; until [ -e go ]; do sleep 0.01; done; echo more";
    let (run, _) = isolated.started(&id, code).await;
    let path = format!("{run}/logs");
    eventually("the output is complete", async || {
        let info = format!("/v1/isolated/session/{id}/files/info?path=written");
        (isolated.daemon.get(&info).await.status == 200).then_some(())
    })
    .await;
    let answer = isolated.daemon.get(&path).await;
    assert_eq!(answer.body.len() as u64, PAGE);
    assert_eq!(
        answer.headers["execd-isolated-tail-cursor"],
        PAGE.to_string()
    );
    eventually("the rest is there", async || {
        (isolated.logs(&run, PAGE).await.1 == 20 << 20).then_some(())
    })
    .await;
    isolated.output_of(&id, "touch go").await;
    isolated.ended(&run).await;
    assert_eq!(isolated.logs(&run, PAGE).await, (String::new(), PAGE));
}

#[tokio::test]
async fn background_runs_need_a_writable_overlay() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    for (mount, message) in [
        (
            json!({ "path": isolated.work(), "mode": "ro" }),
            "read-only workspace mode",
        ),
        (
            json!({ "path": isolated.work(), "mode": "overlay", "persist": false }),
            "no upper directory",
        ),
    ] {
        let id = isolated.created(&json!({ "overlays": [mount] })).await;
        let answer = isolated.background(&id, "true").await;
        assert_eq!(answer.status, 400);
        assert!(
            answer.json()["message"].as_str().unwrap().contains(message),
            "{}",
            answer.text()
        );
    }
    let body =
        json!({ "workspace": { "path": isolated.work(), "mode": "rw" }, "uid": 4242, "gid": 4242 });
    let id = isolated.created(&body).await;
    let answer = isolated.background(&id, "true").await;
    assert_eq!(answer.status, 400);
    let message = "workspace is not writable by the session uid";
    assert!(
        answer.json()["message"].as_str().unwrap().contains(message),
        "{}",
        answer.text()
    );
}

#[tokio::test]
async fn a_run_of_a_dead_session_is_reported_as_terminated() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let (run, _) = isolated
        .started(&id, "exec -a doomed-marker sleep 100000")
        .await;
    let pid = eventually("the run started", async || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let mut pids =
            processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.starts_with(b"doomed-marker"))
        })
    })
    .await;
    let init = parent_of_namespace(pid);
    std::process::Command::new("kill")
        .args(["-KILL", &init.to_string()])
        .status()
        .unwrap();
    eventually("the session is gone", async || {
        let path = format!("/v1/isolated/session/{id}");
        (isolated.daemon.get(&path).await.status == 404).then_some(())
    })
    .await;
    let status = isolated.ended(&run).await;
    assert_eq!(status["error"], "session terminated");
    assert!(status.get("exit_code").is_none());
}

#[tokio::test]
async fn deleting_a_session_forgets_its_running_runs() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let marker = format!("deleted-{}", std::process::id());
    let (run, _) = isolated
        .started(&id, &format!("exec -a {marker} sleep 100000"))
        .await;
    let running = || {
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(marker.as_bytes()))
        })
    };
    eventually("the run started", async || running().then_some(())).await;
    isolated.delete(&id).await;
    assert!(!running());
    for path in [run.clone(), format!("{run}/logs")] {
        assert_eq!(isolated.daemon.get(&path).await.status, 404, "{path}");
    }
    assert!(isolated.uppers().is_empty());
}
