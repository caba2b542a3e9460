//! The start script that is sourced before the entry point, so that its exports reach everything
//! (contract: execd §15, step 3).

use std::{
    ffi::OsString,
    os::unix::{ffi::OsStringExt, process::CommandExt},
    path::Path,
    process::Stdio,
};

use tokio::{io::AsyncReadExt, net::unix::pipe};
use tracing::warn;

use crate::{
    app::App,
    env::Variables,
    process::{Exit, Program},
};

const ENV_SCRIPT: &str = "EXECD_BOOTSTRAP_PRE_SCRIPT";

/// Sources `$1` and prints the environment through `$2`, this program: not every image has a
/// program that prints it unambiguously. What the script itself prints goes to standard error.
const TEXT: &str = r#". "$1" >&2; exec "$2" print-environment"#;

/// Sources the script, if the environment names one. A script that fails leaves the environment as
/// it was.
pub(super) async fn source(app: &App) {
    let own = app.environment.own();
    let Some(script) = own.get(ENV_SCRIPT).filter(|path| !path.is_empty()) else {
        return;
    };
    match exports(app, &own, Path::new(script)).await {
        Ok(variables) => app.environment.replace(variables),
        Err(reason) => warn!(script = %script.display(), reason, "start script not sourced"),
    }
}

async fn exports(app: &App, own: &Variables, script: &Path) -> Result<Variables, String> {
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
    receiver.read_to_end(&mut printed).await.map_err(told)?;
    match process.exited().await {
        Exit::Code(0) => Ok(variables(&printed)),
        exit => Err(exit.to_string()),
    }
}

/// Reads variables that are ended by NUL each.
fn variables(printed: &[u8]) -> Variables {
    let entries = printed.split(|byte| *byte == 0);
    entries
        .filter_map(|entry| {
            let equals = entry.iter().position(|byte| *byte == b'=')?;
            let text = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
            Some((text(&entry[..equals]), text(&entry[equals + 1..])))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_variables_are_read_back() {
        let read = variables(b"A=1\0B=two\nlines=x\0C=\0nonsense\0");
        let want = Variables::from_iter([("A", "1"), ("B", "two\nlines=x"), ("C", "")]);
        assert_eq!(read, want);
    }
}
