//! Resolution of paths in which the user's processes may have created links.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, open, openat2},
    io::Errno,
};
use tracing::warn;

/// The kernel's limit of links in one path.
const LINKS: usize = 40;

/// Resolved paths from variables. Only the sandbox's creator changes these variables.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// Result of the first resolution of each path; `None` when it was in doubt.
    settled: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Places that the user's processes may write, under every name.
    writable: Vec<PathBuf>,
}

impl Links {
    /// Creates a resolver for processes that may write there.
    pub(crate) fn new(writable: Vec<PathBuf>) -> Self {
        Self(Mutex::new(Known {
            writable,
            ..Known::default()
        }))
    }

    /// Resolves a path, or returns the result of its first resolution. `None` when the user's
    /// processes may have created one of the links.
    pub(crate) fn settle(&self, path: &Path) -> Option<PathBuf> {
        let path = std::path::absolute(path).ok()?;
        let mut known = self.known();
        if let Some(settled) = known.settled.get(&path) {
            return settled.clone();
        }
        let settled = settled(&path, &known.writable);
        if settled.is_none() {
            warn_of(&path);
        }
        known.settled.insert(path, settled.clone());
        settled
    }

    /// Opens a file to read it, and follows no link that the user's processes may have created:
    /// they may choose its contents, but must not read files through the daemon.
    ///
    /// # Errors
    /// The kernel's error; `ELOOP` for such a link.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let settled = self.settle(path).ok_or(Errno::LOOP)?;
        let flags = OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = openat2(
            CWD,
            settled,
            flags,
            Mode::empty(),
            ResolveFlags::NO_SYMLINKS,
        )?;
        Ok(file.into())
    }

    /// Ensures that a file exists, with its directories, and follows no link that the user's
    /// processes may have created. The resolved path is not remembered: it may change until its
    /// first use.
    ///
    /// # Errors
    /// The kernel's error; `ELOOP` for such a link.
    pub(crate) fn make(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let settled = settled(&path, &self.known().writable).ok_or(Errno::LOOP)?;
        let mut rest = names(&settled);
        if rest.is_empty() {
            return Err(Errno::ISDIR.into());
        }
        let file = rest.remove(0);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut directory = open("/", flags, Mode::empty())?;
        while let Some(name) = rest.pop() {
            let no_links = ResolveFlags::NO_SYMLINKS;
            let step = || openat2(&directory, &name, flags, Mode::empty(), no_links);
            let next = match step() {
                Err(Errno::NOENT) => match mkdirat(&directory, &name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => step(),
                    Err(errno) => Err(errno),
                },
                done => done,
            };
            directory = next?;
        }
        // Without `O_NONBLOCK`, opening a FIFO without a reader would block.
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK;
        let flags = flags | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        openat2(&directory, &file, flags, mode, ResolveFlags::NO_SYMLINKS)?;
        Ok(())
    }

    /// Places that the user's processes may write, under every name.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        self.known().writable.clone()
    }

    /// Adds writable places and re-resolves cached paths.
    pub(crate) fn note_writable(&self, places: impl IntoIterator<Item = PathBuf>) {
        let mut known = self.known();
        for place in places {
            if !known.writable.contains(&place) {
                known.writable.push(place);
                known.settled.clear();
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Logs why access to a path is denied.
pub(crate) fn warn_of(path: &Path) {
    let path = path.display();
    warn!(%path, "closed to commands: on the way is a link that one of them may have made");
}

/// Resolves the symbolic links in an absolute path, as far as it exists. `None` when one of them is
/// where the user's processes may write, or they form a loop.
pub(crate) fn settled(path: &Path, writable: &[PathBuf]) -> Option<PathBuf> {
    let is_closed = |link: &Path| {
        let directory = link.parent().unwrap_or(link);
        !writable.iter().any(|place| directory.starts_with(place))
    };
    followed(path, is_closed)
}

/// Resolves an absolute path. `None` when one of its links must not be followed, or they form a
/// loop.
pub(crate) fn followed(path: &Path, mut may_follow: impl FnMut(&Path) -> bool) -> Option<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        // Neither a link nor another entry: the rest of the path has no links.
        let Ok(target) = fs::read_link(&next) else {
            real = next;
            continue;
        };
        links += 1;
        if links > LINKS || !may_follow(&next) {
            return None;
        }
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        rest.extend(names(&target));
    }
    Some(real)
}

/// Components of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let name = |component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_once_and_never_where_commands_may_have_put_them() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        for name in ["a", "open", "elsewhere"] {
            fs::create_dir(at(name)).unwrap();
        }
        for (link, target) in [
            ("link", PathBuf::from("a")),
            ("up", "a/../a/./b".into()),
            ("absolute", at("link/c")),
            ("circle", "circle".into()),
            ("leads-in", "open/planted".into()),
            ("elsewhere/link", "../a".into()),
        ] {
            symlink(target, at(link)).unwrap();
        }
        symlink("/", at("open/planted")).unwrap();
        let writable = [at("open")];
        for (path, want) in [
            (at("link"), Some(at("a"))),
            (at("link/b/c"), Some(at("a/b/c"))),
            (at("link/../x"), Some(at("x"))),
            (at("up/c"), Some(at("a/b/c"))),
            (at("absolute"), Some(at("a/c"))),
            (at("none/../a/"), Some(at("a"))),
            (at("open/new"), Some(at("open/new"))),
            (at("elsewhere/link"), Some(at("a"))),
            (at("circle"), None),
            (at("open/planted"), None),
            (at("open/planted/etc"), None),
            (at("leads-in"), None),
            (PathBuf::from("/"), Some(PathBuf::from("/"))),
            (PathBuf::from("/none/x"), Some(PathBuf::from("/none/x"))),
        ] {
            assert_eq!(settled(&path, &writable), want, "{}", path.display());
        }
        assert_eq!(settled(&at("open/planted"), &[]), Some("/".into()));
    }

    #[test]
    fn what_was_settled_is_settled_anew_when_more_can_be_written() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        fs::create_dir(at("late")).unwrap();
        symlink("../elsewhere", at("late/link")).unwrap();
        let links = Links::default();
        assert_eq!(links.settle(&at("late/link")), Some(at("elsewhere")));
        links.note_writable([at("late")]);
        assert_eq!(links.settle(&at("late/link")), None);
    }

    #[test]
    fn nothing_is_made_where_a_planted_link_leads() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        for name in ["shared", "own", "closed"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("own", at("link")).unwrap();
        symlink("../closed", at("shared/way")).unwrap();
        symlink("../closed/file", at("shared/file")).unwrap();
        let links = Links::new(vec![at("shared")]);
        for path in ["shared/way/new/file", "shared/way/file", "shared/file"] {
            let error = links.make(&at(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        }
        assert_eq!(fs::read_dir(at("closed")).unwrap().count(), 0);
        for path in ["link/new/er/file", "own/file", "own/file"] {
            links.make(&at(path)).unwrap();
        }
        assert!(at("own/new/er/file").is_file() && at("own/file").is_file());
        assert!(links.make(Path::new("/")).is_err());
        assert!(links.known().settled.is_empty());
    }
}
