//! Variables: the daemon's own, those of the environment file, and those that children get.

mod expand;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod names;
pub mod report;

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, RwLock},
};

use rustix::{fs::OFlags, io::Errno};
use tracing::warn;

pub use expand::{Undefined, expand, substitute};

use self::names::{CONFIGURATION, ENVIRONMENT_FILE, NEVER_INHERITED};
use crate::{error::ApiResult, limits, links::LinkResolver, view::View};

/// Set of variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables(BTreeMap<OsString, OsString>);

impl Variables {
    /// Value of a variable.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&OsStr> {
        self.0.get(OsStr::new(name)).map(OsString::as_os_str)
    }

    /// Value of a variable as text, for expansion.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<String> {
        self.get(name)
            .map(|value| value.to_string_lossy().into_owned())
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.0.insert(name.into(), value.into());
    }

    /// All variables with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&OsString, &OsString)> {
        self.0.iter()
    }

    /// Removes a variable.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(OsStr::new(name));
    }

    fn without(&self, names: &[&str]) -> Self {
        let kept = |name: &OsString| !names.iter().any(|removed| name == removed);
        Self(
            self.0
                .iter()
                .filter(|(name, _)| kept(name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
        )
    }
}

impl<N: Into<OsString>, V: Into<OsString>> FromIterator<(N, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        Self(
            pairs
                .into_iter()
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }
}

/// Environment of the daemon. It is captured once; only a sourced start script replaces it.
#[derive(Debug)]
pub struct Environment {
    own: RwLock<Arc<Variables>>,
    /// View that paths are confined to, inside an isolated session.
    view: Option<View>,
    /// Resolver of links on the path to the environment file. Set with Landlock: the user's
    /// processes may then not read every file that the daemon may.
    links: OnceLock<Arc<LinkResolver>>,
}

impl Environment {
    /// Captures variables as the daemon's own.
    #[must_use]
    pub fn new(variables: Variables) -> Self {
        Self {
            own: RwLock::new(Arc::new(variables)),
            view: None,
            links: OnceLock::new(),
        }
    }

    /// Creates an environment without variables, whose paths are confined to an isolated session's
    /// view.
    #[must_use]
    pub(crate) fn confined(view: View) -> Self {
        Self {
            view: Some(view),
            ..Self::new(Variables::default())
        }
    }

    /// Resolves a path where paths are confined.
    pub(crate) fn confine(&self, path: &OsStr) -> Option<ApiResult<PathBuf>> {
        self.view.as_ref().map(|view| view.resolve(path))
    }

    /// Stops following links to the environment file that the user's processes may have created:
    /// these could otherwise read files through the daemon.
    pub(crate) fn set_link_resolver(&self, links: Arc<LinkResolver>) {
        let set = self.links.set(links);
        debug_assert!(set.is_ok(), "the link resolver is set once");
    }

    /// Ensures that the environment file exists, with its directories.
    ///
    /// # Errors
    /// The kernel's error; `ELOOP` for a link that must not be followed.
    pub(crate) fn make_file(&self, path: &Path) -> io::Result<()> {
        if let Some(links) = self.links.get() {
            return links.create_file(path);
        }
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let made = File::options()
            .append(true)
            .create(true)
            // Follows links in the parent directories, but not in the last component. A FIFO must
            // not block the open.
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(path);
        let is_link = |error: &io::Error| error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
        match made {
            Err(error) if !(is_link(&error) && path.exists()) => Err(error),
            _ => Ok(()),
        }
    }

    /// Replaces the daemon's own variables.
    pub fn replace(&self, variables: Variables) {
        *self.own.write().expect("no holder of this lock panics") = Arc::new(variables);
    }

    /// The daemon's own variables.
    #[must_use]
    pub fn own(&self) -> Arc<Variables> {
        Arc::clone(&self.own.read().expect("no holder of this lock panics"))
    }

    /// Variables of the user's entry point.
    #[must_use]
    pub fn for_entrypoint(&self) -> Variables {
        self.own().without(NEVER_INHERITED)
    }

    /// Variables of programs with rights that the user's processes lack. They exclude the
    /// environment file: otherwise its writers would control what runs with these rights.
    #[must_use]
    pub fn for_trusted(&self) -> Variables {
        self.own().without(CONFIGURATION)
    }

    /// Variables of the user's processes: the daemon's own without its configuration, overlaid with
    /// the current environment file.
    #[must_use]
    pub fn for_user(&self) -> Variables {
        let own = self.own();
        let mut variables = own.without(CONFIGURATION);
        for (name, value) in from_file(&own, self.links.get().map(AsRef::as_ref)) {
            variables.set(name, value);
        }
        variables
    }

    /// Home directory of the daemon, for `~`.
    #[must_use]
    pub fn home(&self) -> Option<String> {
        self.own().text("HOME")
    }
}

/// Path of the environment file, if configured.
#[must_use]
pub fn file_path(own: &Variables) -> Option<PathBuf> {
    let text = own.text(ENVIRONMENT_FILE).filter(|path| !path.is_empty())?;
    match expand(&text, |name| own.text(name), own.text("HOME").as_deref()) {
        Ok(path) => Some(PathBuf::from(path)),
        Err(error) => {
            warn!(%error, "environment file ignored");
            None
        }
    }
}

fn from_file(own: &Variables, links: Option<&LinkResolver>) -> Vec<(String, String)> {
    let Some(path) = file_path(own) else {
        return Vec::new();
    };
    let text = match open(&path, links).and_then(read_end) {
        Ok((text, is_cut)) => {
            if is_cut {
                let bytes = limits::ENV_FILE;
                warn!(path = %path.display(), bytes, "only the end of the environment file is read");
            }
            text
        }
        Err(error) => {
            // The file is missing until a client sets a variable, which needs no warning.
            if error.kind() != io::ErrorKind::NotFound {
                warn!(path = %path.display(), %error, "environment file ignored");
            }
            return Vec::new();
        }
    };
    let parsed = file::parse(&String::from_utf8_lossy(&text), |name| own.text(name));
    for line in parsed.skipped {
        warn!(path = %path.display(), line, "entry of the environment file skipped");
    }
    parsed.variables
}

/// Reads a file, or its last lines if it is too long: entries are appended, and the last of a name counts.
/// Returns whether it was too long.
fn read_end(mut file: File) -> io::Result<(Vec<u8>, bool)> {
    let length = file.metadata()?.len();
    let skipped = length.saturating_sub(limits::ENV_FILE);
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(skipped))?;
    file.take(limits::ENV_FILE).read_to_end(&mut text)?;
    if skipped > 0 {
        let first = text.iter().position(|byte| *byte == b'\n');
        text.drain(..first.map_or(text.len(), |end| end + 1));
    }
    Ok((text, skipped > 0))
}

/// Opens the environment file. Commands may replace it with a FIFO, which must not block, or with a
/// terminal, which must not become the daemon's.
fn open(path: &Path, links: Option<&LinkResolver>) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match links {
        Some(links) => links.open(path)?,
        None => File::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(path)?,
    };
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn of_a_long_file_the_last_whole_lines_are_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(".env");
        let most = usize::try_from(limits::ENV_FILE).unwrap();
        let long = format!("A=old\n{}\nA=new\n", "x".repeat(most));
        for (text, read, is_cut) in [("A=1\n", "A=1\n", false), (&*long, "A=new\n", true)] {
            std::fs::write(&path, text).unwrap();
            let found = read_end(File::open(&path).unwrap()).unwrap();
            assert_eq!(found, (read.as_bytes().to_vec(), is_cut));
        }
    }

    #[test]
    fn configuration_never_reaches_the_user() {
        let environment = Environment::new(Variables::from_iter([
            ("EXECD_ACCESS_TOKEN", "secret"),
            ("JUPYTER_TOKEN", "jupyter"),
            ("JUPYTER_PORT", "1"),
            ("EXECD_ENVS", "/nonexistent/.env"),
            ("PATH", "/bin"),
        ]));
        let user = environment.for_user();
        for absent in ["EXECD_ACCESS_TOKEN", "JUPYTER_TOKEN"] {
            assert_eq!(user.get(absent), None, "{absent}");
        }
        for present in ["JUPYTER_PORT", "EXECD_ENVS", "PATH"] {
            assert!(user.get(present).is_some(), "{present}");
        }
        let entrypoint = environment.for_entrypoint();
        assert_eq!(entrypoint.get("EXECD_ACCESS_TOKEN"), None);
        assert!(entrypoint.get("JUPYTER_TOKEN").is_some());
    }

    #[test]
    fn the_file_and_its_last_entry_take_precedence() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(".env");
        std::fs::write(&path, "A=1\nA=2\nB=$HOME/x\n").unwrap();
        let environment = Environment::new(Variables::from_iter([
            ("EXECD_ENVS", path.to_str().unwrap()),
            ("HOME", "/root"),
            ("A", "0"),
        ]));
        let user = environment.for_user();
        assert_eq!(user.text("A").as_deref(), Some("2"));
        assert_eq!(user.text("B").as_deref(), Some("/root/x"));
        let trusted = environment.for_trusted();
        assert_eq!(trusted.text("A").as_deref(), Some("0"));
        assert_eq!(trusted.get("B"), None);
    }

    #[test]
    fn only_trusted_links_to_the_file_are_followed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        std::fs::create_dir(at("shared")).unwrap();
        std::fs::write(at("closed"), "SECRET=1\n").unwrap();
        symlink(at("closed"), at("shared/.env")).unwrap();
        symlink(at("closed"), at("link")).unwrap();
        let seen = |file: &str, confined: bool| {
            let variables = Variables::from_iter([("EXECD_ENVS", at(file))]);
            let environment = Environment::new(variables);
            if confined {
                environment.set_link_resolver(Arc::new(LinkResolver::new(vec![at("shared")])));
            }
            environment.for_user().get("SECRET").is_some()
        };
        assert!(seen("shared/.env", false) && seen("link", false));
        assert!(!seen("shared/.env", true));
        assert!(seen("link", true) && seen("closed", true));
    }

    #[test]
    fn a_link_created_later_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let path = place.join(".env");
        std::fs::write(&path, "").unwrap();
        let links = LinkResolver::new(vec![place.clone()]);
        open(&path, Some(&links)).unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink("/etc/passwd", &path).unwrap();
        assert!(open(&path, Some(&links)).is_err());
    }

    #[test]
    fn a_pipe_as_environment_file_is_refused_at_once() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(".env");
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        for links in [None, Some(&LinkResolver::default())] {
            let error = open(&path, links).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
