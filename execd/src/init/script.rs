//! The start script that is sourced before the entry point, so that its exports reach everything
//! (contract: execd §15, step 3).

use std::{ffi::OsString, os::unix::process::CommandExt, path::Path, process::Stdio};

use tracing::warn;

use super::{Signals, Stood, stand_in_front};
use crate::{
    app::App,
    env::{
        Variables,
        report::{Reader, Reported},
    },
    process::{Exit, Program},
};

const ENV_SCRIPT: &str = "EXECD_BOOTSTRAP_PRE_SCRIPT";

/// Sources `$1` and reports through `$2`, this program. What the script itself prints goes to
/// standard error.
const TEXT: &str = r#". "$1" >&2; exec "$2" report-state 1"#;

/// Sources the script, if the environment names one. A script that fails leaves the environment as
/// it was. Signals reach it; when the daemon was told to end meanwhile, this is how the script ended.
pub(super) async fn source(app: &App, signals: &mut Signals) -> Option<Exit> {
    let own = app.environment.own();
    let script = own
        .get(ENV_SCRIPT)
        .filter(|path| !path.is_empty())?
        .to_owned();
    let exports = match run(app, &own, Path::new(&script), signals).await {
        Ok((stood, _)) if stood.told_to_end => return Some(stood.exit),
        Ok((stood, reported)) => match stood.exit {
            Exit::Code(0) => reported.ok_or_else(|| NOT_TOLD.to_owned()),
            exit => Err(exit.to_string()),
        },
        Err(reason) => Err(reason),
    };
    match exports {
        Ok(reported) => app.environment.replace(reported.variables),
        Err(reason) => warn!(script = %script.display(), reason, "start script not sourced"),
    }
    None
}

/// What is wrong with a script that calls `exit`.
const NOT_TOLD: &str = "it ended the shell before its exports could be told";

async fn run(
    app: &App,
    own: &Variables,
    script: &Path,
    signals: &mut Signals,
) -> Result<(Stood, Option<Reported>), String> {
    let told = |error: std::io::Error| error.to_string();
    // A bare name means the current directory, not the search path.
    let script = std::path::absolute(script).map_err(told)?;
    // A pipe in its place has nobody at the other end.
    if !std::fs::metadata(&script).map_err(told)?.is_file() {
        return Err("it is no file".to_owned());
    }
    std::fs::File::open(&script).map_err(told)?;
    let floor = app.processes.floor();
    if floor.is_in_force()
        && let Err(doubt) = floor.open_trusted(&script)
    {
        // Whoever made the sandbox named it, so it is sourced all the same (contract: execd §15).
        let script = script.display();
        warn!(%script, %doubt, "the start script has rights that whoever may have written it lacks");
    }
    let this = std::env::current_exe().map_err(told)?;
    let (mut report, stdout) = Reader::new().map_err(told)?;
    let program = Program::shell(TEXT, own).map_err(told)?;
    let mut command = program.command(own);
    command.args([OsString::from("sh"), script.into(), this.into()]);
    command.stdout(Stdio::from(stdout)).process_group(0);
    let process = app.processes.spawn_own(&mut command).map_err(told)?;
    // Our copy of the pipe's other end would keep it open for ever.
    drop(command);
    let stood = tokio::select! {
        stood = stand_in_front(&process, signals) => stood,
        never = report.read() => match never {},
    };
    Ok((stood, report.finish()))
}
