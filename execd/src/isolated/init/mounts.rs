//! File system view of a session (contract: execd A6.2).
//!
//! ```text
//!   before  the trees that are mounted later are taken aside
//!   then    everything there is becomes read-only
//!   then    /tmp, /run, /dev, the overlays and what is bound are put on top, /proc at the end
//!   last    what reveals the whole machine is covered, and what the engine covered
//! ```
//!
//! Everything happens in the session's mount namespace, so no mount has to be moved elsewhere:
//! covered paths stay covered, because no process inside may unmount. Sources are passed to the
//! kernel as descriptors, so no path needs quoting. They are opened without following links, because
//! the paths were checked before, and a process may have replaced a part of them since.

use std::{
    fmt::Display,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::{MetadataExt, PermissionsExt, chown, symlink},
    },
    path::{Path, PathBuf},
};

use nix::libc;
use rustix::{
    fs::{CWD, FileType, Mode as FileMode, OFlags, ResolveFlags, fstat, open, openat2},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags,
        fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount,
        mount_bind, mount_change,
    },
};

use super::{
    Failure,
    trees::{held_tree, put, put_resolved, read_only, set_read_only, tree},
};
use crate::isolated::{
    overlay::open_resolved,
    plan::{Mode, Overlay, Plan, Refusal},
};

/// Devices of a session.
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Links in `/dev` that programs expect.
const LINKS: [(&str, &str); 5] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
    ("ptmx", "pts/ptmx"),
];

/// Parts of `/proc` that root can write without capabilities, though they affect the whole machine.
const READ_ONLY_IN_PROC: [&str; 5] = ["bus", "fs", "irq", "sys", "sysrq-trigger"];
/// Parts of `/proc` that reveal the whole machine.
const HIDDEN_IN_PROC: [&str; 10] = [
    "acpi",
    "asound",
    "interrupts",
    "kcore",
    "keys",
    "latency_stats",
    "sched_debug",
    "scsi",
    "timer_list",
    "timer_stats",
];
/// Parts of `/sys` that do. The engine does not mask them in a sandbox that was created for
/// sessions.
const HIDDEN_IN_SYS: [&str; 2] = ["devices/virtual/powercap", "firmware"];
/// Directory of processors, which may expose their temperature.
const PROCESSORS: &str = "/sys/devices/system/cpu";
const WARMTH: &str = "thermal_throttle";
/// File systems that machines mount in `/proc` and that cover nothing.
const NO_COVERS: [&str; 4] = ["autofs", "binfmt_misc", "nfsd", "rpc_pipefs"];

/// Mount point for detached trees: a directory that every container has and that is replaced
/// anyway.
const STAGE: &str = "/dev";

/// Detached mount tree.
struct Aside {
    tree: OwnedFd,
    path: PathBuf,
    /// Whether the path has no links, since they were resolved before.
    resolved: bool,
    directory: bool,
    readonly: bool,
    /// Member of the request.
    member: String,
}

/// How a part of `/proc` is covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cover {
    /// Read-only.
    ReadOnly,
    /// Covered by another mount.
    Hidden,
}

/// Builds the session's view. Returns the optional parts that are unavailable.
pub(super) fn set_up(plan: &Plan) -> Result<Vec<String>, Failure> {
    let everything = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", everything).map_err(no_mounts("make mounts private"))?;
    // Everything is read-only later.
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(no_mounts("read mounts"))?;
    let covers = covers(&mounts);
    let devices = DEVICES
        .iter()
        .filter_map(|name| Some((name, tree(Path::new("/dev").join(name)).ok()?)))
        .collect::<Vec<_>>();
    let shared_tmp = (!plan.own_tmp && Path::new("/tmp").is_dir())
        .then(|| tree("/tmp"))
        .transpose()
        .map_err(no_mounts("bind /tmp"))?;
    let aside = aside(plan)?;

    read_only_everywhere()?;
    let own = |path: &str| {
        plan.overlays
            .iter()
            .all(|overlay| overlay.path != Path::new(path))
    };
    let is_directory = |path: &str| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    if own("/tmp") && is_directory("/tmp") {
        match &shared_tmp {
            Some(tree) => put(tree, Path::new("/tmp")).map_err(no_mounts("bind /tmp"))?,
            None => memory("/tmp", "mode=1777").map_err(no_mounts("mount /tmp"))?,
        }
    }
    if own("/run") && is_directory("/run") {
        memory("/run", "mode=0755").map_err(no_mounts("mount /run"))?;
        // In a user namespace it already belongs to the session.
        let _same = chown("/run", Some(plan.uid), Some(plan.gid));
    }
    dev(&devices)?;
    for entry in aside {
        let failure = |error: io::Error| {
            let (member, path) = (&entry.member, entry.path.display());
            Failure::new(Refusal::Missing, format!("{member}: {path}: {error}"))
        };
        make_point(&entry, plan).map_err(failure)?;
        if entry.readonly {
            // Before it has a path, which a process could change.
            let tree = format!("/proc/self/fd/{}", entry.tree.as_raw_fd());
            read_only(Path::new(&tree)).map_err(no_mounts("make a mount read-only"))?;
        }
        let put = if entry.resolved { put_resolved } else { put };
        put(&entry.tree, &entry.path).map_err(|errno| failure(errno.into()))?;
    }
    repeat_links(plan).map_err(no_mounts("repeat a link to an overlay"))?;
    if let Some(root) = plan.upper_root.as_ref().filter(|root| root.is_dir()) {
        memory(root, "mode=0555,size=4k,nr_inodes=2").map_err(no_mounts("cover the uppers"))?;
    }
    let mut without = Vec::new();
    proc(plan, &covers, &mut without)?;
    sys()?;
    rustix::process::chdir("/").map_err(no_mounts("change to the root"))?;
    Ok(without)
}

fn no_mounts<E: Display>(what: &'static str) -> impl Fn(E) -> Failure {
    move |error| Failure::new(Refusal::Namespaces, format!("cannot {what}: {error}"))
}

fn memory(path: impl AsRef<Path>, options: &str) -> rustix::io::Result<()> {
    let options = std::ffi::CString::new(options).expect("options are plain text");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", path.as_ref(), "tmpfs", flags, options.as_c_str())
}

/// Detaches every tree that the request names, before it can be covered.
fn aside(plan: &Plan) -> Result<Vec<Aside>, Failure> {
    let mut staged = false;
    let lower = |overlay: &Overlay| {
        open_resolved(&overlay.path).map_err(no_mounts("open an overlay's directory"))
    };
    let lowers = plan
        .overlays
        .iter()
        .map(lower)
        .collect::<Result<Vec<_>, _>>()?;
    let mut aside = Vec::new();
    for (index, (overlay, lower)) in plan.overlays.iter().zip(&lowers).enumerate() {
        let tree = match &overlay.mode {
            Mode::Writable | Mode::ReadOnly => {
                held_tree(lower).map_err(no_mounts("bind an overlay"))?
            }
            Mode::OnDisk { upper, work } => layered(lower, upper, work, plan)?,
            Mode::InMemory => {
                let place = Path::new(STAGE);
                if !staged {
                    memory(place, "mode=0755").map_err(no_mounts("mount memory"))?;
                    staged = true;
                }
                let made = |what: &str| {
                    let path = place.join(format!("{what}-{index}"));
                    fs::create_dir(&path).map(|()| path)
                };
                let (upper, work) = made("upper")
                    .and_then(|upper| Ok((upper, made("work")?)))
                    .map_err(no_mounts("make an upper directory"))?;
                adopt(&upper, lower, plan).map_err(no_mounts("give an upper directory away"))?;
                layered(lower, &upper, &work, plan)?
            }
        };
        aside.push(Aside {
            tree,
            path: overlay.path.clone(),
            resolved: true,
            directory: true,
            readonly: overlay.mode == Mode::ReadOnly,
            member: "overlays".to_owned(),
        });
    }
    for bound in &plan.binds {
        let missing = |error: io::Error| {
            let text = format!("{}: {}: {error}", bound.member, bound.source.display());
            Failure::new(Refusal::Missing, text)
        };
        // Without links since it was checked: a process may have put one there meanwhile.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let (none, links) = (FileMode::empty(), ResolveFlags::NO_SYMLINKS);
        let source = openat2(CWD, &bound.source, flags, none, links)
            .map_err(|errno| missing(errno.into()))?;
        let kind = fstat(&source).map_err(|errno| missing(errno.into()))?;
        let directory = FileType::from_raw_mode(kind.st_mode) == FileType::Directory;
        let tree = held_tree(&source).map_err(|errno| missing(errno.into()))?;
        aside.push(Aside {
            tree,
            path: bound.dest.clone(),
            resolved: false,
            directory,
            readonly: bound.readonly,
            member: bound.member.clone(),
        });
    }
    Ok(aside)
}

/// Copies mode and attributes of the lower directory to an upper one, with the session as owner.
fn adopt(upper: &Path, lower: &OwnedFd, plan: &Plan) -> io::Result<()> {
    let mode = fs::metadata(format!("/proc/self/fd/{}", lower.as_raw_fd()))?.mode();
    fs::set_permissions(upper, fs::Permissions::from_mode(mode & 0o7777))?;
    // In a user namespace it already belongs to the session.
    if plan.userns {
        Ok(())
    } else {
        chown(upper, Some(plan.uid), Some(plan.gid))
    }
}

/// Creates a kernel overlay that is not attached yet.
fn layered(lower: &OwnedFd, upper: &Path, work: &Path, plan: &Plan) -> Result<OwnedFd, Failure> {
    let make = || -> rustix::io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let upper = open(upper, flags, FileMode::empty())?;
        let work = open(work, flags, FileMode::empty())?;
        let named = |fd: &OwnedFd| format!("/proc/self/fd/{}", fd.as_raw_fd());
        let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let set = |key: &str, value: &str| fsconfig_set_string(&context, key, value);
        set("source", "overlay")?;
        set("lowerdir", &named(lower))?;
        set("upperdir", &named(&upper))?;
        set("workdir", &named(&work))?;
        // Changes must be recognisable from the upper directory alone.
        set("redirect_dir", "nofollow")?;
        set("metacopy", "off")?;
        set("index", "off")?;
        // It lives no longer than the sandbox, so no data has to reach the disk.
        fsconfig_set_flag(&context, "volatile")?;
        if plan.userns {
            fsconfig_set_flag(&context, "userxattr")?;
        }
        fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
    };
    make().map_err(|errno| {
        let hint = match errno {
            Errno::INVAL => {
                "; upper_root must be on a filesystem that can be above others, such as a tmpfs or \
                 the disk, not itself an overlay"
            }
            _ => "",
        };
        let text = format!("cannot mount an overlay: {errno}{hint}");
        Failure::new(Refusal::Namespaces, text)
    })
}

/// Creates a mount point in the session's own directories. Elsewhere it must exist.
fn make_point(entry: &Aside, plan: &Plan) -> io::Result<()> {
    if let Ok(meta) = fs::metadata(&entry.path) {
        return if meta.is_dir() == entry.directory {
            Ok(())
        } else {
            Err(io::Error::other(
                "a directory and a file cannot stand for each other",
            ))
        };
    }
    if !is_own(&entry.path, plan) {
        return Err(io::Error::from(Errno::NOENT));
    }
    if entry.directory {
        return fs::create_dir_all(&entry.path);
    }
    entry.path.parent().map_or(Ok(()), fs::create_dir_all)?;
    fs::File::create_new(&entry.path).map(drop)
}

/// Whether a path is in a directory that the session has for itself.
fn is_own(path: &Path, plan: &Plan) -> bool {
    path.starts_with("/run") || (plan.own_tmp && path.starts_with("/tmp"))
}

/// Makes links to overlays again in the session's own directories, which cover those that clients
/// name.
fn repeat_links(plan: &Plan) -> io::Result<()> {
    for Overlay { path, asked, .. } in &plan.overlays {
        let covered = |other: &Overlay| asked.starts_with(&other.path);
        if !is_own(asked, plan)
            || plan.overlays.iter().any(covered)
            || fs::symlink_metadata(asked).is_ok()
        {
            continue;
        }
        asked.parent().map_or(Ok(()), fs::create_dir_all)?;
        symlink(path, asked)?;
    }
    Ok(())
}

/// Builds `/dev` with the entries that programs expect.
fn dev(devices: &[(&&str, OwnedFd)]) -> Result<(), Failure> {
    let failed = no_mounts("make /dev");
    let at = |name: &str| Path::new("/dev").join(name);
    let make = || -> io::Result<()> {
        mount(
            "tmpfs",
            "/dev",
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            c"mode=0755",
        )?;
        for (name, tree) in devices {
            fs::File::create_new(at(name))?;
            put(tree, &at(name))?;
        }
        for (name, target) in LINKS {
            symlink(target, at(name))?;
        }
        for name in ["pts", "shm"] {
            fs::create_dir(at(name))?;
        }
        let flags = MountFlags::NOSUID | MountFlags::NOEXEC;
        mount(
            "devpts",
            "/dev/pts",
            "devpts",
            flags,
            c"newinstance,ptmxmode=0666,mode=0620",
        )?;
        memory("/dev/shm", "mode=1777")?;
        read_only(Path::new("/dev"))?;
        Ok(())
    };
    make().map_err(failed)
}

/// Mounts `/proc` with the session's processes and without parts that belong to the machine. Covers
/// of the sandbox's own `/proc` are repeated.
fn proc(
    plan: &Plan,
    covers: &[(PathBuf, Cover)],
    without: &mut Vec<String>,
) -> Result<(), Failure> {
    let failed = no_mounts("mount /proc");
    let taken = covers
        .iter()
        .filter(|(_, cover)| *cover == Cover::Hidden)
        .map(|(path, _)| Ok((path, tree(path)?)))
        .collect::<rustix::io::Result<Vec<_>>>()
        .map_err(no_mounts("take aside what covers parts of /proc"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(failed)?;
    if let Err(why) = limit_processes(plan.processes) {
        without.push(why);
    }
    if plan.userns && fs::write("/proc/sys/user/max_user_namespaces", "0").is_err() {
        without.push("user namespaces inside are refused by the filter only".to_owned());
    }
    let own = |names: &[&str]| -> Vec<PathBuf> {
        let paths = names.iter().map(|name| Path::new("/proc").join(name));
        paths.collect()
    };
    let mut read_only_ones = own(&READ_ONLY_IN_PROC);
    let others = covers
        .iter()
        .filter(|(_, cover)| *cover == Cover::ReadOnly)
        .map(|(path, _)| path);
    for path in others {
        if !read_only_ones.contains(path) {
            read_only_ones.push(path.clone());
        }
    }
    let fixed = |path: &Path| mount_bind(path, path).and_then(|()| read_only(path));
    let hidden = own(&HIDDEN_IN_PROC);
    let done = read_only_ones
        .iter()
        .try_for_each(|path| if_there(path, fixed))
        .and_then(|()| hidden.iter().try_for_each(|path| if_there(path, hide)))
        .and_then(|()| {
            let mut taken = taken.iter().filter(|(path, _)| !hidden.contains(path));
            taken.try_for_each(|(path, tree)| if_there(path, |path| put(tree, path)))
        });
    done.map_err(no_mounts("cover parts of /proc"))
}

/// Covers parts of `/sys` that reveal the whole machine. Existing covers stay.
fn sys() -> Result<(), Failure> {
    let failed = no_mounts("cover parts of /sys");
    let processors = fs::read_dir(PROCESSORS).into_iter().flatten().flatten();
    let mut paths = HIDDEN_IN_SYS
        .iter()
        .map(|name| Path::new("/sys").join(name))
        .chain(processors.map(|processor| processor.path().join(WARMTH)))
        .filter(|path| path.is_dir());
    let Some(first) = paths.next() else {
        return Ok(());
    };
    // One empty directory covers all of them, because machines have many processors.
    hide(&first)
        .and_then(|()| paths.try_for_each(|path| if_there(&path, |path| mount_bind(&first, path))))
        .map_err(failed)
}

/// Applies an operation to a path, unless this kernel lacks it.
fn if_there(
    path: &Path,
    act: impl FnOnce(&Path) -> rustix::io::Result<()>,
) -> rustix::io::Result<()> {
    match path.exists().then(|| act(path)) {
        None | Some(Ok(()) | Err(Errno::NOENT)) => Ok(()),
        Some(failed) => failed,
    }
}

/// Hides the contents of a path.
fn hide(path: &Path) -> rustix::io::Result<()> {
    if path.is_dir() {
        memory(path, "mode=0555,size=4k,nr_inodes=2")?;
        // Its owner could change the mode.
        read_only(path)
    } else {
        mount_bind("/dev/null", path)
    }
}

/// Covered parts of `/proc`, in mount order (Linux, "The /proc Filesystem", mountinfo).
fn covers(mountinfo: &str) -> Vec<(PathBuf, Cover)> {
    let cover = |line: &str| {
        // Fields: number, parent, device, root, place, options, …, "-", type, …
        let (mount, rest) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(4);
        let (place, options) = (fields.next()?, fields.next()?);
        if !place.starts_with("/proc/") {
            return None;
        }
        let cover = match rest.split(' ').next()? {
            "proc" if options.split(',').any(|option| option == "ro") => Cover::ReadOnly,
            "proc" => return None,
            kind if NO_COVERS.contains(&kind) => return None,
            _ => Cover::Hidden,
        };
        // Names with a blank are escaped, but `/proc` has none.
        Some((PathBuf::from(place), cover))
    };
    mountinfo.lines().filter_map(cover).collect()
}

/// Limits the process ids of this namespace, and so the number of processes. Before Linux 6.14 the
/// file applied to the whole machine.
fn limit_processes(most: u32) -> Result<(), String> {
    let kernel = rustix::system::uname();
    let release = kernel.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map(|part| part.parse::<u32>().unwrap_or(0));
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if version < (6, 14) {
        return Err("the count of processes is bounded per user, and not for root".to_owned());
    }
    fs::write("/proc/sys/kernel/pid_max", most.to_string())
        .map_err(|error| format!("the count of processes is not bounded: {error}"))
}

/// Makes every mount read-only.
fn read_only_everywhere() -> Result<(), Failure> {
    set_read_only(Path::new("/"), true).map_err(|error| {
        let hint = match error.raw_os_error() {
            Some(libc::ENOSYS) => "; it takes Linux 5.12",
            _ => "",
        };
        no_mounts("make the root read-only")(format!("{error}{hint}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_covers_parts_of_proc_is_known_by_its_mounts() {
        let mounts = "\
22 27 0:21 / /proc rw,nosuid - proc proc rw
40 22 0:21 /sys /proc/sys ro,nosuid,nodev shared:7 - proc proc rw
41 22 0:21 /bus /proc/bus rw - proc proc rw
42 22 0:5 /null /proc/kcore rw,nosuid - tmpfs tmpfs rw,size=65536k
43 22 0:9 / /proc/acpi ro,relatime - tmpfs tmpfs ro
44 22 0:50 /proc/meminfo /proc/meminfo rw - fuse.lxcfs lxcfs rw
45 40 0:60 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw
46 27 0:5 /null /procedure rw - tmpfs tmpfs rw
47 27 0:22 / /sys ro - sysfs sysfs rw
";
        let covers = covers(mounts);
        let found: Vec<(&str, Cover)> = covers
            .iter()
            .map(|(path, cover)| (path.to_str().unwrap(), *cover))
            .collect();
        assert_eq!(
            found,
            [
                ("/proc/sys", Cover::ReadOnly),
                ("/proc/kcore", Cover::Hidden),
                ("/proc/acpi", Cover::Hidden),
                ("/proc/meminfo", Cover::Hidden),
            ]
        );
    }
}
