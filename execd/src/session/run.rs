//! One run in a session.

use std::{
    convert::Infallible,
    ffi::OsStr,
    fs::File,
    io::{self, Write},
    os::{fd::OwnedFd, unix::process::CommandExt},
    path::PathBuf,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use osb_log::redact;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Resource, getrlimit},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::store::Session;
use crate::{
    app::App,
    env::report::{self, Reader},
    output::{End, EventReader, Outcome, Pipe, Pipes, Pump, Replay, Sink, Source, Writer},
    process::{Process, Program, inherit, reserve},
    telemetry::Operation,
};

/// Where the shell's report goes: above what scripts use by number, below what shells use for
/// themselves.
const REPORT: i32 = 100;
/// Where the shell finds a command that is too long for an argument.
const TEXT: i32 = 101;

/// Most bytes of one argument or variable, with the NUL at its end (`MAX_ARG_STRLEN`).
const ARGUMENT: usize = 128 << 10;

/// Keeps those numbers for shells, before many descriptors are open.
///
/// # Errors
/// When there are fewer numbers; shells cannot report then, or not get long commands.
pub fn reserve_number() -> io::Result<()> {
    reserve(REPORT)?;
    reserve(TEXT)
}

/// What to run.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) command: String,
    /// Instead of the session's directory.
    pub(super) cwd: Option<PathBuf>,
    pub(super) timeout: Duration,
}

/// Runs the order when its turn comes. The events are for the one reader: without it the run ends.
pub(super) fn start(app: &App, session: Arc<Session>, order: Order) -> EventReader {
    let (writer, reader) = Writer::new(&session.id, Replay::Never, &app.outputs);
    let run = attend(app.clone(), session, order, writer);
    app.tasks.spawn("session run", run);
    reader
}

async fn attend(app: App, session: Arc<Session>, order: Order, writer: Writer) {
    let not_started = async |writer: Writer, reason: &str| {
        let end = End::NotStarted(reason.to_owned());
        let outcome = Outcome::now(end, Duration::ZERO);
        app.telemetry.execution(Operation::InSession, &outcome);
        writer.finish(&outcome).await;
    };
    let left = writer.journal().left();
    let turn = tokio::select! {
        turn = session.turn.lock() => turn,
        () = session.deleted.cancelled() => return not_started(writer, "the session was deleted").await,
        () = left.cancelled() => return,
        () = app.tasks.stopping().cancelled() => return not_started(writer, "execd is stopping").await,
    };
    let command = &order.command;
    debug!(
        id = session.id,
        command = redact::shown(command),
        "session run wanted"
    );
    let began = Instant::now();
    let (process, pipes, mut report) = match spawn(&app, &session, &order) {
        Ok(started) => started,
        Err(error) => return not_started(writer, &error.to_string()).await,
    };
    info!(
        id = session.id,
        pid = process.pid().as_raw_nonzero(),
        "session run started"
    );
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
    app.telemetry.execution(Operation::InSession, &outcome);
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
    pump.linger(&app.outputs, app.tasks.stopping()).await;
}

/// Bytes that variables may take, so that a shell can be started with them. The one that reported may
/// have allowed itself more than it gets from the daemon.
fn room() -> usize {
    let stack = getrlimit(Resource::Stack).current.unwrap_or(u64::MAX);
    // A quarter of the stack is for arguments and variables, but at most 6 MiB; see execve(2).
    let all = (stack / 4).clamp(128 << 10, 6 << 20);
    let all = usize::try_from(all).expect("it is at most 6 MiB");
    all - ARGUMENT.min(all / 2)
}

/// Kills the run when its session was deleted or its client left.
async fn end_when_unwanted(
    session: &Session,
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

fn spawn(app: &App, session: &Session, order: &Order) -> io::Result<(Process, Vec<Pipe>, Reader)> {
    let mut state = session.state();
    let cwd = order.cwd.as_ref().or(state.cwd.as_ref());
    if let Some(cwd) = cwd {
        state.variables.set("PWD", cwd);
    }
    // Well before it is too long: there is a bound for it and the variables together, too.
    let file = (order.command.len() > ARGUMENT / 2)
        .then(|| in_file(&order.command))
        .transpose()?;
    let argument = file.is_none().then_some(order.command.as_str());
    let after = report_and_end()?;
    let wrapper = |shell: &OsStr| format!("{}\n{after}", begin(shell, argument)).into();
    let program = Program::wrapped(wrapper, argument, &state.variables)?;
    let (ours, theirs) = Pipes::new(true)?;
    let (report, to) = Reader::new()?;
    let mut command = program.command(&state.variables);
    command
        .stdin(Stdio::null())
        .stdout(theirs.stdout)
        .stderr(theirs.stderr)
        .process_group(0);
    if let Some(cwd) = cwd {
        command.current_dir(cwd);
    }
    inherit(&mut command, to, REPORT);
    if let Some(file) = file {
        inherit(&mut command, file, TEXT);
    }
    let process = app.processes.spawn(&mut command)?;
    Ok((process, ours, report))
}

/// A text in a file without a name.
fn in_file(text: &str) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create("execd", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file.into())
}

/// Runs the argument, else the text in the file, as if it were a script without arguments. `bash`
/// can take that text in as it takes an argument; no other shell could without help.
fn begin(shell: &OsStr, argument: Option<&str>) -> String {
    match argument {
        Some(_) => r#"eval "shift; $1""#.to_owned(),
        None if shell == "bash" => {
            format!(r#"eval "exec {TEXT}<&-; $(</proc/self/fd/{TEXT})""#)
        }
        None => format!(". /proc/self/fd/{TEXT}"),
    }
}

/// What follows the command: reports, and ends with its status. The report is run as a child, so
/// that the command's own trap on `EXIT` still runs at the end. What happens here is hidden from the
/// command's `set -x`.
///
/// The kernel gives no program a variable of [`ARGUMENT`] bytes, nor more than so many bytes of all
/// together. When the report cannot be run for that, it is run without the longest variables, by
/// the shell's own means alone. Words that a value may have put into the list of the exported ones
/// do no harm: at most they name a variable that is too long as well.
fn report_and_end() -> io::Result<String> {
    let this = std::env::current_exe()?;
    // A quote ends the quotes, stands escaped, and opens them again.
    let this = this.to_string_lossy().replace('\'', r"'\''");
    let report = format!("'{this}' {} {REPORT}", report::SUBCOMMAND);
    let left_out = report::LEFT_OUT;
    let [most, less, little, least] = [1, 4, 16, 64].map(|part| ARGUMENT / part);
    Ok(format!(
        r#"{{ set -- "$?"; set +x; {report} || case $? in (1) ;; (*) (
set +aeu
for __execd_most in {most} {less} {little} {least}; do (
{left_out}=$(LC_ALL=C; export -p | while IFS= read -r __execd_line; do
case $__execd_line in (export\ *|declare\ -*) ;; (*) continue;; esac
__execd_name=${{__execd_line%%=*}}
__execd_name=${{__execd_name##* }}
case $__execd_name in (''|[0-9]*|*[!A-Za-z0-9_]*) continue;; esac
eval "__execd_length=\$((\${{#$__execd_name}} + ${{#__execd_name}} + 2))"
[ "$__execd_length" -gt $__execd_most ] && printf '%s ' "$__execd_name"
done)
__execd_rest=${left_out}
while [ "$__execd_rest" ]; do
__execd_name=${{__execd_rest%% *}}
__execd_rest=${{__execd_rest#* }}
case ${{BASH_VERSION+x}} in (x) export -n "$__execd_name";; (*) unset "$__execd_name";; esac
done
export {left_out}
exec {report}
) && break; done
);; esac; }} >/dev/null 2>&1
exit "$1""#
    ))
}
