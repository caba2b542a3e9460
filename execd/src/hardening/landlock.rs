//! Landlock: which files the user's processes may read and write (Linux, "Landlock: unprivileged
//! access control"; contract: execd A8).
//!
//! Everything is denied that no rule allows. Rules belong to files and directories, not to paths, so
//! they are made anew for every process that is started: a workspace may be made, or removed and
//! made again, at any time. What a path leads to is settled at the start of the daemon, and for the
//! variables that name one when they first do; from then on symbolic links in it are not followed,
//! since the user's processes may have put them there. Nor are they followed at the start where such
//! processes may write: what they left behind is still there when a sandbox starts again.
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
    links::{self, Links, settled},
};

/// What every program may need to read. Reading the memory and the variables of others by way of
/// `/proc` is not a question of files: the kernel refuses it to whoever is confined.
const READABLE: [&str; 11] = [
    "/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/opt", "/proc", "/sbin", "/sys", "/usr",
];

/// What every program may need to write.
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

/// How the names of other devices for computing begin; the engine adds as many as were asked for.
const DEVICES: &str = "nvidia";

/// Names a directory for temporary files besides the usual ones.
const ENV_TEMPORARY: &str = "TMPDIR";

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
    reported: Mutex<BTreeSet<PathBuf>>,
    links: Arc<Links>,
    /// This program, which shells start to report their state.
    program: OwnedFd,
    environment: Arc<Environment>,
}

impl Policy {
    /// Settles what the paths lead to, for a kernel of this version.
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
        let temporary = temporary(&environment.own(), |path| settled(path, &[]));
        let wanted: Vec<PathBuf> = WRITABLE
            .iter()
            .map(PathBuf::from)
            .chain(devices(Path::new("/dev")))
            .chain(writable)
            .chain(temporary.map(|(path, _)| path))
            .collect();
        // Whatever they lead to can be written as well, and links in there are not followed either.
        let mut writable = wanted.clone();
        let mut outer_first: Vec<&PathBuf> = wanted.iter().collect();
        outer_first.sort_by_key(|path| path.components().count());
        for path in outer_first {
            let led_to = settled(path, &writable);
            writable.extend(led_to);
        }
        let place = |path: &Path, access| {
            let settled = settled(path, &writable);
            if settled.is_none() {
                links::warn_of(path);
            }
            settled.map(|settled| (settled, access))
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
            links: Arc::new(Links::new(writable)),
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
        let ruleset = self.rules_of_places()?;
        // Where `set_env` of the official clients writes, from a command.
        let file = env::file_path(&self.environment.own());
        if let Some(path) = file.and_then(|path| self.links.settle(&path)) {
            self.allow_place(&ruleset, &path, self.handled & OF_A_FILE & !EXECUTE)?;
        }
        Ok(ruleset)
    }

    /// The rules without that for the environment file, which may not be there yet: what leads to it is
    /// settled for good when it is first looked at.
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

    /// The directory for temporary files as it is now, which a start script may have changed.
    fn temporary(&self, own: &Variables) -> Option<PathBuf> {
        let (path, settled) = temporary(own, |path| self.links.settle(path))?;
        self.links.note_writable([path, settled.clone()]);
        Some(settled)
    }

    /// What leads where, for whoever else looks at what the user's processes may have changed.
    pub(super) fn links(&self) -> &Arc<Links> {
        &self.links
    }

    fn reported(&self) -> MutexGuard<'_, BTreeSet<PathBuf>> {
        self.reported.lock().expect("no holder of this lock panics")
    }

    fn allow_place(&self, ruleset: &OwnedFd, path: &Path, access: u64) -> io::Result<()> {
        match allow_path(ruleset, path, access) {
            Err(error) if is_of_the_place(&error) => {
                if self.reported().insert(path.to_owned()) {
                    warn!(path = %path.display(), %error, "closed to commands");
                }
                Ok(())
            }
            done => done,
        }
    }
}

/// The directory for temporary files that a variable names, and what it leads to. The root is nobody's,
/// whatever name it goes by.
fn temporary(
    own: &Variables,
    settle: impl FnOnce(&Path) -> Option<PathBuf>,
) -> Option<(PathBuf, PathBuf)> {
    let path = own
        .get(ENV_TEMPORARY)
        .map(Path::new)
        .filter(|path| path.is_absolute())?;
    let settled = settle(path).filter(|settled| settled.parent().is_some())?;
    Some((path.to_owned(), settled))
}

/// Devices for computing in a directory of devices.
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
    // SAFETY: the kernel reads as many bytes as it is told, all of which are there.
    let number = checked(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const attributes,
            size_of::<RulesetAttributes>(),
            0,
        )
    })?;
    let fd = i32::try_from(number).expect("descriptors are small");
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

    use rustix::thread::CapabilitySet;

    use super::*;
    use crate::hardening::{Steps, probe::probe};

    #[test]
    fn a_place_in_a_bad_state_closes_itself_only() {
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
        // It is opened before the rules are looked at.
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
            assert_eq!(is_of_the_place(&errno.into()), of_the_place, "{errno}");
        }
    }

    #[test]
    fn what_a_writable_link_leads_to_holds_no_links_either() {
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
        // Variables are settled when they are first looked at.
        let own = policy.environment.own();
        assert_eq!(policy.temporary(&own), Some(at("temporary")));
        symlink(at("closed"), at("temporary/.env")).unwrap();
        assert_eq!(policy.links.settle(&at("temporary/.env")), None);
        assert_eq!(
            policy.links.settle(&at("data/.env")),
            Some(at("volume/.env"))
        );
        symlink(at("closed"), at("volume/.env")).unwrap();
        assert_eq!(
            policy.links.settle(&at("data/.env")),
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
    fn trying_the_rules_does_not_settle_the_environment_file() {
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
        // As a start script may make it.
        symlink("file", at(".env")).unwrap();
        let policy = steps.files.take().unwrap();
        assert_eq!(policy.links.settle(&at(".env")), Some(at("file")));
    }

    #[test]
    fn the_root_is_no_directory_for_temporary_files_under_any_name() {
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
    fn devices_for_computing_are_found() {
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
