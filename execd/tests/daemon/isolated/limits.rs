//! Expiry and limits of sessions (contract: execd A4.3, A6.6, A7).

use nix::libc;
use serde_json::json;

use super::{Isolated, failure};
use crate::support::eventually;

#[tokio::test]
async fn idle_sessions_expire() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({ "idle_timeout_seconds": 1 })).await;
    let path = format!("/v1/isolated/session/{id}");
    // Foreground and background runs keep the session alive.
    assert_eq!(
        isolated.output_of(&id, "sleep 1.5; echo still").await,
        "still"
    );
    let body = json!({ "code": "until [ -e /tmp/go ]; do sleep 0.01; done", "background": true });
    let run = isolated.daemon.post(&format!("{path}/run"), body).await;
    assert_eq!(run.status, 202);
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(isolated.daemon.get(&path).await.status, 200);
    isolated.output_of(&id, "touch /tmp/go").await;
    eventually("the session expired", async || {
        (isolated.daemon.get(&path).await.status == 404).then_some(())
    })
    .await;
    assert!(isolated.uppers().is_empty());
}

#[tokio::test]
async fn the_size_of_uppers_is_bounded() {
    let Some(isolated) = Isolated::with("upper_max_bytes = 4194304", |_| {}).await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let (name, value) = failure(
        &isolated
            .run(&id, "head -c 8388608 /dev/zero > big; sleep 1000")
            .await,
    );
    assert_eq!(name, "RuntimeError");
    assert!(value.contains("upper quota exceeded"), "{value}");
    let (_, value) = failure(&isolated.run(&id, "true").await);
    assert!(value.contains("upper quota exceeded"), "{value}");
    let answer = isolated
        .daemon
        .post("/v1/isolated/session", isolated.body(json!({})))
        .await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (500, "RUNTIME_ERROR")
    );
    // Deleting the excess makes the session usable again.
    let path = format!("/v1/isolated/session/{id}/files?path=big");
    let deleted = isolated.daemon.delete(&path).await;
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    assert_eq!(isolated.output_of(&id, "echo well").await, "well");
}

#[tokio::test]
async fn processes_of_a_session_are_bounded() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let id = isolated.session(json!({})).await;
    let bound = isolated
        .output_of(&id, "cat /proc/sys/kernel/pid_max; ulimit -u")
        .await;
    let bounds: Vec<u64> = bound
        .split('|')
        .map(|bound| bound.parse().unwrap())
        .collect();
    assert!(bounds.contains(&4096), "{bounds:?}");
}

/// A sandbox for isolated sessions is without the engine's filter, so that of sessions must refuse
/// what it refuses.
#[tokio::test]
async fn system_calls_that_engines_refuse_are_refused() {
    let Some(isolated) = Isolated::new().await else {
        return;
    };
    let calls = [
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("io_uring_enter", libc::SYS_io_uring_enter),
        ("io_uring_register", libc::SYS_io_uring_register),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("pidfd_getfd", libc::SYS_pidfd_getfd),
        ("quotactl", libc::SYS_quotactl),
        ("quotactl_fd", libc::SYS_quotactl_fd),
        ("settimeofday", libc::SYS_settimeofday),
        ("clock_settime", libc::SYS_clock_settime),
        ("lookup_dcookie", libc::SYS_lookup_dcookie),
        ("migrate_pages", libc::SYS_migrate_pages),
        ("move_pages", libc::SYS_move_pages),
    ];
    let program = "for (@ARGV) { my ($name, $number) = split /=/; $! = 0; \
                   my $done = syscall($number, -1, 0, 0, 0, 0, 0); \
                   print \"$name \", ($done == -1 ? 0 + $! : \"done\"), \"\\n\" }";
    let arguments: Vec<_> = calls
        .iter()
        .map(|(name, number)| format!("{name}={number}"))
        .collect();
    let code = format!("perl -e '{program}' {}", arguments.join(" "));
    let refused: Vec<_> = calls
        .iter()
        .map(|(name, _)| format!("{name} {}", libc::EPERM))
        .collect();
    for (uid, gid) in [(0, 0), (1000, 1000)] {
        let id = isolated.session(json!({ "uid": uid, "gid": gid })).await;
        let output = isolated.output_of(&id, &code).await;
        assert_eq!(output, refused.join("|"), "uid {uid}");
        isolated.delete(&id).await;
    }
}
