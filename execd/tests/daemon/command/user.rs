//! Commands of another user (contract: execd §5.4, A2.2).

use osb_protocol::execd::event::EventKind;
use serde_json::json;

use crate::support::{Daemon, eventually, texts};

#[tokio::test]
async fn a_command_of_another_user_has_that_user_s_home() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to become another user"
    );
    let place = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command
            .env("HOME", place.path())
            .env("USER", "root")
            .env_remove("LOGNAME");
    });
    let own = place.path().to_str().unwrap();
    let echo = "echo $HOME,$USER,${LOGNAME-none}";
    for (request, home, name) in [
        (json!({ "uid": 2 }), "/bin", "bin"),
        (json!({ "uid": 2, "gid": 3 }), "/bin", "bin"),
        (json!({ "uid": 12345 }), "/", "12345"),
        (json!({ "uid": 0 }), own, "root"),
        (json!({}), own, "root"),
        (json!({ "uid": 2, "envs": { "HOME": "/x" } }), "/x", "bin"),
        (json!({ "uid": 2, "envs": { "USER": "x" } }), "/bin", "x"),
    ] {
        let want = format!("{home},{name},none");
        let mut body = json!({ "command": echo, "cwd": "/" });
        let members = body.as_object_mut().unwrap();
        members.extend(request.as_object().unwrap().clone());
        let events = daemon.run(body.clone()).await;
        assert_eq!(texts(&events, EventKind::Stdout), [&want], "{request}");
        body["background"] = json!(true);
        let id = daemon.run(body).await[0].text.clone();
        let logs = format!("/command/{id}/logs");
        eventually("the command has written", async || {
            let text = daemon.get(&logs).await.text().to_owned();
            text.ends_with('\n').then(|| assert_eq!(text.trim(), want))
        })
        .await;
    }
    // The variable in a path is that of the command.
    let body = json!({ "command": "pwd", "cwd": "$HOME", "uid": 2 });
    assert_eq!(texts(&daemon.run(body).await, EventKind::Stdout), ["/bin"]);
}
