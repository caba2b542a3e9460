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
use crate::links::resolve_links;

const ROOT: u32 = 0;

/// Reason to distrust a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DistrustReason {
    #[error("commands, isolated sessions or another user may have created a link in its path")]
    Link,
    #[error(
        "commands, isolated sessions or another user may have moved it there: a directory in its path \
         belongs neither to the user of execd nor to root, or others may write it, or commands may"
    )]
    Directory,
    #[error("it is not a regular file")]
    NotAFile,
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

/// Facts that decide which processes may have written a file, changed the entries of a directory,
/// or created a link.
#[derive(Clone, Copy, Debug)]
struct WriteAccess {
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

impl WriteAccess {
    fn distrust_reason(self) -> Option<DistrustReason> {
        const GROUP_AND_OTHERS: u32 = 0o022;
        if self.read_only {
            None
        } else if ![self.own, ROOT].contains(&self.owner) {
            Some(DistrustReason::Owner)
        } else if self.mode & GROUP_AND_OTHERS != 0 {
            Some(DistrustReason::Mode)
        } else if self.within_reach && self.owner == self.own {
            Some(DistrustReason::WithinReach)
        } else {
            None
        }
    }
}

/// Places exposed to processes with fewer rights than the daemon.
#[derive(Debug)]
struct Exposure {
    /// The daemon's user.
    own: u32,
    /// Places where processes with fewer rights may write files of that user.
    places: Vec<PathBuf>,
}

impl Exposure {
    fn write_access(
        &self,
        path: &Path,
        meta: &Metadata,
        mode: u32,
        mount: &StatVfs,
    ) -> WriteAccess {
        WriteAccess {
            owner: meta.uid(),
            own: self.own,
            mode,
            read_only: mount.f_flag.contains(StatVfsMountFlags::RDONLY),
            within_reach: self.places.iter().any(|place| path.starts_with(place)),
        }
    }

    /// First reason to distrust a file or one of its parent directories, because a process that may
    /// change a directory may have replaced the file. The path must not contain symbolic links.
    fn distrust_reason(
        &self,
        path: &Path,
        writers: WriteAccess,
    ) -> io::Result<Option<DistrustReason>> {
        if let Some(reason) = writers.distrust_reason() {
            return Ok(Some(reason));
        }
        for directory in path.ancestors().skip(1) {
            let meta = fs::symlink_metadata(directory)?;
            let mount = statvfs(directory)?;
            let found = self.write_access(directory, &meta, entry_write_bits(meta.mode()), &mount);
            let parent = WriteAccess {
                // Entries of an unwritable place cannot be replaced by a rename.
                within_reach: found.within_reach && !writers.read_only,
                ..found
            };
            if parent.distrust_reason().is_some() {
                return Ok(Some(DistrustReason::Directory));
            }
        }
        Ok(None)
    }

    /// Resolves a path. `None` if one of its links is not trusted.
    fn resolve_trusted(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let path = std::path::absolute(path)?;
        let is_trusted = |link: &Path| {
            let check = || {
                let meta = fs::symlink_metadata(link)?;
                // The flags belong to the mount, so the parent directory has the same.
                let mount = statvfs(link.parent().unwrap_or(link))?;
                // The mode of a symbolic link is meaningless.
                self.distrust_reason(link, self.write_access(link, &meta, 0, &mount))
            };
            check().is_ok_and(|reason| reason.is_none())
        };
        Ok(resolve_links(&path, is_trusted))
    }
}

/// Write bits that apply to entries of a directory: in a sticky directory only its owner and the
/// owner of an entry may remove or rename it.
fn entry_write_bits(mode: u32) -> u32 {
    const STICKY: u32 = 0o1000;
    if mode & STICKY == 0 { mode } else { 0 }
}

impl ProcessHardening {
    /// Opens a file provided by the sandbox's creator.
    ///
    /// # Errors
    /// When it cannot be opened, or there is a [`DistrustReason`].
    pub(crate) fn open_trusted(&self, path: &Path) -> io::Result<File> {
        let distrusted = |reason: DistrustReason| Err(io::Error::other(reason));
        let exposure = Exposure {
            own: geteuid().as_raw(),
            places: self.within_reach(),
        };
        let Some(resolved) = exposure.resolve_trusted(path)? else {
            return distrusted(DistrustReason::Link);
        };
        // A FIFO without a writer must not block, and a terminal must not become the daemon's.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(&resolved)?;
        // Checks the opened file, since the path may lead elsewhere by now.
        let meta = file.metadata()?;
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !meta.is_file() {
            return distrusted(DistrustReason::NotAFile);
        }
        if real != resolved {
            return distrusted(DistrustReason::Link);
        }
        let writers = exposure.write_access(&real, &meta, meta.mode(), &fstatvfs(&file)?);
        exposure
            .distrust_reason(&real, writers)?
            .map_or(Ok(file), distrusted)
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
    fn files_that_others_may_write_are_distrusted() {
        let own = WriteAccess {
            owner: 1000,
            own: 1000,
            mode: 0o100_600,
            read_only: false,
            within_reach: false,
        };
        let of = |owner| WriteAccess { owner, ..own };
        let within_reach = true;
        for (writers, reason) in [
            (own, None),
            (of(0), None),
            (of(1001), Some(DistrustReason::Owner)),
            (WriteAccess { own: 0, ..own }, Some(DistrustReason::Owner)),
            (
                WriteAccess { mode: 0o620, ..own },
                Some(DistrustReason::Mode),
            ),
            (
                WriteAccess {
                    mode: 0o602,
                    ..of(0)
                },
                Some(DistrustReason::Mode),
            ),
            (
                WriteAccess {
                    within_reach,
                    ..own
                },
                Some(DistrustReason::WithinReach),
            ),
            // Commands of a user other than root cannot write root's files.
            (
                WriteAccess {
                    within_reach,
                    ..of(0)
                },
                None,
            ),
            (
                WriteAccess {
                    mode: 0o666,
                    read_only: true,
                    within_reach,
                    ..of(1001)
                },
                None,
            ),
        ] {
            assert_eq!(writers.distrust_reason(), reason, "{writers:?}");
        }
    }

    #[test]
    fn files_that_isolated_sessions_may_write_are_distrusted_without_hardening() {
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
                DistrustReason::WithinReach.to_string(),
                "{name}"
            );
            hardening.open_trusted(&at("own/file")).unwrap();
        }
    }

    #[test]
    fn files_in_tmp_are_distrusted() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let path = place.path().canonicalize().unwrap().join("file");
        fs::write(&path, "").unwrap();
        let hardening = shared("/nonexistent".into());
        let refused = hardening.open_trusted(&path).unwrap_err();
        assert_eq!(refused.to_string(), DistrustReason::WithinReach.to_string());
    }

    #[test]
    fn links_that_another_user_may_have_created_are_not_followed() {
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
            assert_eq!(
                refused.to_string(),
                DistrustReason::Link.to_string(),
                "{path}"
            );
        }
    }

    #[test]
    fn files_that_other_users_may_have_replaced_are_distrusted() {
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
        let reason_for = |path: &str| {
            let opened = hardening.open_trusted(&at(path));
            opened.err().map(|error| error.to_string())
        };
        let set = |name: &str, mode, owner| {
            fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            lchown(at(name), owner, None).unwrap();
        };
        let (way, link) = (
            DistrustReason::Directory.to_string(),
            DistrustReason::Link.to_string(),
        );
        for (mode, owner, distrusted) in [
            (0o755, Some(ROOT), false),
            (0o1777, Some(ROOT), false),
            (0o777, Some(ROOT), true),
            (0o775, Some(ROOT), true),
            (0o755, OTHER, true),
            (0o1777, OTHER, true),
        ] {
            for name in ["way", "way/in"] {
                set(name, mode, owner);
                let reason = reason_for("way/in/file");
                assert_eq!(
                    reason,
                    distrusted.then(|| way.clone()),
                    "{name} {mode:o} {owner:?}"
                );
                set(name, 0o755, Some(ROOT));
            }
            set("links", mode, owner);
            assert_eq!(
                reason_for("links/link"),
                distrusted.then(|| link.clone()),
                "{mode:o}"
            );
            set("links", 0o755, Some(ROOT));
        }
        lchown(at("links/link"), OTHER, None).unwrap();
        assert_eq!(reason_for("links/link"), Some(link));
    }

    #[test]
    fn a_daemon_of_another_user_follows_links_of_root() {
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["own", "roots"] {
            fs::create_dir(at(name)).unwrap();
            symlink("file", at(name).join("link")).unwrap();
        }
        lchown(at("own"), Some(1000), None).unwrap();
        let resolved = |own, path: &str| {
            let places = vec!["/".into()];
            Exposure { own, places }.resolve_trusted(&at(path)).unwrap()
        };
        assert_eq!(resolved(1000, "roots/link"), Some(at("roots/file")));
        assert_eq!(
            resolved(1000, "own/link"),
            None,
            "it may be another of root's"
        );
        assert_eq!(resolved(ROOT, "roots/link"), None);
        lchown(at("roots/link"), Some(1000), None).unwrap();
        assert_eq!(resolved(1000, "roots/link"), None);
    }

    #[test]
    fn a_link_on_a_read_only_mount_is_followed() {
        let directory = outside();
        let place = directory.path().canonicalize().unwrap();
        fs::write(place.join("file"), "").unwrap();
        symlink("file", place.join("link")).unwrap();
        // Mounts in the thread's own namespace are invisible elsewhere.
        let checked = std::thread::spawn(move || {
            let resolved = || {
                let places = vec!["/".into()];
                let exposure = Exposure { own: ROOT, places };
                exposure.resolve_trusted(&place.join("link")).unwrap()
            };
            assert_eq!(resolved(), None);
            mounted_read_only(&place)?;
            assert_eq!(resolved(), Some(place.join("file")));
            Ok::<_, io::Error>(())
        });
        if let Err(error) = checked.join().unwrap() {
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
