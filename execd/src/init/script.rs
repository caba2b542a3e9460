//! Start script, sourced before the entry point so that every process gets its exports (contract:
//! execd §15, step 3).

use std::{
    ffi::OsString,
    fs::File,
    os::unix::{fs::OpenOptionsExt, process::CommandExt},
    path::Path,
};

use rustix::fs::OFlags;
use tracing::warn;

use crate::{
    base::Base,
    env::{
        Variables,
        report::{Reader, Reported},
    },
    process::{Exit, Program},
    signals::{Signals, Supervised, supervise},
};

const ENV_SCRIPT: &str = "EXECD_BOOTSTRAP_PRE_SCRIPT";

/// Sources the script, if the environment names one. A failing script leaves the environment
/// unchanged. Signals are forwarded to it; if one of them stops the daemon, the result is the
/// script's exit status.
pub(super) async fn source(base: &Base, signals: &mut Signals) -> Option<Exit> {
    let own = base.environment.own();
    let script = own
        .get(ENV_SCRIPT)
        .filter(|path| !path.is_empty())?
        .to_owned();
    let exports = match run(base, &own, Path::new(&script), signals).await {
        Ok((supervised, _)) if supervised.stop_requested => return Some(supervised.exit),
        Ok((supervised, reported)) => match supervised.exit {
            Exit::Code(0) => reported.ok_or_else(|| NO_EXPORTS.to_owned()),
            exit => Err(exit.to_string()),
        },
        Err(reason) => Err(reason),
    };
    match exports {
        Ok(reported) => base.environment.replace(reported.variables),
        Err(reason) => warn!(script = %script.display(), reason, "start script not sourced"),
    }
    None
}

/// Error for a script that calls `exit`.
const NO_EXPORTS: &str = "it ended the shell before its exports could be reported";

/// Checks that the script is readable, since the shell's own message would be less clear.
fn check(script: &Path) -> Result<(), String> {
    let error_text = |error: std::io::Error| error.to_string();
    // Without it, opening a FIFO without a writer would block.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = File::options().read(true).custom_flags(flags).open(script);
    match opened
        .and_then(|file| file.metadata())
        .map_err(error_text)?
    {
        meta if meta.is_file() => Ok(()),
        _ => Err("it is not a regular file".to_owned()),
    }
}

async fn run(
    base: &Base,
    own: &Variables,
    script: &Path,
    signals: &mut Signals,
) -> Result<(Supervised, Option<Reported>), String> {
    let error_text = |error: std::io::Error| error.to_string();
    // A bare name refers to the current directory, not to the search path.
    let script = std::path::absolute(script).map_err(error_text)?;
    check(&script)?;
    let hardening = base.processes.hardening();
    if hardening.is_in_force()
        && let Err(reason) = hardening.open_trusted(&script)
    {
        // The sandbox's creator named the script, so it is sourced anyway (contract: execd §15).
        let script = script.display();
        warn!(%script, %reason, "the start script has rights that its possible writers lack");
    }
    // Output of the script goes to standard error, and the report to standard output.
    let (mut report, channel) = Reader::new().map_err(error_text)?;
    let report_to = channel.command(1).map_err(error_text)?;
    let text = format!(r#". "$1" >&2; exec {report_to}"#);
    let program = Program::shell(text, own).map_err(error_text)?;
    let mut command = program.command(own);
    command.args([OsString::from("sh"), script.into()]);
    command.stdout(channel.sender).process_group(0);
    let process = base.processes.spawn_own(&mut command).map_err(error_text)?;
    // A copy of the write end in this process would keep the socket open.
    drop(command);
    let supervised = tokio::select! {
        supervised = supervise(&process, signals) => supervised,
        never = report.read() => match never {},
    };
    Ok((supervised, report.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_is_no_regular_file_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), 0o600.into()).unwrap();
        std::fs::write(at("file"), "").unwrap();
        check(&at("file")).unwrap();
        for path in [at("pipe"), place.path().to_owned()] {
            assert_eq!(check(&path), Err("it is not a regular file".to_owned()));
        }
        assert!(check(&at("none")).unwrap_err().contains("No such file"));
    }
}
