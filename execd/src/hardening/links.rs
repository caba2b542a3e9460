//! What paths lead to, where somebody else may have made links.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    io,
    path::{Component, Path, PathBuf},
    sync::{Mutex, MutexGuard},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
    io::Errno,
};
use tracing::warn;

/// Links in one path, as the kernel has it.
const LINKS: usize = 40;

/// What the paths lead to that variables name. Variables are changed by whoever made the sandbox only.
#[derive(Debug, Default)]
pub(crate) struct Links(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// What each path led to when it was first named; nothing when that was in doubt.
    settled: BTreeMap<PathBuf, Option<PathBuf>>,
    /// Where the user's processes may write, under every name.
    writable: Vec<PathBuf>,
}

impl Links {
    /// Of processes that may write there.
    pub(crate) fn new(writable: Vec<PathBuf>) -> Self {
        Self(Mutex::new(Known {
            writable,
            ..Known::default()
        }))
    }

    /// What a path led to when it was first named. `None` when one of the links may have been made by
    /// the user's processes.
    pub(super) fn settle(&self, path: &Path) -> Option<PathBuf> {
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

    /// Opens a file to be read, as if the user's processes could follow no link: they choose what is
    /// there, but may not read all that the daemon may.
    ///
    /// # Errors
    /// What the system said; `ELOOP` where there is such a link.
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

    /// Where the user's processes may write, under every name.
    pub(super) fn writable(&self) -> Vec<PathBuf> {
        self.known().writable.clone()
    }

    /// They may write there too.
    pub(super) fn note_writable(&self, places: impl IntoIterator<Item = PathBuf>) {
        let writable = &mut self.known().writable;
        for place in places {
            if !writable.contains(&place) {
                writable.push(place);
            }
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("no holder of this lock panics")
    }
}

/// Says why something is closed that should be open.
pub(super) fn warn_of(path: &Path) {
    let path = path.display();
    warn!(%path, "closed to commands: on the way is a link that one of them may have made");
}

/// What an absolute path means now: without symbolic links, as far as it exists. `None` when one of
/// them is where the user's processes may write, or they lead in circles.
pub(super) fn settled(path: &Path, writable: &[PathBuf]) -> Option<PathBuf> {
    let is_closed = |link: &Path| {
        let directory = link.parent().unwrap_or(link);
        !writable.iter().any(|place| directory.starts_with(place))
    };
    followed(path, is_closed)
}

/// What an absolute path means now. `None` when one of its links is not to be followed, or they lead
/// in circles.
pub(super) fn followed(path: &Path, mut may_follow: impl FnMut(&Path) -> bool) -> Option<PathBuf> {
    let mut real = PathBuf::from("/");
    let mut rest = names(path);
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        let next = real.join(&name);
        // Neither a link nor anything else: then the path has none from here on.
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

/// The names in a path, the last one first.
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
}
