//! What to run.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{find, shell};
use crate::env::Variables;

/// A program that was found, with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    argv: Vec<OsString>,
}

impl Program {
    /// A text for the shell, which is found whatever the variables say (see [`shell`]).
    ///
    /// # Errors
    /// When there is no shell.
    pub fn shell(text: impl Into<OsString>, variables: &Variables) -> io::Result<Self> {
        let path = shell(variables.get("PATH"))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let argv = vec![name, "-c".into(), text.into()];
        Ok(Self { path, argv })
    }

    /// A text for a shell that reads no start files, with an argument or none. The text may depend on
    /// the shell's name.
    ///
    /// # Errors
    /// When there is no shell.
    pub fn wrapped(
        text: impl FnOnce(&OsStr) -> OsString,
        argument: Option<&str>,
        variables: &Variables,
    ) -> io::Result<Self> {
        let path = shell(variables.get("PATH"))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let mut argv = vec![name.clone()];
        if name == "bash" {
            argv.extend(["--noprofile".into(), "--norc".into()]);
        }
        let text = text(&name);
        argv.extend(["-c".into(), text, name]);
        argv.extend(argument.map(Into::into));
        Ok(Self { path, argv })
    }

    /// Program and arguments, looked up in the variables' `PATH`.
    ///
    /// # Errors
    /// See [`find`]; `InvalidInput` when there is no program.
    pub fn direct(
        argv: Vec<OsString>,
        variables: &Variables,
        cwd: Option<&Path>,
    ) -> io::Result<Self> {
        let Some(name) = argv.first().filter(|name| !name.is_empty()) else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "no program named",
            ));
        };
        let path = find(name, variables.get("PATH"), cwd)?;
        Ok(Self { path, argv })
    }

    /// The command, with exactly these variables.
    ///
    /// The path is absolute or explicit, so that starting it needs no search in the child and goes
    /// the fast way.
    #[must_use]
    pub fn command(&self, variables: &Variables) -> Command {
        let mut command = Command::new(&self.path);
        command
            .arg0(
                self.argv
                    .first()
                    .map_or_else(|| OsStr::new(""), OsString::as_os_str),
            )
            .args(self.argv.iter().skip(1))
            .env_clear()
            .envs(variables.iter());
        command
    }
}
