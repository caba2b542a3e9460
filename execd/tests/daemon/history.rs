//! History of commands: an addition to the contract.

use serde_json::{Value, json};

use crate::support::{Daemon, daemon, eventually};

async fn page(daemon: &Daemon, query: &str) -> Value {
    let answer = daemon.get(&format!("/commands/history{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn commands_are_listed_with_their_ends_and_without_output_and_environment() {
    let daemon = daemon();
    let secret = json!({ "NAME": "s3cret-value" });
    let command = json!({ "command": "echo s3cret-output; exit 3", "envs": secret, "cwd": "/tmp" });
    daemon.run(command).await;
    daemon.run(json!({ "argv": ["no-such-program"] })).await;
    let background = json!({ "command": "sleep 600", "background": true });
    daemon.run(background).await;
    let created = daemon.post("/session", json!({})).await.json();
    let session = created["session_id"].as_str().unwrap().to_owned();
    let run = json!({ "command": "true" });
    daemon.post(&format!("/session/{session}/run"), run).await;

    let all = eventually("the end of the last run", async || {
        let page = page(&daemon, "").await;
        let entries = page["entries"].as_array().unwrap();
        let ended = entries.iter().filter(|it| it.get("exit_code").is_some());
        (ended.count() == 3).then_some(page)
    })
    .await;
    let mut entries = all["entries"].as_array().unwrap().clone();
    entries.sort_by_key(|entry| entry["number"].as_u64());
    let seen: Vec<_> = entries
        .iter()
        .map(|it| (it["kind"].as_str().unwrap(), it["exit_code"].as_i64()))
        .collect();
    let expected = [
        ("foreground", Some(3)),
        ("foreground", Some(255)),
        ("background", None),
        ("session", Some(0)),
    ];
    assert_eq!(seen, expected);
    assert_eq!(entries[0]["cwd"], "/tmp");
    assert_eq!(entries[0]["error"], "exit status 3");
    assert_eq!(entries[1]["command"], r#"["no-such-program"]"#);
    assert!(entries[1]["finished_at"].is_string() && entries[2].get("finished_at").is_none());
    let text = all.to_string();
    assert!(!text.contains("s3cret-value"), "{text}");

    let last = entries
        .iter()
        .map(|it| it["revision"].as_u64().unwrap())
        .max();
    let (last, epoch) = (last.unwrap(), all["epoch"].as_i64().unwrap());
    let newer = page(&daemon, &format!("?since={last}&epoch={epoch}")).await;
    assert_eq!(newer["entries"], json!([]));
    let other = page(&daemon, &format!("?since={last}&epoch=1")).await;
    assert_eq!(other["entries"].as_array().unwrap().len(), 4, "{other}");
    for bad in ["?since=x", "?since=-1", "?epoch=x"] {
        let answer = daemon.get(&format!("/commands/history{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}");
    }
}
