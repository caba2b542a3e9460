//! Faults in the environment of the daemon: full disks, process limits, excessive load.

mod hang;

use std::{os::fd::AsRawFd, process::Command, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use nix::libc;
use osb_protocol::execd::event::EventKind;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use crate::{
    file::form,
    pty::{Terminal, session},
    support::{Answer, Daemon, daemon, events, eventually, texts},
};

/// Whether this is the long run (`cargo xtask test --full`).
fn full() -> bool {
    std::env::var_os("OPENSANDBOX_TEST_FULL").is_some()
}

/// Fails a test that would prove nothing without root.
fn needs_root(reason: &str) {
    assert!(
        rustix::process::geteuid().is_root(),
        "this test needs root to {reason}"
    );
}

/// Returns the resident memory of the daemon in KiB, now and at its peak.
fn memory(daemon: &Daemon) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let value = line.unwrap().trim().trim_end_matches(" kB");
        value.parse().unwrap()
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[tokio::test]
async fn a_thousand_commands_run_at_once() {
    let daemon = daemon();
    let runs = (0..1000).map(|index| {
        let daemon = &daemon;
        async move {
            let text = format!("echo {index}; echo e{index} >&2; exit {}", index % 7);
            let events = daemon.run(json!({ "command": text })).await;
            assert_eq!(texts(&events, EventKind::Stdout), [index.to_string()]);
            assert_eq!(texts(&events, EventKind::Stderr), [format!("e{index}")]);
            assert_eq!(events.last().unwrap().exit_code(), Some(index % 7));
        }
    });
    join_all(runs).await;
    assert!(memory(&daemon).1 < 192 << 10, "{:?} KiB", memory(&daemon));
}

#[tokio::test]
async fn files_of_ten_gigabytes_use_constant_memory() {
    const PIECE: usize = 1 << 20;
    const BOUNDARY: &str = "boundary";
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("file");
    let pieces: usize = if full() { 10_000 } else { 256 };
    // No two chunks are equal.
    let piece = |index: usize| {
        let mut piece = vec![b'.'; PIECE];
        piece[..8].copy_from_slice(&index.to_be_bytes());
        piece
    };
    let part = |name: &str| {
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; \
             filename=\"{name}\"\r\n\r\n"
        )
    };
    let begin = format!(
        "{}{}\r\n{}",
        part("metadata"),
        json!({ "path": path }),
        part("file")
    );
    let end = format!("\r\n--{BOUNDARY}--\r\n");
    let len = begin.len() + pieces * PIECE + end.len();
    let connect = || TcpStream::connect(("127.0.0.1", daemon.port()));
    let mut connection = connect().await.unwrap();
    let head = format!(
        "POST /files/upload HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {len}\r\n\
         content-type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n{begin}"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    for index in 0..pieces {
        connection.write_all(&piece(index)).await.unwrap();
    }
    connection.write_all(end.as_bytes()).await.unwrap();
    let mut reply = String::new();
    connection.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");

    let mut connection = BufReader::new(connect().await.unwrap());
    let head = format!(
        "GET /files/download?path={} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n",
        path.display()
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(connection.read_line(&mut head).await.unwrap(), 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut got = vec![0; PIECE];
    for index in 0..pieces {
        connection.read_exact(&mut got).await.unwrap();
        assert!(got == piece(index), "piece {index} differs");
    }
    assert_eq!(connection.read(&mut got).await.unwrap(), 0);
    assert!(memory(&daemon).1 < 40 << 10, "{:?} KiB", memory(&daemon));
}

#[tokio::test]
async fn a_gigabyte_of_output_is_complete_and_uses_constant_memory() {
    let daemon = daemon();
    // Number of lines of 64 KiB.
    let lines: usize = if full() { 16 << 10 } else { 2 << 10 };
    let line = "line=$(head -c 65535 /dev/zero | tr '\\0' z); i=0; while [ $i -lt $N ]; do echo $line; i=$((i+1)); done";
    let body = json!({ "command": line, "envs": { "N": lines.to_string() } }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    assert_eq!(response.status(), StatusCode::OK);
    let (mut zs, mut last) = (0, Bytes::new());
    while let Some(frame) = response.body_mut().frame().await {
        let bytes = frame.unwrap().into_data().unwrap();
        zs += memchr::memchr_iter(b'z', &bytes).count();
        last = bytes;
    }
    let last = String::from_utf8_lossy(&last);
    assert!(last.contains("\"execution_complete\""), "{last}");
    // This character occurs nowhere else in the events.
    assert_eq!(zs, lines * 65535);
    assert!(memory(&daemon).1 < 40 << 10, "{:?} KiB", memory(&daemon));
}

#[tokio::test]
async fn a_terminal_outlives_its_clients() {
    let daemon = daemon();
    let id = session(&daemon, json!({})).await;
    let rounds = if full() { 10_000 } else { 300 };
    let mut first = Terminal::attach(&daemon, &id, "").await;
    first.type_in("echo be''gun\n").await;
    first.until("begun").await;
    drop(first);
    let (before, _) = memory(&daemon);
    for round in 0..rounds {
        let mut terminal = Terminal::attach(&daemon, &id, "takeover=1").await;
        if round % 100 == 0 {
            terminal.type_in(&format!("echo rou''nd {round}\n")).await;
            terminal.until(&format!("round {round}\r\n")).await;
        }
    }
    let mut last = Terminal::attach(&daemon, &id, "takeover=1&since=0").await;
    last.until("begun").await;
    last.type_in("echo do''ne\n").await;
    last.until("done").await;
    let (after, _) = memory(&daemon);
    // The replay buffer itself is one mebibyte.
    assert!(after < before + (6 << 10), "{before} KiB, {after} KiB");
}

/// Starts a daemon in a mount namespace where `place` is a file system of two mebibytes. Needs root.
fn daemon_with_little_room(place: &std::path::Path) -> Daemon {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-ec"])
        .arg("mount -t tmpfs -o size=2m tmpfs \"$PLACE\"; exec \"$EXECD\" --port 0")
        .env("PLACE", place)
        .env("EXECD", env!("CARGO_BIN_EXE_execd"));
    Daemon::launch(command, |_| {})
}

#[tokio::test]
async fn an_upload_to_a_full_disk_is_refused_and_leaves_nothing() {
    needs_root("make a small filesystem");
    let place = tempfile::tempdir().unwrap();
    let daemon = daemon_with_little_room(place.path());
    let path = place.path().join("big");
    let metadata = |path: &std::path::Path| json!({ "path": path }).to_string().into_bytes();
    let kind = [("content-type", "multipart/form-data; boundary=xyz")];
    let upload = async |content: &[u8]| {
        let body = form(&[("metadata", &metadata(&path)), ("file", content)]);
        Answer::of(
            daemon
                .send(Method::POST, "/files/upload", &kind, body)
                .await,
        )
        .await
    };
    let list = async || {
        let request = json!({ "command": "ls -A", "cwd": place.path() });
        let events = daemon.run(request).await;
        texts(&events, EventKind::Stdout).join(" ")
    };
    let answer = upload(&vec![b'x'; 8 << 20]).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(answer.text().contains("No space left"), "{}", answer.text());
    assert_eq!(list().await, "");
    // The previous file is unchanged.
    assert_eq!(upload(b"old").await.status, StatusCode::OK);
    let answer = upload(&vec![b'x'; 8 << 20]).await;
    assert_eq!(answer.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(list().await, "big");
    let query = format!("/files/download?path={}", path.display());
    assert_eq!(daemon.get(&query).await.text(), "old");
}

#[tokio::test]
async fn output_without_room_is_dropped_and_reported() {
    needs_root("make a small filesystem");
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new("unshare");
    // Output can only be stored on the small file system.
    command
        .args(["--mount", "sh", "-ec"])
        .arg(
            "mount -t tmpfs -o size=2m tmpfs \"$TMPDIR\"; \
             for place in /tmp /var/tmp /dev/shm; do \
               test \"$place\" = /tmp || mount -t tmpfs -o size=4k,nr_inodes=1 tmpfs $place; \
             done; exec \"$EXECD\" --port 0",
        )
        .env("TMPDIR", place.path())
        .env("EXECD", env!("CARGO_BIN_EXE_execd"));
    let daemon = Daemon::launch(command, |_| {});
    let body = json!({ "command": "seq 1 2000000" }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let id = events(&frame.into_data().unwrap())[0].text.clone();
    // The client reads nothing until the command has ended.
    eventually("the command ended", async || {
        let status = daemon.get(&format!("/command/status/{id}")).await.json();
        (status["running"] == false).then_some(())
    })
    .await;
    assert!(memory(&daemon).1 < 40 << 10, "{:?} KiB", memory(&daemon));
    let answer = Answer::of(response).await;
    let events = events(&answer.body);
    let complaint = texts(&events, EventKind::Stderr).join("\n");
    assert!(
        complaint.contains("bytes of output did not fit"),
        "{complaint}"
    );
    let lines = texts(&events, EventKind::Stdout);
    assert!(lines.len() > 10_000, "{}", lines.len());
    assert_eq!(events.last().unwrap().exit_code(), Some(0));

    // Output that the client reads at once needs no room, however small its chunks are.
    let text = "i=0; while [ $i -lt 9000 ]; do echo $i; i=$((i+1)); done";
    let all = daemon.run(json!({ "command": text })).await;
    let lines = texts(&all, EventKind::Stdout);
    assert!(texts(&all, EventKind::Stderr).is_empty());
    assert_eq!(lines.len(), 9000);

    // A line without room is cut rather than held.
    let body = json!({ "command": "head -c 40000000 /dev/zero" }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let id = self::events(&frame.into_data().unwrap())[0].text.clone();
    eventually("the command ended", async || {
        let status = daemon.get(&format!("/command/status/{id}")).await.json();
        (status["running"] == false).then_some(())
    })
    .await;
    let answer = Answer::of(response).await;
    let read = self::events(&answer.body);
    let complaint = texts(&read, EventKind::Stderr).join("\n");
    assert!(
        complaint.contains("bytes of output did not fit"),
        "{complaint}"
    );
    // Memory grew by the line itself, but not by its escaped form, which is six times as long.
    assert!(memory(&daemon).1 < 130 << 10, "{:?} KiB", memory(&daemon));
}

#[tokio::test]
async fn the_daemon_survives_a_fork_bomb() {
    needs_root("limit the processes of another user");
    // An identity that no other process has, so that the limit counts only these processes.
    const USER: &str = "54321";
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", USER, "--regid", USER, "--clear-groups"])
        .args(["prlimit", "--nproc=80:80"])
        .arg(env!("CARGO_BIN_EXE_execd"))
        .args(["--port", "0"])
        .current_dir("/");
    let daemon = Daemon::launch(command, |_| {});
    // A shell gives up when it gets no process; this goes on.
    let bomb = r#"exec perl -e '
        $SIG{TERM} = "IGNORE";
        while (1) {
            my $child = fork;
            if (!defined $child) { select undef, undef, undef, 0.01 }
            elsif (!$child) { sleep 1000; exit }
        }
    '"#;
    let body = json!({ "command": bomb }).to_string();
    let mut response = daemon.send(Method::POST, "/command", &[], body).await;
    let frame = response.body_mut().frame().await.unwrap().unwrap();
    let id = events(&frame.into_data().unwrap())[0].text.clone();
    // Other commands report why they cannot start; nothing hangs.
    let refused = eventually("there is no process left", async || {
        let events = daemon.run(json!({ "command": "true" })).await;
        let last = events.into_iter().next_back().unwrap();
        (last.exit_code() != Some(0)).then_some(last)
    });
    let refused = refused.await;
    assert!(refused.error.is_some(), "{refused:?}");
    assert_eq!(daemon.get("/ping").await.status, StatusCode::OK);
    // Blocking work still gets a thread.
    assert_eq!(
        daemon.get("/files/info?path=/etc/passwd").await.status,
        StatusCode::OK
    );
    let path = format!("/command?id={id}");
    eventually("the bomb is gone", async || {
        daemon.delete(&path).await;
        let events = daemon.run(json!({ "command": "true" })).await;
        (events.last().unwrap().exit_code() == Some(0)).then_some(())
    })
    .await;
    let status = daemon.get(&format!("/command/status/{id}")).await.json();
    assert_eq!(status["running"], false);
}

/// Lease on a file: opening the file blocks until the lease ends.
struct Lease(std::fs::File);

impl Lease {
    async fn on(path: &std::path::Path) -> Self {
        let file = std::fs::File::open(path).unwrap();
        // Missing in `libc`.
        const F_SETSIG: i32 = 10;
        // The default signal of a lease would end this process.
        Self::control(&file, F_SETSIG, libc::SIGURG).unwrap();
        // Another test may be starting a process, which holds a copy of every descriptor for a moment.
        eventually("no other process has the file open", async || {
            Self::control(&file, libc::F_SETLEASE, libc::F_WRLCK).ok()
        })
        .await;
        Self(file)
    }

    fn is_being_broken(&self) -> bool {
        Self::control(&self.0, libc::F_GETLEASE, 0).unwrap() != libc::F_WRLCK
    }

    #[expect(unsafe_code, reason = "no dependency offers these commands")]
    fn control(file: &std::fs::File, command: i32, argument: i32) -> std::io::Result<i32> {
        // SAFETY: the descriptor is open, and the commands take and return numbers.
        match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
            -1 => Err(std::io::Error::last_os_error()),
            done => Ok(done),
        }
    }
}

/// Below the 45 seconds after which the kernel ends a lease.
const SOON: Duration = Duration::from_secs(35);

/// Writes a program.
fn script(path: &std::path::Path, text: &str) {
    std::fs::write(path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).unwrap();
}

#[tokio::test]
async fn a_shell_that_cannot_be_opened_yet_does_not_block_requests_about_its_terminal() {
    let place = tempfile::tempdir().unwrap();
    let shell = place.path().join("bash");
    script(&shell, "#!/bin/sh\nexec /bin/sh -c 'echo started; cat'\n");
    let path = format!(
        "{}:{}",
        place.path().display(),
        std::env::var("PATH").unwrap()
    );
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("PATH", path);
    });
    let id = session(&daemon, json!({})).await;
    let lease = Lease::on(&shell).await;
    let others = async {
        eventually("the shell is being opened", async || {
            lease.is_being_broken().then_some(())
        })
        .await;
        for _ in 0..4 {
            let url = format!("/pty/{id}");
            let status = tokio::time::timeout(SOON, daemon.get(&url)).await;
            let status = status.expect("the daemon is held up").json();
            assert_eq!(status["running"], false);
        }
        drop(lease);
    };
    let attached = async {
        let mut terminal = Terminal::attach(&daemon, &id, "").await;
        terminal.until("started").await;
    };
    tokio::join!(attached, others);
}

/// Programs and directories may be on a file system that no longer answers.
#[tokio::test]
async fn programs_that_cannot_be_opened_yet_hold_up_no_other_command() {
    let daemon = daemon();
    let place = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| {
        let program = place.path().join(name);
        script(&program, "#!/bin/sh\necho started\n");
        program
    });
    let leases = [Lease::on(&one).await, Lease::on(&other).await];
    let others = async {
        eventually("the programs are being opened", async || {
            let all = leases.iter().all(Lease::is_being_broken);
            all.then_some(())
        })
        .await;
        for _ in 0..4 {
            let run = daemon.run(json!({ "command": "sleep 0.01; echo well" }));
            let events = tokio::time::timeout(SOON, run).await;
            let events = events.expect("the daemon is held up");
            assert_eq!(texts(&events, EventKind::Stdout), ["well"]);
        }
        drop(leases);
    };
    let run = |program| daemon.run(json!({ "argv": [program] }));
    let (first, second, ()) = tokio::join!(run(&one), run(&other), others);
    for events in [first, second] {
        assert_eq!(texts(&events, EventKind::Stdout), ["started"]);
    }
}
