//! Startup status of the preStart hook: a file with one line, for a start script outside execd.

use std::{fs, io, path::PathBuf, time::Duration};

use tracing::warn;

/// File that `--lifecycle-startup-status-file` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFile(PathBuf);

impl StatusFile {
    /// Status file at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Reports that the hook runs, and its time limit.
    pub(super) fn running(&self, timeout: Duration) {
        self.write(&format!("running {}\n", timeout.as_secs()));
    }

    /// Reports that the hook ended, or that there is none.
    pub(super) fn done(&self, well: bool) {
        self.write(if well { "done 0\n" } else { "done 1\n" });
    }

    /// Replaces the file atomically, so that readers see one whole line.
    fn write(&self, line: &str) {
        let mut temporary = self.0.clone().into_os_string();
        temporary.push(".new");
        let written: io::Result<()> =
            fs::write(&temporary, line).and_then(|()| fs::rename(&temporary, &self.0));
        if let Err(error) = written {
            warn!(path = %self.0.display(), %error, "startup status cannot be written");
        }
    }
}
