//! Commands of another user (contract: execd §5.4, A2.2).

use std::process::Command;

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

#[tokio::test]
async fn the_reason_why_a_user_cannot_be_taken_is_the_right_one() {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to start a daemon of another user"
    );
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "12345", "--regid", "12345", "--clear-groups"])
        .arg(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0"]);
    let of_image = Daemon::launch(command, |_| {});
    let without = Daemon::without_capabilities("-setuid,-setgid", &["--port", "0"]);
    for (daemon, named, other) in [
        (
            &of_image,
            "uid 12345, the USER of the image",
            "capabilities",
        ),
        (&without, "docker.drop_capabilities", "USER"),
    ] {
        let is_right = |text: &str| text.contains(named) && !text.contains(other);
        for uid in [2, 54321] {
            let request = json!({ "command": "true", "cwd": "/", "uid": uid });
            let events = daemon.run(request).await;
            let error = events.last().unwrap().error.clone().unwrap();
            assert!(is_right(&error.evalue), "{error:?}");
        }
        let path = "/v1/filesystem/54321/54321/files/info?path=/";
        let answer = daemon.get(path).await;
        assert_eq!(answer.code(), "FILESYSTEM_IDENTITY_UNAVAILABLE");
        assert!(is_right(answer.text()), "{}", answer.text());
    }
    // Its own user needs no change.
    let request = json!({ "command": "id -u", "cwd": "/", "uid": 12345 });
    let events = of_image.run(request).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["12345"]);
}
