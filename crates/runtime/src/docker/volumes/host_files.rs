//! Directories of the host, found and made without following a link that a sandbox may have put there.
//!
//! A sandbox that can write to a directory can put links into it. A path is therefore looked up part by
//! part, each relative to the directory before it, beginning with one that no sandbox can replace: an
//! allowed directory, the directory of a volume, or the root of mounted buckets.
//!
//! The engine mounts by path, after this. [`Found`] has the identity of what was found, so that a change
//! in between is noticed before the sandbox's program starts ([`super::below`]).

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};
use tracing::warn;

/// Rights of a directory that is made.
const NEW_DIRECTORY: u32 = 0o755;

/// A file or directory of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::docker) struct Found {
    /// Its path, without links.
    pub(in crate::docker) path: PathBuf,
    /// Its file system and its number there.
    pub(in crate::docker) identity: (u64, u64),
}

/// Why a path cannot be used.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It leads outside of every allowed directory.
    Outside,
    /// It lies below an allowed directory, and must be one.
    Below,
    /// A part of it is a symbolic link.
    Link(PathBuf),
    /// A part of it that must be a directory is something else.
    NotADirectory(PathBuf),
    /// More directories than this are above it.
    TooDeep(usize),
    /// The kernel refuses an operation.
    Refused {
        op: &'static str,
        path: PathBuf,
        error: io::Error,
    },
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Outside => f.write_str("leads outside of storage.allowed_host_paths"),
            Self::Below => f.write_str(
                "lies below an allowed directory: with [secure_runtime], only one of \
                 storage.allowed_host_paths itself can be mounted",
            ),
            Self::Link(path) => write!(f, "{} is a symbolic link", path.display()),
            Self::NotADirectory(path) => write!(f, "{} is not a directory", path.display()),
            Self::TooDeep(most) => write!(
                f,
                "lies below more than {most} directories, also by mounts of the host"
            ),
            Self::Refused { op, path, error } => {
                write!(f, "cannot {op} {} on the host: {error}", path.display())
            }
        }
    }
}

/// Which of the two paths of a request is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The volume's own path.
    Root,
    /// The directory below it.
    SubPath,
}

/// The allowed directories, and where they were when the server started.
///
/// An entry may be a link. If it leads below another entry, a sandbox that has that one could make it lead
/// anywhere. Such an entry is left out, and so is one that leads elsewhere than at the start.
#[derive(Clone, Debug, Default)]
pub(super) struct AllowedPaths(Vec<(PathBuf, PathBuf)>);

impl AllowedPaths {
    pub(super) fn resolve(entries: &[PathBuf]) -> Self {
        let resolved = entries.iter().filter_map(|entry| match resolve(entry) {
            Ok(resolved) => Some((entry.clone(), resolved.full())),
            Err(trouble) => {
                let entry = entry.display();
                warn!(%entry, %trouble, "cannot look up a directory, so no sandbox gets it");
                None
            }
        });
        let resolved: Vec<_> = resolved.collect();
        let is_below = |at: &Path| {
            let mut all = resolved.iter();
            all.any(|(_, other)| at != other && covers(other, at))
        };
        let outermost = resolved.iter().filter(|(_, at)| !is_below(at));
        Self(outermost.cloned().collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a sandbox may get a directory above a path, or below it.
    pub(super) fn touch(&self, path: &Path) -> bool {
        let touches = |at: &Path| at.starts_with(path) || covers(at, path);
        self.0.iter().any(|(_, at)| touches(at))
    }

    /// Finds where a directory lies that the operator chose, without links.
    ///
    /// # Errors
    /// When a link on the way lies in an allowed directory, where a sandbox may have put it, and when such a
    /// way cannot be looked at.
    pub(super) fn settled(&self, path: &Path) -> Result<PathBuf, Trouble> {
        let real = match fs::canonicalize(path) {
            Ok(real) => real,
            Err(error) if self.touch(path) => {
                return Err(Trouble::Refused {
                    op: "look up",
                    path: path.to_owned(),
                    error,
                });
            }
            // It is the engine's concern.
            Err(_) => return Ok(path.to_owned()),
        };
        let leads_away = |above: &Path, below: &Path| {
            let is_allowed = |at: &Path| self.0.iter().any(|(_, allowed)| covers(allowed, at));
            fs::canonicalize(above).is_ok_and(|at| is_allowed(&at) && at.join(below) != real)
        };
        let mut ways = path.ancestors().skip(1);
        let is_led_away = ways.any(|above| {
            let below = path.strip_prefix(above);
            below.is_ok_and(|below| leads_away(above, below))
        });
        match is_led_away {
            true => Err(Trouble::Link(path.to_owned())),
            false => Ok(real),
        }
    }

    /// The allowed directory that a path is in.
    fn base_of(&self, path: &Path) -> Option<Resolved> {
        let covering = self.0.iter().filter(|(_, at)| covers(at, path));
        let mut same = covering.filter_map(|(entry, at)| {
            let now = resolve(entry).ok()?;
            (now.full() == *at).then_some(now)
        });
        same.next()
    }
}

/// Whether an allowed directory allows a path. The root of the host allows itself, not everything.
fn covers(allowed: &Path, path: &Path) -> bool {
    path.starts_with(allowed) && (allowed != Path::new("/") || path == allowed)
}

/// What was found in an allowed directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) found: Found,
    /// Whether it lies below the allowed directory, where a sandbox may write.
    pub(super) is_below: bool,
}

/// Finds a directory in an allowed one, and makes what is missing. The path may lead through links, as
/// long as it ends in an allowed directory; `sub_path` may not. With `only_itself`, nothing below an
/// allowed directory is found.
pub(super) fn find_allowed(
    allowed: &AllowedPaths,
    path: &Path,
    sub_path: &[String],
    only_itself: bool,
) -> Result<Allowed, (Part, Trouble)> {
    let in_root = |trouble| (Part::Root, trouble);
    let full = resolve(path).map_err(in_root)?.full();
    let base = allowed.base_of(&full);
    let base = base.ok_or((Part::Root, Trouble::Outside))?;
    let below = full.strip_prefix(base.full());
    let below: Vec<_> = below.into_iter().flat_map(Path::iter).collect();
    let is_below = !below.is_empty() || !sub_path.is_empty();
    if is_below && only_itself {
        let part = match below.is_empty() {
            true => Part::SubPath,
            false => Part::Root,
        };
        return Err((part, Trouble::Below));
    }
    let parts = base.missing.iter().map(OsString::as_os_str).chain(below);
    let parts: Vec<&OsStr> = parts.collect();
    let found = walk_down(&base.existing, &parts, sub_path)?;
    Ok(Allowed { found, is_below })
}

/// Finds a directory below one that no sandbox can replace, and makes what is missing.
pub(super) fn find_below(root: &Path, sub_path: &[String]) -> Result<Found, Trouble> {
    walk_down(root, &[], sub_path).map_err(|(_, trouble)| trouble)
}

/// Splits a relative path into its parts. `None` if it leads upwards or is not relative.
pub(super) fn parts_of(sub_path: &str) -> Option<Vec<String>> {
    if sub_path.starts_with('/') || sub_path.contains('\0') {
        return None;
    }
    let parts = sub_path.split('/').filter(|it| !matches!(*it, "" | "."));
    let parts: Vec<String> = parts.map(str::to_owned).collect();
    (!parts.iter().any(|part| part == "..")).then_some(parts)
}

/// A path without links, as far as it exists.
struct Resolved {
    existing: PathBuf,
    missing: Vec<OsString>,
}

impl Resolved {
    fn full(&self) -> PathBuf {
        let missing = self.missing.iter();
        missing.fold(self.existing.clone(), |path, part| path.join(part))
    }
}

fn resolve(path: &Path) -> Result<Resolved, Trouble> {
    let mut existing = path.to_owned();
    let mut missing = Vec::new();
    loop {
        let error = match fs::canonicalize(&existing) {
            Ok(existing) => {
                missing.reverse();
                return Ok(Resolved { existing, missing });
            }
            Err(error) => error,
        };
        let name = existing.file_name().map(OsStr::to_owned);
        match name {
            // A link to nothing ends up here as well. It is found to be a link later.
            Some(name) if error.kind() == io::ErrorKind::NotFound => {
                missing.push(name);
                existing.pop();
            }
            _ => {
                if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) {
                    return Err(Trouble::Link(path.to_owned()));
                }
                return Err(Trouble::Refused {
                    op: "look up",
                    path: path.to_owned(),
                    error,
                });
            }
        }
    }
}

fn walk_down(root: &Path, parts: &[&OsStr], sub_path: &[String]) -> Result<Found, (Part, Trouble)> {
    let own = parts.iter().map(|name| (Part::Root, *name));
    let below = sub_path
        .iter()
        .map(|name| (Part::SubPath, OsStr::new(name)));
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut path = root.to_owned();
    let failed = |path: &Path, op, error: Errno| Trouble::Refused {
        op,
        path: path.to_owned(),
        error: error.into(),
    };
    let opened = rustix::fs::open(root, flags, Mode::empty());
    let mut place = opened.map_err(|error| (Part::Root, failed(root, "open", error)))?;
    for (part, name) in own.chain(below) {
        let in_part = |trouble| (part, trouble);
        if !is_directory(&status(&place, &path).map_err(in_part)?) {
            return Err((part, Trouble::NotADirectory(path)));
        }
        path.push(name);
        let next = open_or_make(&place, name);
        place = next.map_err(|(op, error)| (part, failed(&path, op, error)))?;
        let found = status(&place, &path).map_err(in_part)?;
        if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
            return Err((part, Trouble::Link(path)));
        }
    }
    let found = status(&place, &path).map_err(|trouble| (Part::Root, trouble))?;
    let identity = (found.st_dev, found.st_ino);
    Ok(Found { path, identity })
}

/// Opens a part of a path, also a link itself. Makes a directory if there is nothing.
fn open_or_make(place: &OwnedFd, name: &OsStr) -> Result<OwnedFd, (&'static str, Errno)> {
    let open = |flags| rustix::fs::openat(place, name, flags | OFlags::CLOEXEC, Mode::empty());
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match open(flags) {
        Ok(found) => return Ok(found),
        Err(Errno::NOENT) => {}
        Err(error) => return Err(("open", error)),
    }
    match rustix::fs::mkdirat(place, name, Mode::from_raw_mode(NEW_DIRECTORY)) {
        Ok(()) => {
            // The process's mask may have taken rights away. Through an open directory, because the name
            // may lead elsewhere by now.
            let made = open(OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW);
            let made = made.map_err(|error| ("open", error))?;
            let rights = Mode::from_raw_mode(NEW_DIRECTORY);
            rustix::fs::fchmod(&made, rights).map_err(|error| ("set the rights of", error))?;
        }
        // Another create was faster.
        Err(Errno::EXIST) => {}
        Err(error) => return Err(("create", error)),
    }
    open(flags).map_err(|error| ("open", error))
}

fn status(place: &OwnedFd, path: &Path) -> Result<Stat, Trouble> {
    rustix::fs::fstat(place).map_err(|error| Trouble::Refused {
        op: "look at",
        path: path.to_owned(),
        error: error.into(),
    })
}

fn is_directory(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Directory
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// A folder with an allowed directory `data` and a secret beside it.
    fn host() -> (tempfile::TempDir, PathBuf, AllowedPaths) {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("data/sub")).unwrap();
        fs::create_dir(root.join("secret")).unwrap();
        fs::write(root.join("data/file"), "x").unwrap();
        let allowed = AllowedPaths::resolve(&[root.join("data")]);
        (folder, root, allowed)
    }

    /// Finds a directory, also below an allowed one.
    fn find(
        allowed: &AllowedPaths,
        path: &Path,
        sub_path: &[String],
    ) -> Result<Found, (Part, Trouble)> {
        find_allowed(allowed, path, sub_path, false).map(|it| it.found)
    }

    fn sub(path: &str) -> Vec<String> {
        parts_of(path).unwrap()
    }

    #[test]
    fn a_link_in_an_allowed_directory_leads_no_volume_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        for directory in ["data/x", "secret", "data/z"] {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        let allowed = AllowedPaths::resolve(&[root.join("data")]);
        let settled = |path: &str| allowed.settled(&root.join(path));
        assert_eq!(settled("data/x").unwrap(), root.join("data/x"));
        // The operator's own links, outside of it.
        symlink(root.join("data"), root.join("link")).unwrap();
        assert_eq!(settled("link/x").unwrap(), root.join("data/x"));
        for (name, to) in [("away", "secret"), ("along", "data/z")] {
            symlink(root.join(to), root.join("data").join(name)).unwrap();
            for way in ["data", "link"] {
                let refused = settled(&format!("{way}/{name}")).unwrap_err();
                assert!(matches!(refused, Trouble::Link(_)), "{way}: {refused:?}");
            }
        }
        let missing = settled("data/missing").unwrap_err();
        assert!(matches!(missing, Trouble::Refused { .. }), "{missing:?}");
        assert_eq!(settled("missing").unwrap(), root.join("missing"));
    }

    #[test]
    fn what_exists_is_found_and_what_is_missing_is_made() {
        let (_folder, root, allowed) = host();
        for (path, below, want) in [
            ("data", "", "data"),
            ("data", "sub", "data/sub"),
            ("data/sub", "", "data/sub"),
            ("data", "./sub//", "data/sub"),
            ("data/file", "", "data/file"),
            ("data", "file", "data/file"),
            ("data/new/er", "also/new", "data/new/er/also/new"),
        ] {
            let found = find(&allowed, &root.join(path), &sub(below)).unwrap();
            assert_eq!(found.path, root.join(want), "{path} {below}");
            let there = fs::symlink_metadata(&found.path).unwrap();
            assert_eq!(found.identity, (there.dev(), there.ino()));
        }
        let made = fs::metadata(root.join("data/new/er/also")).unwrap();
        assert_eq!(made.permissions().mode() & 0o7777, NEW_DIRECTORY);
        let not_yet = AllowedPaths::resolve(&[root.join("later/on")]);
        let found = find(&not_yet, &root.join("later/on/a"), &[]).unwrap();
        assert_eq!(found.path, root.join("later/on/a"));
    }

    #[test]
    fn a_path_may_lead_through_links_within_the_allowed_directories_only() {
        let (_folder, root, allowed) = host();
        symlink(root.join("data/sub"), root.join("data/current")).unwrap();
        symlink(root.join("secret"), root.join("data/out")).unwrap();
        symlink("/nowhere/at/all", root.join("data/dangling")).unwrap();
        let found = find(&allowed, &root.join("data/current"), &[]).unwrap();
        assert_eq!(found.path, root.join("data/sub"));
        for (path, below) in [("data/out", ""), ("data/out/x", ""), ("secret", "")] {
            let refused = find(&allowed, &root.join(path), &sub(below)).unwrap_err();
            assert!(
                matches!(refused, (Part::Root, Trouble::Outside)),
                "{refused:?}"
            );
        }
        let refused = find(&allowed, &root.join("data/dangling"), &[]).unwrap_err();
        assert!(
            matches!(refused, (Part::Root, Trouble::Link(_))),
            "{refused:?}"
        );
        symlink("loop", root.join("data/loop")).unwrap();
        let refused = find(&allowed, &root.join("data/loop"), &[]).unwrap_err();
        assert!(
            matches!(refused, (Part::Root, Trouble::Link(_))),
            "{refused:?}"
        );
        // An operator's link as an allowed directory.
        symlink(root.join("data"), root.join("linked")).unwrap();
        let linked = AllowedPaths::resolve(&[root.join("linked")]);
        let found = find(&linked, &root.join("linked/sub"), &[]).unwrap();
        assert_eq!(found.path, root.join("data/sub"));
    }

    #[test]
    fn no_link_is_followed_below_a_volume() {
        let (_folder, root, allowed) = host();
        symlink(root.join("secret"), root.join("data/out")).unwrap();
        symlink("sub", root.join("data/inner")).unwrap();
        symlink("..", root.join("data/sub/up")).unwrap();
        for below in [
            "out",
            "out/x",
            "inner",
            "inner/x",
            "sub/up",
            "sub/up/secret",
        ] {
            let refused = find(&allowed, &root.join("data"), &sub(below)).unwrap_err();
            assert!(
                matches!(refused, (Part::SubPath, Trouble::Link(_))),
                "{below}: {refused:?}"
            );
            let refused = find_below(&root.join("data"), &sub(below)).unwrap_err();
            assert!(matches!(refused, Trouble::Link(_)), "{below}: {refused:?}");
        }
        assert_eq!(fs::read_dir(root.join("secret")).unwrap().count(), 0);
        let refused = find(&allowed, &root.join("data/file"), &sub("x")).unwrap_err();
        assert!(
            matches!(refused, (Part::SubPath, Trouble::NotADirectory(_))),
            "{refused:?}"
        );
    }

    #[test]
    fn the_root_of_the_host_allows_itself_only() {
        let all = AllowedPaths::resolve(&[PathBuf::from("/")]);
        assert_eq!(
            find(&all, Path::new("/"), &[]).unwrap().path,
            Path::new("/")
        );
        let refused = find(&all, Path::new("/usr"), &[]).unwrap_err();
        assert!(matches!(refused, (Part::Root, Trouble::Outside)));
        let refused = find(&AllowedPaths::default(), Path::new("/usr"), &[]).unwrap_err();
        assert!(matches!(refused, (Part::Root, Trouble::Outside)));
    }

    #[test]
    fn an_entry_that_a_sandbox_can_redirect_allows_nothing() {
        let (_folder, root, _) = host();
        // An alias of a directory below another entry, in the reach of that one's sandboxes.
        symlink(root.join("data/sub"), root.join("alias")).unwrap();
        let entries = ["data", "alias"].map(|name| root.join(name));
        let allowed = AllowedPaths::resolve(&entries);
        let found = find(&allowed, &root.join("alias"), &[]).unwrap();
        assert_eq!(found.path, root.join("data/sub"));
        fs::remove_dir(root.join("data/sub")).unwrap();
        symlink(root.join("secret"), root.join("data/sub")).unwrap();
        let refused = find(&allowed, &root.join("alias"), &[]).unwrap_err();
        assert!(
            matches!(refused, (Part::Root, Trouble::Outside)),
            "{refused:?}"
        );
        assert!(allowed.touch(&root) && allowed.touch(&root.join("data/x")));
        assert!(!allowed.touch(&root.join("secret")));
        // One that leads elsewhere than when the server started.
        symlink(root.join("data"), root.join("moved")).unwrap();
        let allowed = AllowedPaths::resolve(&[root.join("moved")]);
        find(&allowed, &root.join("moved"), &[]).unwrap();
        fs::remove_file(root.join("moved")).unwrap();
        symlink(root.join("secret"), root.join("moved")).unwrap();
        let refused = find(&allowed, &root.join("moved"), &[]).unwrap_err();
        assert!(
            matches!(refused, (Part::Root, Trouble::Outside)),
            "{refused:?}"
        );
    }

    #[test]
    fn what_lies_below_an_allowed_directory_is_known() {
        let (_folder, root, allowed) = host();
        for (path, below, want) in [
            ("data", "", None),
            ("data", "sub", Some(Part::SubPath)),
            ("data/sub", "", Some(Part::Root)),
            ("data/sub", "x", Some(Part::Root)),
        ] {
            let path = root.join(path);
            let located = find_allowed(&allowed, &path, &sub(below), false).unwrap();
            assert_eq!(located.is_below, want.is_some(), "{path:?} {below}");
            let only = find_allowed(&allowed, &path, &sub(below), true);
            let refused = only.err().map(|(part, trouble)| {
                assert!(matches!(trouble, Trouble::Below), "{trouble:?}");
                part
            });
            assert_eq!(refused, want, "{path:?} {below}");
        }
        let missing = find_allowed(&allowed, &root.join("data/none"), &[], true);
        assert!(missing.is_err() && !root.join("data/none").exists());
    }

    #[test]
    fn only_relative_paths_that_lead_down_have_parts() {
        for wrong in ["/a", "..", "a/../b", "a/..", "a\0"] {
            assert_eq!(parts_of(wrong), None, "{wrong:?}");
        }
        assert_eq!(sub(""), [""; 0]);
        assert_eq!(sub("a/./b/"), ["a", "b"]);
        assert_eq!(sub("..a"), ["..a"]);
    }
}
