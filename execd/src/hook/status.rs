//! How a start script of somebody else learns how far the first hook is: a file with one line.

use std::{fs, io, path::PathBuf, time::Duration};

use tracing::warn;

/// The file that `--lifecycle-startup-status-file` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusFile(PathBuf);

impl StatusFile {
    /// At this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The hook runs, at most for this long.
    pub(super) fn running(&self, timeout: Duration) {
        self.tell(&format!("running {}\n", timeout.as_secs()));
    }

    /// It ended, or there is none.
    pub(super) fn done(&self, well: bool) {
        self.tell(if well { "done 0\n" } else { "done 1\n" });
    }

    /// Replaces the file at once: whoever reads it sees one whole line.
    fn tell(&self, line: &str) {
        let mut temporary = self.0.clone().into_os_string();
        temporary.push(".new");
        let told: io::Result<()> =
            fs::write(&temporary, line).and_then(|()| fs::rename(&temporary, &self.0));
        if let Err(error) = told {
            warn!(path = %self.0.display(), %error, "status of the start cannot be told");
        }
    }
}
