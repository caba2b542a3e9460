//! Choice and start of the entry point.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal},
    os::unix::process::CommandExt,
};

use crate::{
    base::Base,
    env::Variables,
    process::{Process, Program},
};

/// Reason why the entry point cannot run.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the entry point {name:?}")]
pub struct EntrypointError {
    name: String,
    source: io::Error,
}

impl EntrypointError {
    /// Exit status by the shell's convention: 127 if the program does not exist, 126 if it is not
    /// executable.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

/// Starts the entry point with the daemon's own terminal or streams.
pub(super) fn start(base: &Base, argv: Vec<OsString>) -> Result<Process, EntrypointError> {
    let variables = base.environment.for_entrypoint();
    let name = argv.first().map_or_else(
        || "a shell".to_owned(),
        |name| name.to_string_lossy().into_owned(),
    );
    let started = program(argv, &variables).and_then(|program| {
        let mut command = program.command(&variables);
        // On a terminal the entry point stays in the daemon's process group, which is the
        // foreground group. Otherwise its own group keeps its signals apart from the daemon's.
        if !io::stdin().is_terminal() {
            command.process_group(0);
        }
        base.processes.spawn(&mut command)
    });
    started.map_err(|source| EntrypointError { name, source })
}

/// Selects `BOOTSTRAP_CMD`, else `-c` and a command text, else the arguments, else a shell
/// (contract: execd §15).
fn program(argv: Vec<OsString>, variables: &Variables) -> io::Result<Program> {
    let cwd = std::env::current_dir().ok();
    let set = |name| variables.get(name).filter(|value| !value.is_empty());
    let text = match (set("BOOTSTRAP_CMD"), argv.split_first()) {
        (Some(text), _) => Some(text.to_owned()),
        (None, Some((first, words))) if first == "-c" => Some(words.join(OsStr::new(" "))),
        (None, _) => None,
    };
    match (text, set("BOOTSTRAP_SHELL")) {
        (Some(text), Some(shell)) => {
            let argv = vec![shell.to_owned(), "-c".into(), text];
            Program::direct(argv, variables, cwd.as_deref())
        }
        (Some(text), None) => Program::shell(text, variables),
        (None, shell) if argv.is_empty() => {
            let shells = shell
                .into_iter()
                .chain([OsStr::new("bash"), OsStr::new("sh")]);
            let mut found = shells
                .map(|shell| Program::direct(vec![shell.to_owned()], variables, cwd.as_deref()));
            let missing = || io::Error::new(io::ErrorKind::NotFound, "no arguments and no shell");
            found.find(Result::is_ok).unwrap_or_else(|| Err(missing()))
        }
        (None, _) => Program::direct(argv, variables, cwd.as_deref()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(argv: &[&str], variables: &[(&str, &str)]) -> io::Result<Program> {
        let variables = Variables::from_iter(variables.iter().copied());
        program(argv.iter().map(OsString::from).collect(), &variables)
    }

    #[test]
    fn only_command_texts_run_in_a_shell() {
        let none = Variables::default();
        let text = |text: &str| Program::shell(text, &none).unwrap();
        assert_eq!(
            chosen(&["-c", "echo", "a b"], &[]).unwrap(),
            text("echo a b")
        );
        let commanded = chosen(&["sleep", "1"], &[("BOOTSTRAP_CMD", "true")]);
        assert_eq!(commanded.unwrap(), text("true"));
        let direct = Program::direct(vec!["sh".into(), "-c".into()], &none, None).unwrap();
        assert_eq!(chosen(&["sh", "-c"], &[]).unwrap(), direct);
        let shell = Program::direct(vec!["sh".into()], &none, None).unwrap();
        assert_eq!(chosen(&[], &[("BOOTSTRAP_SHELL", "sh")]).unwrap(), shell);
    }

    #[test]
    fn missing_and_unexecutable_programs_have_different_exit_codes() {
        let code = |name: &str| {
            let source = chosen(&[name], &[]).unwrap_err();
            EntrypointError {
                name: name.into(),
                source,
            }
            .exit_code()
        };
        assert_eq!(code("no-such-program"), 127);
        assert_eq!(code("/etc/passwd"), 126);
        assert_eq!(
            chosen(&[], &[("PATH", "/nonexistent")]).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }
}
