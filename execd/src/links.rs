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
pub(crate) struct LinkResolver(Mutex<ResolverState>);

#[derive(Debug, Default)]
struct ResolverState {
    /// Result of the first resolution of each path; `None` if a link must not be followed.
    resolved: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Places that the user's processes may write, under every name.
    writable: Vec<PathBuf>,
}

impl LinkResolver {
    /// Creates a resolver for processes that may write there.
    pub(crate) fn new(writable: Vec<PathBuf>) -> Self {
        Self(Mutex::new(ResolverState {
            writable,
            ..ResolverState::default()
        }))
    }

    /// Resolves a path, or returns the result of its first resolution. `None` when the user's
    /// processes may have created one of the links.
    pub(crate) fn resolve(&self, path: &Path) -> Option<PathBuf> {
        let path = std::path::absolute(path).ok()?;
        let mut state = self.state();
        if let Some(resolved) = state.resolved.get(&path) {
            return resolved.clone();
        }
        let resolved = resolve_outside(&path, &state.writable);
        if resolved.is_none() {
            warn_denied(&path);
        }
        state.resolved.insert(path, resolved.clone());
        resolved
    }

    /// Opens a file to read it, and follows no link that the user's processes may have created:
    /// they may choose its contents, but must not read files through the daemon.
    ///
    /// # Errors
    /// The kernel's error; `ELOOP` for such a link.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let resolved = self.resolve(path).ok_or(Errno::LOOP)?;
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = openat2(
            CWD,
            resolved,
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
    pub(crate) fn create_file(&self, path: &Path) -> io::Result<()> {
        let path = std::path::absolute(path)?;
        let resolved = resolve_outside(&path, &self.state().writable).ok_or(Errno::LOOP)?;
        let mut rest = names(&resolved);
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
        self.state().writable.clone()
    }

    /// Adds writable places and re-resolves cached paths.
    pub(crate) fn add_writable(&self, places: impl IntoIterator<Item = PathBuf>) {
        let mut state = self.state();
        for place in places {
            if !state.writable.contains(&place) {
                state.writable.push(place);
                state.resolved.clear();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, ResolverState> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Logs that commands are denied access to a path, and why.
pub(crate) fn warn_denied(path: &Path) {
    let path = path.display();
    warn!(%path, "commands cannot use this path, because one of them may have created a link in it");
}

/// Resolves the symbolic links in an absolute path, as far as it exists. `None` when one of them is
/// where the user's processes may write, or they form a loop.
pub(crate) fn resolve_outside(path: &Path, writable: &[PathBuf]) -> Option<PathBuf> {
    let is_closed = |link: &Path| {
        let directory = link.parent().unwrap_or(link);
        !writable.iter().any(|place| directory.starts_with(place))
    };
    resolve_links(path, is_closed)
}

/// Resolves an absolute path. `None` when one of its links must not be followed, or they form
/// a loop.
pub(crate) fn resolve_links(
    path: &Path,
    mut may_follow: impl FnMut(&Path) -> bool,
) -> Option<PathBuf> {
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
    fn links_are_followed_only_outside_writable_places() {
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
            assert_eq!(
                resolve_outside(&path, &writable),
                want,
                "{}",
                path.display()
            );
        }
        assert_eq!(resolve_outside(&at("open/planted"), &[]), Some("/".into()));
    }

    #[test]
    fn new_writable_places_invalidate_resolved_paths() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        fs::create_dir(at("late")).unwrap();
        symlink("../elsewhere", at("late/link")).unwrap();
        let links = LinkResolver::default();
        assert_eq!(links.resolve(&at("late/link")), Some(at("elsewhere")));
        links.add_writable([at("late")]);
        assert_eq!(links.resolve(&at("late/link")), None);
    }

    #[test]
    fn files_are_not_created_through_planted_links() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        for name in ["shared", "own", "closed"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("own", at("link")).unwrap();
        symlink("../closed", at("shared/way")).unwrap();
        symlink("../closed/file", at("shared/file")).unwrap();
        let links = LinkResolver::new(vec![at("shared")]);
        for path in ["shared/way/new/file", "shared/way/file", "shared/file"] {
            let error = links.create_file(&at(path)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::LOOP.raw_os_error()));
        }
        assert_eq!(fs::read_dir(at("closed")).unwrap().count(), 0);
        for path in ["link/new/er/file", "own/file", "own/file"] {
            links.create_file(&at(path)).unwrap();
        }
        assert!(at("own/new/er/file").is_file() && at("own/file").is_file());
        assert!(links.create_file(Path::new("/")).is_err());
        assert!(links.state().resolved.is_empty());
    }
}
