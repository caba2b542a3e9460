//! Landlock: which files the user's processes may read and write (Linux, "Landlock: unprivileged
//! access control"; contract: execd A8).
//!
//! Access is denied unless a rule allows it. Rules refer to inodes, not to paths, so execd builds
//! them for every process that it starts: a workspace may be created, or replaced, at any time.
//! Paths are resolved when the daemon starts, and paths in variables on first use. Later symbolic
//! links in them are not followed, because the user's processes may have created them. Links
//! in places that such processes may write are not followed at the start either: they survive a
//! restart of the sandbox.
#![expect(
    unsafe_code,
    reason = "the C library has no functions for these system calls"
)]

use std::{
    collections::BTreeSet,
    fs, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::{Path, PathBuf},
    ptr,
    sync::{Arc, Mutex, MutexGuard},
};

use nix::libc::{self, c_long};
use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, open, openat2},
    io::Errno,
};

use tracing::warn;

use crate::{
    env::{self, Environment, Variables},
    links::{self, LinkResolver, resolve_outside},
};

/// Paths that every program may need to read. Landlock rules do not cover the memory and variables
/// of other processes in `/proc`: the kernel denies them to every confined process.
const READABLE: [&str; 11] = [
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sbin", "/sys", "/usr",
];

/// Paths that every program may need to write.
const WRITABLE: [&str; 15] = [
    "/dev/dri",
    "/dev/dxg",
    "/dev/full",
    "/dev/kfd",
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

/// Prefix of the names of GPU devices. The engine adds as many as the client requested.
const DEVICES: &str = "nvidia";

/// Variable that names a directory for temporary files.
const ENV_TEMPORARY: &str = "TMPDIR";

// Access rights to files and directories.
const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// Rights to remove and create entries of every type.
const CHANGE_DIR: u64 = 0x1ff << 4;
/// Right to move entries between directories.
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

const READ: u64 = EXECUTE | READ_FILE | READ_DIR;
const OF_A_FILE: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE;

/// First ABI version that restricts truncation.
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

/// Landlock ABI version of the kernel.
///
/// # Errors
/// `ENOSYS` if the kernel lacks Landlock, `EOPNOTSUPP` if it is disabled.
pub(super) fn version() -> io::Result<u32> {
    // SAFETY: with this flag the kernel reads no memory and returns a number.
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

/// Confines this process and its descendants to the rules. Needs `no_new_privs`. Allocates nothing.
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

/// Places that the user's processes may access.
#[derive(Debug)]
pub(super) struct Policy {
    handled: u64,
    places: Vec<(PathBuf, u64)>,
    /// Places already reported as unusable.
    reported: Mutex<BTreeSet<PathBuf>>,
    links: Arc<LinkResolver>,
    /// The execd executable, which shells start to report their state.
    program: OwnedFd,
    environment: Arc<Environment>,
}

impl Policy {
    /// Resolves the paths, for a kernel with this ABI version.
    pub(super) fn new(
        version: u32,
        extra_readable: &[PathBuf],
        writable: impl IntoIterator<Item = PathBuf>,
        environment: Arc<Environment>,
    ) -> io::Result<Self> {
        let handled = READ
            | WRITE_FILE
            | CHANGE_DIR
            | if version >= 2 { REFER } else { 0 }
            | if version >= 3 { TRUNCATE } else { 0 };
        let temporary = temporary(&environment.own(), |path| resolve_outside(path, &[]));
        let wanted: Vec<PathBuf> = WRITABLE
            .iter()
            .map(PathBuf::from)
            .chain(devices(Path::new("/dev")))
            .chain(writable)
            .chain(temporary.map(|(path, _)| path))
            .collect();
        // User processes can write wherever these lead, so links in there are not followed either.
        let mut writable = wanted.clone();
        let mut outer_first: Vec<&PathBuf> = wanted.iter().collect();
        outer_first.sort_by_key(|path| path.components().count());
        for path in outer_first {
            let led_to = resolve_outside(path, &writable);
            writable.extend(led_to);
        }
        let place = |path: &Path, access| {
            let resolved = resolve_outside(path, &writable);
            if resolved.is_none() {
                links::warn_denied(path);
            }
            resolved.map(|resolved| (resolved, access))
        };
        let readable = READABLE
            .iter()
            .map(Path::new)
            .chain(extra_readable.iter().map(PathBuf::as_path));
        let places = readable
            .filter_map(|path| place(path, READ))
            .chain(wanted.iter().filter_map(|path| place(path, handled)))
            .collect();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        Ok(Self {
            handled,
            places,
            reported: Mutex::default(),
            links: Arc::new(LinkResolver::new(writable)),
            program: open("/proc/self/exe", flags, Mode::empty())?,
            environment,
        })
    }

    /// Ruleset for the current state of the paths.
    ///
    /// # Errors
    /// When the kernel is out of resources. A missing place needs no rule. An unusable place gets
    /// none, which denies access to it.
    pub(super) fn rules(&self) -> io::Result<OwnedFd> {
        let ruleset = self.rules_of_places()?;
        // `set_env` of the official clients writes here, from a command.
        let file = env::file_path(&self.environment.own());
        if let Some(path) = file.and_then(|path| self.links.resolve(&path)) {
            self.allow_place(&ruleset, &path, self.handled & OF_A_FILE & !EXECUTE)?;
        }
        Ok(ruleset)
    }

    /// Ruleset without the environment file, which may not exist yet: its path is resolved
    /// permanently on first use.
    ///
    /// # Errors
    /// As for [`Policy::rules`].
    pub(super) fn rules_of_places(&self) -> io::Result<OwnedFd> {
        let ruleset = create(self.handled)?;
        allow(&ruleset, self.program.as_fd(), EXECUTE | READ_FILE)?;
        for (path, access) in &self.places {
            self.allow_place(&ruleset, path, *access)?;
        }
        if let Some(path) = self.temporary(&self.environment.own()) {
            self.allow_place(&ruleset, &path, self.handled)?;
        }
        Ok(ruleset)
    }

    /// Current directory for temporary files, which a start script may have changed.
    fn temporary(&self, own: &Variables) -> Option<PathBuf> {
        let (path, resolved) = temporary(own, |path| self.links.resolve(path))?;
        self.links.add_writable([path, resolved.clone()]);
        Some(resolved)
    }

    /// Resolved paths, shared with other code that handles files which the user's processes may
    /// have changed.
    pub(super) fn links(&self) -> &Arc<LinkResolver> {
        &self.links
    }

    fn reported(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.reported.lock().expect("no holder of this lock panics")
    }

    fn allow_place(&self, ruleset: &OwnedFd, path: &Path, access: u64) -> io::Result<()> {
        match allow_path(ruleset, path, access) {
            Err(error) if is_place_error(&error) => {
                if self.reported().insert(path.to_owned()) {
                    warn!(path = %path.display(), %error, "closed to commands");
                }
                Ok(())
            }
            done => done,
        }
    }
}

/// Directory for temporary files that a variable names, with its resolved path. `/` is rejected
/// under every spelling.
fn temporary(
    own: &Variables,
    resolve: impl FnOnce(&Path) -> Option<PathBuf>,
) -> Option<(PathBuf, PathBuf)> {
    let path = own
        .get(ENV_TEMPORARY)
        .map(Path::new)
        .filter(|path| path.is_absolute())?;
    let resolved = resolve(path).filter(|resolved| resolved.parent().is_some())?;
    Some((path.to_owned(), resolved))
}

/// GPU devices in a directory of devices.
fn devices(dev: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let wanted = entries.filter(|entry| {
        let name = entry.file_name();
        name.as_encoded_bytes().starts_with(DEVICES.as_bytes())
    });
    wanted.map(|entry| entry.path())
}

fn create(handled: u64) -> io::Result<OwnedFd> {
    let attributes = RulesetAttributes {
        handled_access_fs: handled,
    };
    // SAFETY: the kernel reads exactly the given number of bytes, all of which are initialised.
    let number = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0,
        )
    })?;
    let fd = i32::try_from(number).expect("descriptors are small");
    // SAFETY: the kernel has just opened this descriptor, close-on-exec, and nothing else owns it.
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

/// Whether the error concerns a single place, such as a lost network mount. Other errors mean that
/// the kernel is out of resources or refuses the calls.
fn is_place_error(error: &io::Error) -> bool {
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
        // Some rights apply to directories only.
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
    // SAFETY: the kernel reads the rule, which has the layout that its type requires.
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

    use rustix::thread::CapabilitySet;

    use super::*;
    use crate::hardening::{Steps, probe::probe};

    #[test]
    fn an_unusable_place_closes_no_other() {
        let environment = Environment::new(Variables::default());
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let policy = Policy {
            handled: READ,
            places: Vec::new(),
            reported: Mutex::default(),
            links: Arc::default(),
            program: open("/proc/self/exe", flags, Mode::empty()).unwrap(),
            environment: Arc::new(environment),
        };
        // `/dev/null` is opened before the ruleset is validated.
        let ruleset = open("/dev/null", OFlags::CLOEXEC, Mode::empty()).unwrap();
        let long = PathBuf::from(format!("/{}", "x".repeat(256)));
        assert!(allow_path(&ruleset, &long, READ).is_err());
        for _ in 0..2 {
            policy.allow_place(&ruleset, &long, READ).unwrap();
        }
        assert_eq!(*policy.reported.lock().unwrap(), BTreeSet::from([long]));
        for (errno, of_the_place) in [
            (Errno::STALE, true),
            (Errno::IO, true),
            (Errno::NOTCONN, true),
            (Errno::MFILE, false),
            (Errno::NOSYS, false),
        ] {
            assert_eq!(is_place_error(&errno.into()), of_the_place, "{errno}");
        }
    }

    #[test]
    fn links_in_targets_of_writable_links_are_not_followed() {
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        for name in ["volume", "closed"] {
            fs::create_dir(at(name)).unwrap();
        }
        symlink("volume", at("data")).unwrap();
        symlink(at("closed"), at("volume/planted")).unwrap();
        symlink("volume/planted", at("other")).unwrap();
        fs::create_dir(at("temporary")).unwrap();
        symlink(at("closed"), at("temporary/planted")).unwrap();
        let writable = ["data", "other", "volume/planted", "temporary/planted"].map(at);
        let variables = [("TMPDIR", at("temporary")), ("EXECD_ENVS", at("data/.env"))];
        let environment = Environment::new(Variables::from_iter(variables));
        let policy = Policy::new(COMPLETE, &[], writable, Arc::new(environment)).unwrap();
        let ours: Vec<&PathBuf> = policy
            .places
            .iter()
            .map(|(path, _)| path)
            .filter(|path| path.starts_with(&real))
            .collect();
        assert_eq!(ours, [&at("volume"), &at("temporary")]);
        // Variables are resolved on first use.
        let own = policy.environment.own();
        assert_eq!(policy.temporary(&own), Some(at("temporary")));
        symlink(at("closed"), at("temporary/.env")).unwrap();
        assert_eq!(policy.links.resolve(&at("temporary/.env")), None);
        assert_eq!(
            policy.links.resolve(&at("data/.env")),
            Some(at("volume/.env"))
        );
        symlink(at("closed"), at("volume/.env")).unwrap();
        assert_eq!(
            policy.links.resolve(&at("data/.env")),
            Some(at("volume/.env"))
        );
        for (path, writable) in [
            ("volume/x", true),
            ("temporary/x", true),
            ("closed/x", false),
        ] {
            let mut places = policy.links.writable().into_iter();
            let found = places.any(|place| at(path).starts_with(place));
            assert_eq!(found, writable, "{path}");
        }
    }

    #[test]
    fn the_probe_does_not_resolve_the_environment_file() {
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let real = place.path().canonicalize().unwrap();
        let at = |name: &str| real.join(name);
        let environment = Environment::new(Variables::from_iter([("EXECD_ENVS", at(".env"))]));
        let version = version().unwrap_or(COMPLETE);
        let policy = Policy::new(version, &[], [], Arc::new(environment)).unwrap();
        let mut steps = Steps {
            keep: CapabilitySet::empty(),
            cut_bounding: false,
            no_new_privs: true,
            drop: true,
            files: Some(policy),
            calls: None,
        };
        probe(&steps).unwrap();
        // A start script may create such a link.
        symlink("file", at(".env")).unwrap();
        let policy = steps.files.take().unwrap();
        assert_eq!(policy.links.resolve(&at(".env")), Some(at("file")));
    }

    #[test]
    fn the_root_is_never_the_temporary_directory() {
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let link = place.path().join("link");
        symlink("/", &link).unwrap();
        for root in [Path::new("/"), Path::new("/.."), &link] {
            let environment = Environment::new(Variables::from_iter([("TMPDIR", root)]));
            let policy = Policy::new(COMPLETE, &[], [], Arc::new(environment)).unwrap();
            let own = policy.environment.own();
            assert_eq!(policy.temporary(&own), None, "{}", root.display());
            let mut places = policy.places.iter();
            assert!(places.all(|(path, _)| path.parent().is_some()));
            assert!(!policy.links.writable().contains(&PathBuf::from("/")));
        }
    }

    #[test]
    fn gpu_devices_are_found() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidiactl", "nvidia-uvm", "null", "sda"] {
            fs::write(dev.path().join(name), "").unwrap();
        }
        fs::create_dir(dev.path().join("nvidia-caps")).unwrap();
        let found: BTreeSet<PathBuf> = devices(dev.path()).collect();
        let names = ["nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps"];
        let wanted = names.map(|name| dev.path().join(name));
        assert_eq!(found, BTreeSet::from(wanted));
        assert_eq!(devices(&dev.path().join("none")).count(), 0);
        for path in ["/dev/dri", "/dev/kfd"] {
            assert!(WRITABLE.contains(&path));
        }
    }
}
