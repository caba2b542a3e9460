//! Run in a session.

use std::{
    convert::Infallible,
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use osb_log::redact;
use osb_protocol::execd::history::CommandKind;
use rustix::{
    fs::{Access, access},
    io::Errno,
    process::{Resource, getrlimit},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{
    script::{Script, TEXT},
    store::ShellSession,
};
use crate::{
    base::Base,
    blocking::{in_place, start_in_place},
    env::report::Reader,
    history::Begun,
    output::{
        End, EventReader, NOT_STARTED, Outcome, OutputPipes, Pipes, Pump, Replay, Sink, Source,
        Writer,
    },
    process::{Place, Process, Program, inherit},
    script::ARGUMENT,
    telemetry::Operation,
};

/// Prepares the descriptor numbers of shells. Must be called before the first thread starts and
/// many descriptors are open.
///
/// # Errors
/// When the limit of open files is too low; shells then cannot report their state, or receive long
/// commands.
pub fn reserve_numbers() -> io::Result<()> {
    Place::out_of_reach().prepare()?;
    Place::at(TEXT).prepare()
}

/// Code of a run with its settings.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: String,
    /// Overrides the session's directory.
    pub(super) cwd: Option<PathBuf>,
    pub(super) timeout: Duration,
}

/// Runs the order when its turn comes. A single client reads the events; when it disconnects, the
/// run ends.
pub(super) fn start(base: &Base, session: Arc<ShellSession>, order: Order) -> EventReader {
    let (writer, reader) = Writer::new(&session.id, Replay::Never, &base.outputs);
    let used = session.activity.begin();
    let run = run_to_end(base.clone(), session, order, writer);
    base.tasks.spawn("session run", async move {
        run.await;
        drop(used);
    });
    reader
}

async fn run_to_end(base: Base, session: Arc<ShellSession>, order: Order, mut writer: Writer) {
    let not_started = async |writer: Writer, reason: &str| {
        let end = End::NotStarted(reason.to_owned());
        let outcome = Outcome::now(end, Duration::ZERO);
        base.telemetry.execution(Operation::InSession, &outcome);
        writer.finish(&outcome).await;
    };
    let left = writer.journal().left();
    let turn = tokio::select! {
        turn = session.turn.lock() => turn,
        () = session.deleted.cancelled() => return not_started(writer, "the session was deleted").await,
        () = left.cancelled() => return,
        () = base.tasks.stopping().cancelled() => return not_started(writer, "execd is stopping").await,
    };
    let command = &order.command;
    debug!(
        id = session.id,
        command = redact::shown(command),
        "session run wanted"
    );
    let began = Instant::now();
    let number = base.history.begin(Begun {
        id: None,
        kind: CommandKind::Session,
        command,
        cwd: order.cwd.as_deref().map(|cwd| cwd.display().to_string()),
        uid: None,
    });
    let started = start_in_place(|| spawn(&base, &session, &order)).await;
    let started = started
        .map_err(|busy| busy.to_string())
        .and_then(|started| started.map_err(|error| error.to_string()));
    let Started {
        process,
        pipes,
        mut report,
        lost,
    } = match started {
        Ok(started) => started,
        Err(reason) => {
            base.history.end(number, NOT_STARTED, Some(reason.clone()));
            return not_started(writer, &reason).await;
        }
    };
    info!(
        id = session.id,
        pid = process.pid().as_raw_nonzero(),
        "session run started"
    );
    if let Some(lost) = lost {
        writer.write(Source::Stderr, lost.notice().into()).await;
    }
    let mut pump = Pump {
        process: process.clone(),
        sink: Sink::Events(writer),
        pipes,
        began,
        timeout: Some(order.timeout),
    };
    let outcome = tokio::select! {
        outcome = pump.until_end() => outcome,
        never = end_when_unwanted(&session, &left, &process) => match never {},
        never = report.read() => match never {},
    };
    info!(id = session.id, end = ?outcome.end, "session run ended");
    base.telemetry.execution(Operation::InSession, &outcome);
    base.history
        .end(number, outcome.exit_code(), outcome.error());
    if let Some(mut reported) = report.finish() {
        reported.fit(room());
        if let Sink::Events(writer) = &mut pump.sink
            && !reported.left_out.is_empty()
        {
            let names = reported.left_out.join(", ");
            warn!(id = session.id, names, "variables too long to be kept");
            let text = format!("[execd: too long to outlive the run: {names}]\n");
            writer.write(Source::Stderr, text.into()).await;
        }
        session.adopt(reported);
    }
    pump.sink.finish(&outcome).await;
    drop(turn);
    pump.linger(&base.outputs, base.tasks.stopping()).await;
}

/// Bytes available for variables, so that a shell can start with them. The reporting shell may have
/// raised its own limits above the daemon's.
fn room() -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    // Arguments and variables may use a quarter of the stack, but at most 6 MiB; see execve(2).
    let most = (stack / 4).clamp(128 << 10, 6 << 20);
    let all = usize::try_from(most).expect("it is at most 6 MiB");
    all - ARGUMENT.min(all / 2)
}

/// Kills the run when its session is deleted or its client disconnects.
async fn end_when_unwanted(
    session: &ShellSession,
    left: &CancellationToken,
    process: &Process,
) -> Infallible {
    tokio::select! {
        () = session.deleted.cancelled() => {}
        () = left.cancelled() => {}
    }
    process.kill_tree();
    std::future::pending().await
}

/// Started shell of a run.
struct Started {
    process: Process,
    pipes: OutputPipes,
    report: Reader,
    lost: Option<LostDirectory>,
}

/// Directory of a session that can no longer be entered.
#[derive(Debug)]
struct LostDirectory {
    path: PathBuf,
    reason: Errno,
}

impl LostDirectory {
    /// Checks a directory before a shell starts there.
    fn check(path: &Path) -> Option<Self> {
        // The dot makes the kernel search the directory itself.
        let entered = in_place(|| access(path.join("."), Access::EXEC_OK));
        let path = path.to_owned();
        entered.err().map(|reason| Self { path, reason })
    }

    /// Line of output, in the words of a shell.
    fn notice(&self) -> String {
        let path = self.path.to_string_lossy().replace(char::is_control, "?");
        let reason = io::Error::from(self.reason).to_string();
        // Without the number that the standard library appends.
        let reason = reason.split(" (os error").next().unwrap_or_default();
        format!("cd: {path}: {reason}\n")
    }
}

/// Starts the shell in the directory of the order or else of the session. If the latter was removed,
/// the shell starts where that of a session without a directory does.
fn spawn(base: &Base, session: &ShellSession, order: &Order) -> io::Result<Started> {
    let mut state = session.state();
    let remembered = state.cwd.as_deref().filter(|_| order.cwd.is_none());
    let lost = remembered.and_then(LostDirectory::check);
    let cwd = order
        .cwd
        .as_deref()
        .or(remembered)
        .filter(|_| lost.is_none());
    match cwd {
        Some(cwd) => state.variables.set("PWD", cwd),
        None if lost.is_some() => state.variables.remove("PWD"),
        None => {}
    }
    let (ours, theirs) = Pipes::new(true)?;
    let (report, channel) = Reader::new()?;
    let mut place = Place::out_of_reach();
    let sender = place.hold(&channel.sender)?;
    let report_to = channel.command(place.number())?;
    let mut script = None;
    let program = Program::bare_shell(&state.variables, |shell| {
        let made = script.insert(Script::new(shell, &order.command, &report_to)?);
        Ok(std::mem::take(&mut made.arguments))
    })?;
    let script = script.expect("a shell that was found has been given its script");
    let mut command = program.command(&state.variables);
    command
        .stdin(script.input.map_or_else(Stdio::null, Stdio::from))
        .stdout(theirs.stdout)
        .stderr(theirs.stderr)
        .process_group(0);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    inherit(&mut command, sender, place);
    if let Some(text) = script.text {
        inherit(&mut command, text, Place::at(TEXT));
    }
    let process = base.processes.spawn(&mut command)?;
    Ok(Started {
        process,
        pipes: ours,
        report,
        lost,
    })
}
