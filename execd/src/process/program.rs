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

    /// A shell, which is found whatever the variables say (see [`shell`]), with arguments that may
    /// depend on its name.
    ///
    /// # Errors
    /// When there is no shell, and that of the function.
    pub fn bare_shell(
        variables: &Variables,
        arguments: impl FnOnce(&OsStr) -> io::Result<Vec<OsString>>,
    ) -> io::Result<Self> {
        let path = shell(variables.get("PATH"))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let arguments = arguments(&name)?;
        let argv = std::iter::once(name).chain(arguments).collect();
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
