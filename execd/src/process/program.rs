//! Programs to run.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{find, shell};
use crate::env::Variables;

/// Resolved program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    path: PathBuf,
    argv: Vec<OsString>,
}

impl Program {
    /// Selects the shell for a command text, independently of the variables (see [`shell`]).
    ///
    /// # Errors
    /// When there is no shell.
    pub fn shell(text: impl Into<OsString>, variables: &Variables) -> io::Result<Self> {
        let path = shell(variables.get("PATH"))?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_owned();
        let argv = vec![name, "-c".into(), text.into()];
        Ok(Self { path, argv })
    }

    /// Selects a shell independently of the variables (see [`shell`]), with arguments that may
    /// depend on its name.
    ///
    /// # Errors
    /// When there is no shell, and the error of the function.
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

    /// Resolves a program in the variables' `PATH`, with its arguments.
    ///
    /// # Errors
    /// See [`find`]; `InvalidInput` without a program.
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

    /// Command with exactly these variables.
    ///
    /// The path is absolute or explicit, so the child needs no search and takes the fast path.
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
