//! The start script that is sourced before the entry point, so that its exports reach everything
//! (contract: execd §15, step 3).

use std::{
    convert::Infallible,
    ffi::OsString,
    os::unix::{ffi::OsStringExt, process::CommandExt},
    path::Path,
    process::Stdio,
};

use rustix::io::retry_on_intr;
use tokio::{io::AsyncReadExt, net::unix::pipe};
use tracing::warn;

use super::{Signals, Stood, stand_in_front};

use crate::{
    app::App,
    env::Variables,
    limits,
    process::{Exit, Program},
};

const ENV_SCRIPT: &str = "EXECD_BOOTSTRAP_PRE_SCRIPT";

/// Sources `$1` and prints the environment through `$2`, this program: not every image has a
/// program that prints it unambiguously. What the script itself prints goes to standard error.
const TEXT: &str = r#". "$1" >&2; exec "$2" print-environment"#;

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
        Ok((stood, printed)) => match stood.exit {
            Exit::Code(0) => variables(&printed).ok_or_else(|| NOT_TOLD.to_owned()),
            exit => Err(exit.to_string()),
        },
        Err(reason) => Err(reason),
    };
    match exports {
        Ok(variables) => app.environment.replace(variables),
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
) -> Result<(Stood, Vec<u8>), String> {
    let told = |error: std::io::Error| error.to_string();
    // A bare name means the current directory, not the search path.
    let script = std::path::absolute(script).map_err(told)?;
    std::fs::File::open(&script).map_err(told)?;
    let this = std::env::current_exe().map_err(told)?;
    let (sender, mut receiver) = pipe::pipe().map_err(told)?;
    let stdout = sender.into_blocking_fd().map_err(told)?;
    let program = Program::shell(TEXT, own).map_err(told)?;
    let mut command = program.command(own);
    command.args([OsString::from("sh"), script.into(), this.into()]);
    command.stdout(Stdio::from(stdout)).process_group(0);
    let process = app.processes.spawn(&mut command).map_err(told)?;
    // Our copy of the pipe's other end would keep it open for ever.
    drop(command);
    let mut printed = Vec::new();
    // What the script left in the background may hold the pipe, so its end is not waited for.
    let stood = tokio::select! {
        stood = stand_in_front(&process, signals) => stood,
        never = read(&mut receiver, &mut printed) => match never {},
    };
    read_rest(&receiver, &mut printed);
    Ok((stood, printed))
}

/// Reads until it is dropped. What nobody could use as an environment is not kept.
async fn read(from: &mut pipe::Receiver, printed: &mut Vec<u8>) -> Infallible {
    let mut piece = vec![0; limits::READ_CHUNK];
    while let Ok(len @ 1..) = from.read(&mut piece).await {
        keep(printed, &piece[..len]);
    }
    std::future::pending().await
}

/// Reads what is in the pipe. Asks the kernel: the runtime may not have heard of it yet.
fn read_rest(from: &pipe::Receiver, printed: &mut Vec<u8>) {
    let mut piece = vec![0; limits::READ_CHUNK];
    let mut left = limits::ENVIRONMENT;
    while left > 0
        && let Ok(len @ 1..) = retry_on_intr(|| rustix::io::read(from, piece.as_mut_slice()))
    {
        keep(printed, &piece[..len]);
        left = left.saturating_sub(len);
    }
}

fn keep(printed: &mut Vec<u8>, piece: &[u8]) {
    let room = limits::ENVIRONMENT - printed.len();
    printed.extend_from_slice(&piece[..piece.len().min(room)]);
}

/// Reads variables that are ended by NUL each, with another NUL at their end; `None` without that.
fn variables(printed: &[u8]) -> Option<Variables> {
    let whole = printed.strip_suffix(b"\0")?;
    if !(whole.is_empty() || whole.ends_with(b"\0")) {
        return None;
    }
    let entries = whole.split(|byte| *byte == 0);
    let variables = entries
        .filter_map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((text(&entry[..equals]), text(&entry[equals + 1..])))
        })
        .collect();
    Some(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_variables_are_read_back() {
        let read = variables(b"A=1\0B=two\nlines=x\0C=\0nonsense\0\0");
        let want = Variables::from_iter([("A", "1"), ("B", "two\nlines=x"), ("C", "")]);
        assert_eq!(read, Some(want));
        assert_eq!(variables(b"\0"), Some(Variables::default()));
        for cut in [&b""[..], b"A", b"A=1", b"A=1\0"] {
            assert_eq!(variables(cut), None);
        }
    }
}
