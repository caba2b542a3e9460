//! Real workers under supervision.

use std::{
    fs,
    future::Future,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, getpid, kill_process, set_child_subreaper};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Options,
    events::{Event, Kind, Reason},
    run::Supervision,
    status, supervise,
};

/// Only stops a hang.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any test. Workers are not: one that a failed test leaves behind ends by itself.
const LONG: Duration = Duration::from_secs(3600);

/// Folder of a test. Scripts get its path as `$0`.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// A shell script as the worker, with short waits before restarts.
    fn worker(&self, script: &str) -> Options {
        options(self.0.path(), script)
    }

    /// An executable script. A process of its own writes it: if this one did, a child that is
    /// started meanwhile by another test could keep the file open, and it could not be executed.
    fn program(&self, name: &str, script: &str) -> PathBuf {
        let path = self.path(name);
        let text = format!("#!/bin/sh\nset -- {:?}\n{script}\n", self.0.path());
        let write = r#"printf %s "$1" > "$0" && chmod +x "$0""#;
        let written = Command::new("sh")
            .arg("-c")
            .arg(write)
            .arg(&path)
            .arg(text)
            .status();
        assert!(written.unwrap().success());
        path
    }

    fn events(&self) -> Vec<Event> {
        parse_events(&self.text("log/events.jsonl"))
    }

    fn events_of(&self, kind: Kind) -> Vec<Event> {
        self.events()
            .into_iter()
            .filter(|event| event.kind == kind)
            .collect()
    }

    fn kinds(&self) -> Vec<Kind> {
        kinds(&self.events())
    }

    /// Waits for a file.
    async fn appears(&self, name: &str) {
        becomes_true(name, || self.path(name).exists()).await;
    }
}

fn parse_events(text: &str) -> Vec<Event> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn kinds(events: &[Event]) -> Vec<Kind> {
    events.iter().map(|event| event.kind).collect()
}

fn options(place: &Path, script: &str) -> Options {
    Options {
        arguments: vec!["-c".into(), script.into(), place.into()],
        event_log: Some(place.join("log/events.jsonl")),
        backoff_min: Duration::from_millis(1),
        backoff_max: Duration::from_millis(4),
        backoff_jitter: 0.0,
        stable_after: LONG,
        grace_period: LONG,
        ..Options::new("sh")
    }
}

async fn becomes_true(what: &str, is_true: impl Fn() -> bool) {
    let poll = async {
        while !is_true() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(DEADLINE, poll)
        .await
        .unwrap_or_else(|_| panic!("waited for {what}"));
}

/// Supervises until `ready`, then stops. Returns the exit status.
async fn run_until(options: Options, ready: impl Future<Output = ()>) -> u8 {
    let stop = CancellationToken::new();
    let supervision = Supervision::new(options, None, stop.clone()).unwrap();
    let stopper = async {
        ready.await;
        stop.cancel();
    };
    let both = async { tokio::join!(supervision.run(), stopper).0 };
    timeout(DEADLINE, both)
        .await
        .expect("the supervisor does not stop")
}

/// Supervises until the breaker trips. Returns the exit status.
async fn run_to_end(options: Options) -> u8 {
    let supervision = Supervision::new(options, None, CancellationToken::new()).unwrap();
    timeout(DEADLINE, supervision.run())
        .await
        .expect("the breaker does not trip")
}

/// Whether a process has ended. An orphan may remain until another process reaps it.
fn has_ended(pid: &str) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat
            .rsplit_once(") ")
            .is_some_and(|(_, rest)| rest.starts_with('Z')),
        Err(_) => true,
    }
}

#[tokio::test]
async fn a_worker_is_restarted_until_the_breaker_trips() {
    let place = Place::new();
    let options = Options {
        burst_max: 3,
        ..place.worker(r#"echo >> "$0/runs"; exit $(($(wc -l < "$0/runs") - 1))"#)
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    assert_eq!(place.text("runs"), "\n\n\n");
    use Kind::{Backoff, BurstExit, Exit, Start};
    let once = [Start, Exit, Backoff];
    assert_eq!(
        place.kinds(),
        [once.as_slice(), &once, &[Start, Exit, BurstExit]].concat()
    );
    for (index, exit) in place.events_of(Exit).iter().enumerate() {
        let (code, number) = (i32::try_from(index).unwrap(), Some(index as u64 + 1));
        let reason = if code == 0 {
            Reason::Exited
        } else {
            Reason::Crashed
        };
        assert_eq!(
            (exit.exit_code, exit.reason),
            (Some(code), Some(reason)),
            "{exit:?}"
        );
        assert_eq!(
            (exit.attempt, exit.generation),
            (number, number),
            "{exit:?}"
        );
        assert_eq!(exit.pid, place.events_of(Start)[index].pid, "{exit:?}");
    }
    let next: Vec<_> = place
        .events_of(Backoff)
        .iter()
        .map(|it| it.next_attempt)
        .collect();
    assert_eq!(next, [Some(2), Some(3)]);
    let burst = &place.events_of(BurstExit)[0];
    assert_eq!(
        (burst.attempts, burst.window.as_deref()),
        (Some(3), Some("5m0s"))
    );
}

#[tokio::test]
async fn a_tripped_breaker_can_be_ignored() {
    let place = Place::new();
    let options = Options {
        burst_max: 1,
        on_burst_exit: false,
        ..place.worker(r#"echo >> "$0/runs""#)
    };
    let third = || fs::read_to_string(place.path("runs")).is_ok_and(|runs| runs.len() >= 3);
    assert_eq!(
        run_until(options, becomes_true("a third run", third)).await,
        status::STOPPED
    );
    assert!(
        place.events_of(Kind::BurstExit).len() >= 2,
        "{:?}",
        place.kinds()
    );
}

#[tokio::test]
async fn a_stable_worker_resets_the_backoff_and_is_restarted_at_once() {
    let place = Place::new();
    let script = r#"
        echo >> "$0/runs"
        if [ "$(wc -l < "$0/runs")" = 3 ]; then
            for turn in $(seq 600); do
                if grep -q '"stable"' "$0/log/events.jsonl"; then exit 1; fi
                sleep 0.05
            done
        fi
        exit 1"#;
    let options = Options {
        // The other workers must end before this, on a busy machine, too.
        stable_after: Duration::from_secs(3),
        burst_max: 5,
        ..place.worker(script)
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    let waits: Vec<_> = place
        .events_of(Kind::Backoff)
        .iter()
        .map(|it| it.sleep_ms)
        .collect();
    assert_eq!(waits, [1, 2, 0, 1].map(Some));
    let stable = place.events_of(Kind::Stable);
    assert_eq!(stable.len(), 1, "{stable:?}");
    assert_eq!(
        (stable[0].attempt, stable[0].reset_backoff),
        (Some(3), Some(true))
    );
    assert!(stable[0].duration_ms >= Some(3000), "{stable:?}");
    assert_eq!(place.events_of(Kind::Exit)[2].reason, Some(Reason::Crashed));
}

#[tokio::test]
async fn a_worker_that_ran_for_less_than_a_backoff_is_not_restarted_at_once() {
    let place = Place::new();
    let options = Options {
        stable_after: Duration::ZERO,
        backoff_min: LONG,
        backoff_max: LONG,
        ..place.worker("exit 1")
    };
    let waits = || {
        fs::read_to_string(place.path("log/events.jsonl"))
            .unwrap()
            .contains("sleep_ms")
    };
    assert_eq!(
        run_until(options, becomes_true("a wait", waits)).await,
        status::STOPPED
    );
    use Kind::{Backoff, Exit, Shutdown, Start};
    assert_eq!(place.kinds(), [Start, Exit, Backoff, Shutdown]);
    assert_eq!(place.events_of(Backoff)[0].sleep_ms, Some(3_600_000));
}

#[tokio::test]
async fn a_worker_may_use_the_grace_period() {
    let place = Place::new();
    let script = r#"
        trap 'touch "$0/asked"; exit 3' TERM
        touch "$0/ready"
        for turn in $(seq 600); do sleep 0.05; done"#;
    let options = Options {
        post_exit: vec![place.program("after", r#"touch "$1/cleaned""#)],
        ..place.worker(script)
    };
    assert_eq!(
        run_until(options, place.appears("ready")).await,
        status::STOPPED
    );
    assert!(place.path("asked").exists());
    assert!(
        place.path("cleaned").exists(),
        "hooks run while the supervisor stops, too"
    );
    use Kind::{Exit, Postexit, Shutdown, Start};
    assert_eq!(place.kinds(), [Start, Exit, Postexit, Shutdown]);
    let exit = &place.events_of(Exit)[0];
    assert_eq!(
        (exit.exit_code, exit.reason),
        (Some(3), Some(Reason::Shutdown))
    );
}

#[tokio::test]
async fn a_worker_that_does_not_stop_is_killed_with_its_group() {
    let place = Place::new();
    let script = r#"
        trap '' TERM
        sleep 100 &
        echo $! > "$0/child"
        touch "$0/ready"
        wait"#;
    let options = Options {
        grace_period: Duration::from_millis(50),
        ..place.worker(script)
    };
    assert_eq!(
        run_until(options, place.appears("ready")).await,
        status::STOPPED
    );
    let exit = &place.events_of(Kind::Exit)[0];
    assert_eq!(
        (exit.exit_code, exit.signal.as_deref()),
        (Some(-1), Some("killed"))
    );
    assert_eq!(exit.reason, Some(Reason::Shutdown));
    let child = place.text("child");
    becomes_true("the end of the worker's child", || has_ended(child.trim())).await;
}

#[tokio::test]
async fn a_failed_pre_start_counts_as_a_launch() {
    let place = Place::new();
    let options = Options {
        pre_start: vec![
            place.program("first", "exit 3"),
            place.program("second", ""),
        ],
        burst_max: 2,
        ..place.worker(r#"touch "$0/ran""#)
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    assert!(!place.path("ran").exists());
    use Kind::{Backoff, BurstExit, Prestart};
    let want = [Prestart, Prestart, Backoff, Prestart, Prestart, BurstExit];
    assert_eq!(place.kinds(), want);
    let hooks = place.events_of(Prestart);
    assert_eq!(hooks[0].hook.as_deref(), place.path("first").to_str());
    assert_eq!((hooks[0].exit_code, hooks[1].exit_code), (Some(3), Some(0)));
    assert_eq!(hooks[0].error.as_deref(), Some("exit status 3"));
    assert_eq!(hooks[1].error, None);
}

#[tokio::test]
async fn a_worker_starts_after_its_pre_start() {
    let place = Place::new();
    let options = Options {
        pre_start: vec![place.program("before", r#"touch "$1/prepared""#)],
        burst_max: 1,
        ..place.worker(r#"test -e "$0/prepared""#)
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    assert_eq!(place.events_of(Kind::Exit)[0].reason, Some(Reason::Exited));
}

#[tokio::test]
async fn slow_and_missing_hooks_fail() {
    let place = Place::new();
    let options = Options {
        pre_start: vec![
            place.program("slow", "exec sleep 100"),
            "/nowhere/hook".into(),
        ],
        pre_start_timeout: Duration::from_millis(50),
        burst_max: 1,
        ..place.worker("exit 0")
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    let hooks = place.events_of(Kind::Prestart);
    assert_eq!(hooks[0].error.as_deref(), Some("killed after 50ms"));
    assert_eq!(
        (hooks[0].exit_code, hooks[0].signal.as_deref()),
        (Some(-1), Some("killed"))
    );
    let error = hooks[1].error.as_deref().unwrap_or_default();
    assert!(
        error.starts_with("cannot be started: No such file"),
        "{error}"
    );
}

#[tokio::test]
async fn a_stop_does_not_wait_for_a_pre_start() {
    let place = Place::new();
    let options = Options {
        pre_start: vec![
            place.program("slow", r#"touch "$1/ready"; exec sleep 100"#),
            place.program("other", r#"touch "$1/went-on""#),
        ],
        pre_start_timeout: LONG,
        ..place.worker("exit 0")
    };
    assert_eq!(
        run_until(options, place.appears("ready")).await,
        status::STOPPED
    );
    assert_eq!(place.kinds(), [Kind::Prestart, Kind::Shutdown]);
    assert!(!place.path("went-on").exists());
}

#[tokio::test]
async fn post_exit_hooks_learn_how_the_worker_ended() {
    let place = Place::new();
    let script = r#"
        if [ -e "$0/second" ]; then kill -KILL $$; fi
        touch "$0/second"
        exit 7"#;
    let options = Options {
        post_exit: vec![place.program("after", r#"env | grep ^WORKER_ | sort >> "$1/env""#)],
        burst_max: 2,
        ..place.worker(script)
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    let exits = place.events_of(Kind::Exit);
    assert_eq!(
        (exits[0].reason, exits[1].reason),
        (Some(Reason::Crashed), Some(Reason::Signaled))
    );
    let mut want = String::new();
    for (exit, code, signal) in [(&exits[0], 7, ""), (&exits[1], -1, "killed")] {
        let (attempt, pid) = (exit.attempt.unwrap(), exit.pid.unwrap());
        let duration = exit.duration_ms.unwrap();
        want += &format!(
            "WORKER_ATTEMPT={attempt}\nWORKER_DURATION_MS={duration}\nWORKER_EXIT_CODE={code}\n\
             WORKER_PID={pid}\nWORKER_SIGNAL={signal}\n"
        );
    }
    assert_eq!(place.text("env"), want);
}

#[tokio::test]
async fn a_worker_that_cannot_be_started_counts_as_a_launch() {
    let place = Place::new();
    let options = Options {
        program: "/nowhere/egress".into(),
        burst_max: 2,
        ..place.worker("")
    };
    assert_eq!(run_to_end(options).await, status::TRIPPED);
    use Kind::{Backoff, BurstExit, Exit};
    assert_eq!(place.kinds(), [Exit, Backoff, Exit, BurstExit]);
    let exit = &place.events_of(Exit)[0];
    assert_eq!((exit.reason, exit.pid), (Some(Reason::LaunchFailed), None));
    let error = exit.error.as_deref().unwrap_or_default();
    assert!(error.contains("No such file"), "{error}");
}

#[tokio::test]
async fn an_event_log_that_cannot_be_opened_is_an_error() {
    let options = Options {
        event_log: Some("/dev/null/events.jsonl".into()),
        ..Options::new("true")
    };
    assert_eq!(supervise(options, None).await, status::FAILED);
}

/// Variable with the folder for the supervisor in a process of its own.
const OWN_PROCESS: &str = "OSB_TEST_SUPERVISOR";

/// Signals and orphans concern the whole process, so this test starts itself again as the
/// supervisor, in a process that adopts orphans as the first one of a container does.
#[tokio::test]
async fn the_first_process_stops_on_sigterm_reaps_orphans_and_passes_output_on() {
    if let Some(place) = std::env::var_os(OWN_PROCESS) {
        set_child_subreaper(Some(getpid())).unwrap();
        let place = Path::new(&place);
        let script = r#"
            echo from the worker
            sh -c 'sleep 0.1 & echo $! > "$0/orphan"' "$0"
            touch "$0/ready"
            exec sleep 100"#;
        let options = Options {
            event_log: None,
            ..options(place, script)
        };
        let status = supervise(options, None).await;
        fs::write(place.join("status"), status.to_string()).unwrap();
        return;
    }
    let place = Place::new();
    let (_, module) = module_path!().split_once("::").unwrap();
    let name = "the_first_process_stops_on_sigterm_reaps_orphans_and_passes_output_on";
    let process = tokio::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{name}"), "--nocapture"])
        .env(OWN_PROCESS, place.0.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    place.appears("ready").await;
    let orphan = place.text("orphan");
    // It stays in the list of processes until it is reaped.
    let is_reaped = || !Path::new("/proc").join(orphan.trim()).exists();
    becomes_true("the reaping of the orphan", is_reaped).await;
    let pid = i32::try_from(process.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let output = timeout(DEADLINE, process.wait_with_output()).await;
    let output = output.expect("the supervisor does not stop").unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        stdout.lines().any(|line| line == "from the worker"),
        "{stdout}"
    );
    assert_eq!(place.text("status"), status::STOPPED.to_string());
    let events = parse_events(&String::from_utf8_lossy(&output.stderr));
    assert_eq!(kinds(&events), [Kind::Start, Kind::Exit, Kind::Shutdown]);
    assert_eq!(events[1].signal.as_deref(), Some("terminated"));
    assert_eq!(events[1].reason, Some(Reason::Shutdown));
}
