//! File systems that do not answer: only what looks into them may wait.

use std::{
    ffi::CString,
    fs,
    os::fd::AsRawFd,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering},
};

use futures::future::join_all;
use osb_protocol::execd::event::EventKind;
use serde_json::json;

use super::{SOON, needs_root};
use crate::{
    pty::{Terminal, session},
    support::{Daemon, daemon, eventually, texts},
};

/// A file system whose server never answers: a process that looks into it hangs.
struct Unanswering {
    place: tempfile::TempDir,
    /// Closing it fails the requests that wait.
    server: Option<fs::File>,
}

impl Unanswering {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("bin")).unwrap();
        Self {
            place,
            server: None,
        }
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("bin")
    }

    fn mount(&mut self) {
        needs_root("mount");
        let mut options = fs::File::options();
        let server = options.read(true).write(true).open("/dev/fuse").unwrap();
        let fd = server.as_raw_fd();
        let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
        let data = CString::new(data).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", self.path(), "fuse", flags, Some(data.as_c_str())).unwrap();
        self.server = Some(server);
    }

    /// Number of threads of the daemon that wait for it, or for a thread that does.
    fn waiting(daemon: &Daemon) -> usize {
        let threads = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
        let waits = threads.filter(|thread| {
            let stat = thread.as_ref().unwrap().path().join("stat");
            let stat = fs::read_to_string(stat).unwrap_or_default();
            stat.contains(") D ")
        });
        waits.count()
    }
}

impl Drop for Unanswering {
    fn drop(&mut self) {
        if self.server.take().is_some() {
            let flags = rustix::mount::UnmountFlags::FORCE | rustix::mount::UnmountFlags::DETACH;
            rustix::mount::unmount(self.path(), flags).unwrap();
        }
    }
}

/// The `PATH` and the directories of sessions may lie on a file system that no longer answers.
#[tokio::test]
async fn a_file_system_that_hangs_holds_up_only_who_looks_into_it() {
    let mut hung = Unanswering::new();
    let path = format!(
        "{}:{}",
        hung.path().display(),
        std::env::var("PATH").unwrap()
    );
    let daemon = Daemon::start(&["--port", "0"], |command| {
        command.env("PATH", path);
    });
    let mut shells = Vec::new();
    let mut terminals = Vec::new();
    for _ in 0..2 {
        let created = daemon.post("/session", json!({})).await.json();
        shells.push(created["session_id"].as_str().unwrap().to_owned());
        terminals.push(session(&daemon, json!({})).await);
    }
    hung.mount();
    let inside = hung.path().join("x/..");
    let runs = shells.iter().map(|id| {
        let url = format!("/session/{id}/run");
        let daemon = &daemon;
        async move { drop(daemon.post(&url, json!({ "command": "true" })).await) }
    });
    let opens = terminals.iter().map(|id| {
        let daemon = &daemon;
        async move { drop(Terminal::open(daemon, id, "").await) }
    });
    let creates = (0..2).map(|_| async {
        drop(daemon.post("/session", json!({ "cwd": inside })).await);
    });
    let others = async {
        eventually("everyone hangs", async || {
            (Unanswering::waiting(&daemon) >= 6).then_some(())
        })
        .await;
        for _ in 0..4 {
            let ping = tokio::time::timeout(SOON, daemon.get("/ping")).await;
            assert_eq!(ping.expect("the daemon is held up").status, 200);
        }
        drop(hung);
    };
    tokio::join!(join_all(runs), join_all(opens), join_all(creates), others);
}

/// Starts that hang have places of their own, so that threads are left for everything else.
#[tokio::test]
async fn starts_that_hang_leave_everything_else_running() {
    // More than execd has threads.
    const STARTS: usize = 72;
    const PLACES: usize = 16;
    let mut hung = Unanswering::new();
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "text").unwrap();
    let daemon = daemon();
    let terminal = session(&daemon, json!({})).await;
    let mut terminal = Terminal::attach(&daemon, &terminal, "").await;
    let shell = daemon.post("/session", json!({})).await.json();
    let run = format!("/session/{}/run", shell["session_id"].as_str().unwrap());
    hung.mount();
    let inside = hung.path();
    let program = inside.join("program");
    let refused = AtomicUsize::new(0);
    let starts = (0..STARTS).map(|number| {
        let (path, body) = match number % 4 {
            0 => ("/command", json!({ "command": "true", "cwd": inside })),
            1 => ("/command", json!({ "argv": [program], "background": true })),
            2 => (run.as_str(), json!({ "command": "true", "cwd": inside })),
            _ => ("/session", json!({ "cwd": program.join("..") })),
        };
        let (daemon, refused) = (&daemon, &refused);
        async move {
            let answer = daemon.post(path, body).await;
            if answer.status == 503 {
                assert_eq!(answer.code(), "SERVICE_UNAVAILABLE");
                assert_eq!(answer.headers["retry-after"], "1");
                let text = answer.text();
                assert!(text.contains("16 starts of processes"), "{text}");
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let others = async {
        eventually("as many hang as have a place", async || {
            (Unanswering::waiting(&daemon) >= PLACES).then_some(())
        })
        .await;
        eventually("the others are refused", async || {
            (refused.load(Ordering::Relaxed) == STARTS - PLACES).then_some(())
        })
        .await;
        let everything_else = async {
            for round in 0..4 {
                assert_eq!(daemon.get("/ping").await.status, 200);
                assert_eq!(daemon.get("/metrics").await.status, 200);
                let read = format!("/files/download?path={}", file.display());
                assert_eq!(daemon.get(&read).await.text(), "text");
                let typed = format!("echo round''{round}\n");
                terminal.type_in(&typed).await;
                terminal.until(&format!("round{round}")).await;
            }
        };
        let done = tokio::time::timeout(SOON, everything_else).await;
        done.expect("the daemon is held up");
        drop(hung);
    };
    tokio::join!(join_all(starts), others);
    assert_eq!(refused.load(Ordering::Relaxed), STARTS - PLACES);
    let events = daemon.run(json!({ "command": "echo well" })).await;
    assert_eq!(texts(&events, EventKind::Stdout), ["well"]);
}
