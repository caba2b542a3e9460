//! Landlock: which files the user's processes may read and write (Linux, "Landlock: unprivileged
//! access control"; contract: execd A8).
//!
//! Everything is denied that no rule allows. Rules belong to files and directories, not to paths, so
//! they are made anew for every process that is started: a workspace may be made, or removed and
//! made again, at any time. What a path leads to is settled at the start of the daemon; from then on
//! symbolic links in it are not followed, since the user's processes may have put them there.
#![expect(
    unsafe_code,
    reason = "the C library has no functions for these system calls"
)]

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    ptr,
    sync::{Arc, Mutex},
};

use nix::libc::{self, c_long};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
};

use tracing::warn;

use crate::env::{self, Environment};

/// What every program may need to read. Reading the memory and the variables of others by way of
/// `/proc` is not a question of files: the kernel refuses it to whoever is confined.
const READABLE: [&str; 11] = [
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sbin", "/sys", "/usr",
];

/// What every program may need to write.
const WRITABLE: [&str; 12] = [
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/shm",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
    "/run",
    "/tmp",
    "/var/tmp",
];

// What may be done with a file or in a directory.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// Removing and making entries of every kind.
const CHANGE_DIR: u64 = 0x1ff << 4;
/// Moving from one directory to another.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
const OF_A_FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

/// From this version on, files cannot be cut short without the right to.
pub(super) const COMPLETE: u32 = 3;

#[repr(C)]
struct RulesetAttributes {
    handled_access_fs: u64,
}

#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

const OF_KERNEL_VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;

/// Which version of Landlock the kernel has.
///
/// # Errors
/// `ENOSYS` when it has none, `EOPNOTSUPP` when it is switched off.
pub(super) fn version() -> io::Result<u32> {
    // SAFETY: with this flag the kernel reads nothing and answers with a number.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<RulesetAttributes>(),
            0usize,
            OF_KERNEL_VERSION,
        )
    };
    u32::try_from(version).map_err(|_| io::Error::last_os_error())
}

/// Confines this process, and all that descend from it, to what the rules allow. `no_new_privs` must
/// be set. Allocates nothing.
pub(super) fn restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the descriptor is open; no memory is passed.
    let done = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) };
    checked(done)?;
    Ok(())
}

fn checked(done: c_long) -> io::Result<c_long> {
    match done {
        -1 => Err(io::Error::last_os_error()),
        done => Ok(done),
    }
}

/// What may be accessed.
#[derive(Debug)]
pub(super) struct Policy {
    handled: u64,
    places: Vec<(PathBuf, u64)>,
    /// Places that were told to be in a bad state.
    told: Mutex<BTreeSet<PathBuf>>,
    /// This program, which shells start to report their state.
    program: OwnedFd,
    environment: Arc<Environment>,
}

impl Policy {
    /// Settles what the paths lead to, for a kernel of this version.
    pub(super) fn new(
        version: u32,
        readable: &[PathBuf],
        writable: impl IntoIterator<Item = PathBuf>,
        environment: Arc<Environment>,
    ) -> io::Result<Self> {
        let handled = READ
            | WRITE_FILE
            | CHANGE_DIR
            | if version >= 2 { REFER } else { 0 }
            | if version >= 3 { TRUNCATE } else { 0 };
        let readable = READABLE
            .iter()
            .map(PathBuf::from)
            .chain(readable.iter().cloned());
        let writable = WRITABLE.iter().map(PathBuf::from).chain(writable);
        let places = readable
            .map(|path| (settled(&path), READ))
            .chain(writable.map(|path| (settled(&path), handled)))
            .collect();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self {
            handled,
            places,
            told: Mutex::default(),
            program: open("/proc/self/exe", flags, Mode::empty())?,
            environment,
        })
    }

    /// The rules as the paths are now.
    ///
    /// # Errors
    /// When the kernel has no room. What does not exist needs no rule, and what is in a bad state
    /// gets none, which only closes it.
    pub(super) fn rules(&self) -> io::Result<OwnedFd> {
        let ruleset = create(self.handled)?;
        allow(&ruleset, self.program.as_fd(), EXECUTE | READ_FILE)?;
        for (path, access) in &self.places {
            self.allow_place(&ruleset, path, *access)?;
        }
        // Where `set_env` of the official clients writes, from a command.
        if let Some(path) = env::file_path(&self.environment.own()) {
            self.allow_place(&ruleset, &path, self.handled & OF_A_FILE & !EXECUTE)?;
        }
        Ok(ruleset)
    }

    /// Whether a path, which has no symbolic links, is where something may be written.
    pub(super) fn leaves_writable(&self, path: &Path) -> bool {
        self.places
            .iter()
            .any(|(place, access)| access & WRITE_FILE != 0 && path.starts_with(place))
    }

    fn allow_place(&self, ruleset: &OwnedFd, path: &Path, access: u64) -> io::Result<()> {
        match allow_path(ruleset, path, access) {
            Err(error) if is_of_the_place(&error) => {
                let told = self.told.lock();
                if told
                    .expect("no holder of this lock panics")
                    .insert(path.to_owned())
                {
                    warn!(path = %path.display(), %error, "closed to commands");
                }
                Ok(())
            }
            done => done,
        }
    }
}

/// What a path means now: without symbolic links, as far as it exists.
fn settled(path: &Path) -> PathBuf {
    let exists = |ancestor: &Path| {
        let real = ancestor.canonicalize().ok()?;
        let rest = path.strip_prefix(ancestor).ok()?;
        // A slash at the end would demand a directory.
        Some(match rest.as_os_str().is_empty() {
            true => real,
            false => real.join(rest),
        })
    };
    let found = path.ancestors().find_map(exists);
    found.unwrap_or_else(|| path.to_owned())
}

fn create(handled: u64) -> io::Result<OwnedFd> {
    let attributes = RulesetAttributes {
        handled_access_fs: handled,
    };
    // SAFETY: the kernel reads as many bytes as it is told, all of which are there.
    let fd = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0,
        )
    })?;
    let fd = i32::try_from(fd).expect("descriptors are small");
    // SAFETY: the kernel has just opened it, with the flag to close it on exec, for nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn allow_path(ruleset: &OwnedFd, path: &Path, access: u64) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(fd) => allow(ruleset, fd.as_fd(), access),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether one place is to blame, such as a lost network mount. Otherwise there is no room, or the
/// calls are refused as such.
fn is_of_the_place(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| {
        !matches!(
            errno,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::TOOBIG | Errno::NOSYS | Errno::PERM
        )
    })
}

fn allow(ruleset: &OwnedFd, to: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    match rule(ruleset, to, access) {
        // Some rights have a meaning for directories only.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            rule(ruleset, to, access & OF_A_FILE)
        }
        done => done,
    }
}

fn rule(ruleset: &OwnedFd, to: BorrowedFd<'_>, access: u64) -> io::Result<()> {
    let rule = PathBeneath {
        allowed_access: access,
        parent_fd: to.as_raw_fd(),
    };
    // SAFETY: the kernel reads the rule, which has the form that its kind demands.
    let done = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0,
        )
    };
    checked(done)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::env::Variables;

    #[test]
    fn a_place_in_a_bad_state_closes_itself_only() {
        let environment = Environment::new(Variables::default());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let policy = Policy {
            handled: READ,
            places: Vec::new(),
            told: Mutex::default(),
            program: open("/proc/self/exe", flags, Mode::empty()).unwrap(),
            environment: Arc::new(environment),
        };
        // It is opened before the rules are looked at.
        let ruleset = open("/dev/null", OFlags::CLOEXEC, Mode::empty()).unwrap();
        let long = PathBuf::from(format!("/{}", "x".repeat(256)));
        assert!(allow_path(&ruleset, &long, READ).is_err());
        for _ in 0..2 {
            policy.allow_place(&ruleset, &long, READ).unwrap();
        }
        assert_eq!(*policy.told.lock().unwrap(), BTreeSet::from([long]));
        for (errno, of_the_place) in [
            (Errno::STALE, true),
            (Errno::IO, true),
            (Errno::NOTCONN, true),
            (Errno::MFILE, false),
            (Errno::NOSYS, false),
        ] {
            assert_eq!(is_of_the_place(&errno.into()), of_the_place, "{errno}");
        }
    }

    #[test]
    fn links_are_followed_once_and_never_again() {
        let place = tempfile::tempdir().unwrap();
        let real = place.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("a")).unwrap();
        symlink("a", real.join("link")).unwrap();
        assert_eq!(settled(&real.join("link")), real.join("a"));
        assert_eq!(settled(&real.join("link/b/c")), real.join("a/b/c"));
        assert_eq!(settled(Path::new("/")), Path::new("/"));
        assert_eq!(settled(Path::new("/none/x")), Path::new("/none/x"));
    }
}
