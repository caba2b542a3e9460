//! Downloads of whole files, ranges and lines (contract: execd §10.11, A3).

use std::{fs, path::Path, process::Command};

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};

use crate::support::{Daemon, daemon};

#[tokio::test]
async fn lines_of_a_file_are_read_by_number() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("f");
    fs::write(&file, "a\nb\r\nc\n").unwrap();
    let path = format!("/files/download?path={}", file.display());
    let lines = daemon.get(&format!("{path}&offset=2&limit=2")).await;
    assert_eq!((lines.status.as_u16(), lines.text()), (200, "b\nc"));
    assert_eq!(daemon.get(&format!("{path}&offset=9")).await.text(), "");
    for bad in ["offset=0", "limit=x"] {
        assert_eq!(
            daemon.get(&format!("{path}&{bad}")).await.code(),
            "INVALID_REQUEST_BODY"
        );
    }
    let both = daemon
        .get_with(&format!("{path}&limit=1"), &[("range", "bytes=0-1")])
        .await;
    assert_eq!(both.status, 400);
}

#[tokio::test]
async fn a_range_of_an_empty_file_is_refused() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("empty");
    fs::write(&file, "").unwrap();
    let path = format!("/files/download?path={}", file.display());
    let answer = daemon.get_with(&path, &[("range", "bytes=0-9")]).await;
    assert_eq!((answer.status.as_u16(), answer.text()), (200, ""));
    let date = answer.headers["last-modified"].to_str().unwrap().to_owned();
    let tag = answer.headers["etag"].to_str().unwrap().to_owned();
    for (name, value, status) in [
        ("if-modified-since", date.as_str(), 304),
        ("if-match", tag.as_str(), 200),
        ("if-match", "\"another\"", 412),
    ] {
        let answer = daemon.get_with(&path, &[(name, value)]).await;
        assert_eq!(answer.status, status, "{name}: {value}");
    }
}

#[tokio::test]
async fn files_of_the_kernel_are_sent_whole_without_a_length() {
    let daemon = daemon();
    // Their reported sizes are 0 bytes and one page.
    let of_a_page = [
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/devices/system/cpu/online",
    ];
    let of_a_page = of_a_page.iter().find(|path| Path::new(path).exists());
    for path in ["/proc/version", of_a_page.expect("sysfs is mounted")] {
        let want = fs::read_to_string(path).unwrap();
        assert_ne!(
            fs::metadata(path).unwrap().len(),
            want.len() as u64,
            "{path}"
        );
        let whole = format!("/files/download?path={path}");
        for headers in [
            [].as_slice(),
            &[("range", "bytes=0-1")],
            &[("range", "bytes=2-")],
        ] {
            let answer = daemon.get_with(&whole, headers).await;
            assert_eq!(
                (answer.status.as_u16(), answer.text()),
                (200, &*want),
                "{path}"
            );
            for absent in ["content-length", "etag", "accept-ranges"] {
                assert!(!answer.headers.contains_key(absent), "{absent} of {path}");
            }
        }
        let lines = daemon.get(&format!("{whole}&limit=1")).await;
        assert_eq!(lines.text(), want.lines().next().unwrap());
    }
}

/// The leader of a session without a terminal, such as process 1 of a container, gets the terminal
/// that it opens.
#[tokio::test]
async fn a_terminal_that_is_asked_for_does_not_become_the_daemon_s() {
    let mut leader = Command::new("setsid");
    leader.args([env!("CARGO_BIN_EXE_execd"), "--port", "0"]);
    let daemon = Daemon::launch(leader, |_| {});
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ptsname(&master, Vec::new()).unwrap();
    let path = format!("/files/download?path={}", terminal.to_str().unwrap());
    let answer = daemon.get(&path).await;
    assert_eq!(answer.status, 400, "{}", answer.text());
    let stat = fs::read_to_string(format!("/proc/{}/stat", daemon.pid())).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    let (session, terminal) = (fields[3], fields[4]);
    assert_eq!(session, daemon.pid().to_string());
    assert_eq!(terminal, "0");
}
