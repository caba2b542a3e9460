//! Trust in files that the daemon uses with all its rights. A file is trusted only if no process
//! with fewer rights may have written or placed it.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{OFlags, StatVfs, StatVfsMountFlags, fstatvfs, statvfs},
    process::geteuid,
};

use super::ProcessHardening;
use crate::links::followed;

const ROOT: u32 = 0;

/// Reason to distrust a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    #[error("on the way is a link that commands, isolated sessions or another user may have made")]
    Link,
    #[error(
        "commands, isolated sessions or another user may have moved it there: a directory on the way \
         belongs neither to the user of execd nor to root, or others may write it, or commands may"
    )]
    Way,
    #[error("it is no file")]
    Kind,
    #[error("it belongs neither to the user of execd nor to root")]
    Owner,
    #[error("others than its owner may write it")]
    Mode,
    #[error(
        "commands or isolated sessions, which have fewer rights than execd, may have written it: it \
         belongs to the user of execd, and is in allowed_writable, in /tmp, or not closed by \
         [landlock] or a read-only mount"
    )]
    WithinReach,
}

/// Facts that decide who may have written a file, changed the entries of a directory, or made a
/// link.
#[derive(Clone, Copy, Debug)]
struct Writers {
    owner: u32,
    /// The daemon's user.
    own: u32,
    mode: u32,
    /// No process in the sandbox can write the file, whatever its owner.
    read_only: bool,
    /// Commands or isolated sessions, which have fewer rights, may write files of the daemon's user
    /// there.
    within_reach: bool,
}

impl Writers {
    fn doubt(self) -> Option<Doubt> {
        const GROUP_AND_OTHERS: u32 = 0o022;
        if self.read_only {
            None
        } else if ![self.own, ROOT].contains(&self.owner) {
            Some(Doubt::Owner)
        } else if self.mode & GROUP_AND_OTHERS != 0 {
            Some(Doubt::Mode)
        } else if self.within_reach && self.owner == self.own {
            Some(Doubt::WithinReach)
        } else {
            None
        }
    }
}

/// Reach of processes with fewer rights than the daemon.
#[derive(Debug)]
struct Reach {
    /// The daemon's user.
    own: u32,
    /// Places where processes with fewer rights may write files of that user.
    places: Vec<PathBuf>,
}

impl Reach {
    fn writers(&self, path: &Path, meta: &Metadata, mode: u32, mount: &StatVfs) -> Writers {
        Writers {
            owner: meta.uid(),
            own: self.own,
            mode,
            read_only: mount.f_flag.contains(StatVfsMountFlags::RDONLY),
            within_reach: self.places.iter().any(|place| path.starts_with(place)),
        }
    }

    /// First doubt about a file or its parent directories: a process that may change a directory
    /// may have replaced the file. The path must not contain symbolic links.
    fn doubt(&self, path: &Path, writers: Writers) -> io::Result<Option<Doubt>> {
        if let Some(doubt) = writers.doubt() {
            return Ok(Some(doubt));
        }
        for directory in path.ancestors().skip(1) {
            let meta = fs::symlink_metadata(directory)?;
            let mount = statvfs(directory)?;
            let found = self.writers(directory, &meta, of_entries(meta.mode()), &mount);
            let way = Writers {
                // Entries of an unwritable place cannot be replaced by a rename.
                within_reach: found.within_reach && !writers.read_only,
                ..found
            };
            if way.doubt().is_some() {
                return Ok(Some(Doubt::Way));
            }
        }
        Ok(None)
    }

    /// Resolves a path. `None` if a link on the way is in doubt.
    fn settled(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let path = std::path::absolute(path)?;
        let is_trusted = |link: &Path| {
            let judged = || {
                let meta = fs::symlink_metadata(link)?;
                // The flags belong to the mount, so the parent directory has the same.
                let mount = statvfs(link.parent().unwrap_or(link))?;
                // The mode of a symbolic link is meaningless.
                self.doubt(link, self.writers(link, &meta, 0, &mount))
            };
            judged().is_ok_and(|doubt| doubt.is_none())
        };
        Ok(followed(&path, is_trusted))
    }
}

/// Write bits that apply to entries of a directory: in a sticky directory only its owner and the
/// owner of an entry may remove or rename it.
fn of_entries(mode: u32) -> u32 {
    const STICKY: u32 = 0o1000;
    if mode & STICKY == 0 { mode } else { 0 }
}

impl ProcessHardening {
    /// Opens a file provided by the sandbox's creator.
    ///
    /// # Errors
    /// When it cannot be opened, or there is a [`Doubt`].
    pub(crate) fn open_trusted(&self, path: &Path) -> io::Result<File> {
        let doubtful = |doubt: Doubt| Err(io::Error::other(doubt));
        let reach = Reach {
            own: geteuid().as_raw(),
            places: self.within_reach(),
        };
        let Some(settled) = reach.settled(path)? else {
            return doubtful(Doubt::Link);
        };
        // Without it, opening a FIFO without a writer would block.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&settled)?;
        // Checks the opened file, since the path may lead elsewhere by now.
        let meta = file.metadata()?;
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !meta.is_file() {
            return doubtful(Doubt::Kind);
        }
        if real != settled {
            return doubtful(Doubt::Link);
        }
        let writers = reach.writers(&real, &meta, meta.mode(), &fstatvfs(&file)?);
        reach.doubt(&real, writers)?.map_or(Ok(file), doubtful)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, lchown, symlink},
        sync::Arc,
    };

    use rustix::{
        mount::{MountFlags, MountPropagationFlags, mount_bind, mount_change, mount_remount},
        thread::{UnshareFlags, unshare_unsafe},
    };

    use super::*;
    use crate::{
        config::IsolationConfig,
        env::{Environment, Variables},
    };

    /// Outside `/tmp`, which isolated sessions may write.
    fn outside() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/lib").unwrap()
    }

    /// Disabled hardening, with a directory that isolated sessions may write.
    fn shared(place: PathBuf) -> ProcessHardening {
        let config = IsolationConfig {
            allowed_writable: vec![place],
            ..IsolationConfig::default()
        };
        let environment = Environment::new(Variables::default());
        ProcessHardening::new(&config, &Arc::new(environment))
    }

    #[test]
    fn what_others_may_have_written_is_not_believed() {
        let own = Writers {
            owner: 1000,
            own: 1000,
            mode: 0o100_600,
            read_only: false,
            within_reach: false,
        };
        let of = |owner| Writers { owner, ..own };
        let within_reach = true;
        for (writers, doubt) in [
            (own, None),
            (of(0), None),
            (of(1001), Some(Doubt::Owner)),
            (Writers { own: 0, ..own }, Some(Doubt::Owner)),
            (Writers { mode: 0o620, ..own }, Some(Doubt::Mode)),
            (
                Writers {
                    mode: 0o602,
                    ..of(0)
                },
                Some(Doubt::Mode),
            ),
            (
                Writers {
                    within_reach,
                    ..own
                },
                Some(Doubt::WithinReach),
            ),
            // Commands of a user other than root cannot write root's files.
            (
                Writers {
                    within_reach,
                    ..of(0)
                },
                None,
            ),
            (
                Writers {
                    mode: 0o666,
                    read_only: true,
                    within_reach,
                    ..of(1001)
                },
                None,
            ),
        ] {
            assert_eq!(writers.doubt(), doubt, "{writers:?}");
        }
    }

    #[test]
    fn what_isolated_sessions_may_have_written_is_not_believed_without_a_floor_either() {
        let place = outside();
        let at = |name: &str| place.path().join(name);
        for name in ["common", "own"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "").unwrap();
        }
        symlink("common", at("link")).unwrap();
        for name in ["common", "link"] {
            let hardening = shared(at(name));
            let refused = hardening.open_trusted(&at("common/file")).unwrap_err();
            assert_eq!(
                refused.to_string(),
                Doubt::WithinReach.to_string(),
                "{name}"
            );
            hardening.open_trusted(&at("own/file")).unwrap();
        }
    }

    #[test]
    fn a_balanced_session_may_have_written_what_is_in_tmp() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let path = place.path().canonicalize().unwrap().join("file");
        fs::write(&path, "").unwrap();
        let hardening = shared("/nonexistent".into());
        let refused = hardening.open_trusted(&path).unwrap_err();
        assert_eq!(refused.to_string(), Doubt::WithinReach.to_string());
    }

    #[test]
    fn links_that_another_user_may_have_made_are_not_followed() {
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["common", "own"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("own/file"), "").unwrap();
        for (link, target) in [
            ("own/link", "file"),
            ("way", "own"),
            ("common/link", "../own/file"),
            ("common/way", "../own"),
            ("own/through", "../common/way/file"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let hardening = shared(at("common"));
        for path in ["own/file", "own/link", "way/link"] {
            hardening.open_trusted(&at(path)).unwrap();
        }
        for path in ["common/link", "common/way/file", "own/through"] {
            let refused = hardening.open_trusted(&at(path)).unwrap_err();
            assert_eq!(refused.to_string(), Doubt::Link.to_string(), "{path}");
        }
    }

    #[test]
    fn files_that_other_users_may_have_replaced_are_doubtful() {
        const OTHER: Option<u32> = Some(12345);
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["way", "way/in", "links"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("way/in/file"), "").unwrap();
        symlink("../way/in/file", at("links/link")).unwrap();
        let hardening = ProcessHardening::default();
        let doubt_of = |path: &str| {
            let opened = hardening.open_trusted(&at(path));
            opened.err().map(|error| error.to_string())
        };
        let set = |name: &str, mode, owner| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            lchown(at(name), owner, None).unwrap();
        };
        let (way, link) = (Doubt::Way.to_string(), Doubt::Link.to_string());
        for (mode, owner, doubted) in [
            (0o755, Some(ROOT), false),
            (0o1777, Some(ROOT), false),
            (0o777, Some(ROOT), true),
            (0o775, Some(ROOT), true),
            (0o755, OTHER, true),
            (0o1777, OTHER, true),
        ] {
            for name in ["way", "way/in"] {
                set(name, mode, owner);
                let doubt = doubt_of("way/in/file");
                assert_eq!(
                    doubt,
                    doubted.then(|| way.clone()),
                    "{name} {mode:o} {owner:?}"
                );
                set(name, 0o755, Some(ROOT));
            }
            set("links", mode, owner);
            assert_eq!(
                doubt_of("links/link"),
                doubted.then(|| link.clone()),
                "{mode:o}"
            );
            set("links", 0o755, Some(ROOT));
        }
        lchown(at("links/link"), OTHER, None).unwrap();
        assert_eq!(doubt_of("links/link"), Some(link));
    }

    #[test]
    fn a_link_of_roots_is_followed_by_a_daemon_of_another_user() {
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["own", "roots"] {
            fs::create_dir(at(name)).unwrap();
            symlink("file", at(name).join("link")).unwrap();
        }
        lchown(at("own"), Some(1000), None).unwrap();
        let settled = |own, path: &str| {
            let places = vec!["/".into()];
            Reach { own, places }.settled(&at(path)).unwrap()
        };
        assert_eq!(settled(1000, "roots/link"), Some(at("roots/file")));
        assert_eq!(
            settled(1000, "own/link"),
            None,
            "it may be another of root's"
        );
        assert_eq!(settled(ROOT, "roots/link"), None);
        lchown(at("roots/link"), Some(1000), None).unwrap();
        assert_eq!(settled(1000, "roots/link"), None);
    }

    #[test]
    fn a_link_on_a_read_only_mount_is_followed() {
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        fs::write(place.join("file"), "").unwrap();
        symlink("file", place.join("link")).unwrap();
        // Mounts in the thread's own namespace are invisible elsewhere.
        let judged = std::thread::spawn(move || {
            let settled = || {
                let places = vec!["/".into()];
                let reach = Reach { own: ROOT, places };
                reach.settled(&place.join("link")).unwrap()
            };
            assert_eq!(settled(), None);
            mounted_read_only(&place)?;
            assert_eq!(settled(), Some(place.join("file")));
            Ok::<_, io::Error>(())
        });
        if let Err(error) = judged.join().unwrap() {
            eprintln!("SKIPPED: nothing can be mounted here: {error}");
        }
    }

    /// Makes a directory read-only for this thread.
    fn mounted_read_only(place: &Path) -> io::Result<()> {
        #[expect(unsafe_code, reason = "the rest of the process keeps what it has")]
        // SAFETY: the call unshares no descriptors that other threads could use.
        unsafe {
            unshare_unsafe(UnshareFlags::NEWNS)?;
        }
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private)?;
        mount_bind(place, place)?;
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        mount_remount(place, flags, c"")?;
        Ok(())
    }
}
