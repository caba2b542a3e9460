//! Which files are used with all rights of the daemon: only what nobody may have written, or put there,
//! who has fewer.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use rustix::{
    fs::{OFlags, StatVfsMountFlags, fstatvfs},
    process::geteuid,
};

use super::Floor;

/// Why a file is not trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Doubt {
    #[error("on the way is a link that commands or isolated sessions may have made")]
    Link,
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

/// What tells who may have written a file.
#[derive(Clone, Copy, Debug)]
struct Writers {
    owner: u32,
    /// The daemon's user.
    own: u32,
    mode: u32,
    /// Nobody in the sandbox can write it, whoever it belongs to.
    read_only: bool,
    /// Commands or isolated sessions may write what is the daemon's user's there, and have fewer rights.
    within_reach: bool,
}

impl Writers {
    fn doubt(self) -> Option<Doubt> {
        const ROOT: u32 = 0;
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

impl Floor {
    /// Opens a file of whoever made the sandbox.
    ///
    /// # Errors
    /// When it cannot be opened, or there is a [`Doubt`].
    pub(crate) fn open_trusted(&self, path: &Path) -> io::Result<File> {
        let doubtful = |doubt: Doubt| Err(io::Error::other(doubt));
        let Some(settled) = self.settled(path)? else {
            return doubtful(Doubt::Link);
        };
        // A pipe in its place has nobody at the other end.
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(flags)
            .open(&settled)?;
        // About what was opened, since a path may mean something else by then.
        let meta = file.metadata()?;
        let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        if !meta.is_file() {
            return doubtful(Doubt::Kind);
        }
        if real != settled {
            return doubtful(Doubt::Link);
        }
        let writers = Writers {
            owner: meta.uid(),
            own: geteuid().as_raw(),
            mode: meta.mode(),
            read_only: fstatvfs(&file)?.f_flag.contains(StatVfsMountFlags::RDONLY),
            within_reach: self.leaves_writable(&real),
        };
        writers.doubt().map_or(Ok(file), doubtful)
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::symlink, path::PathBuf, sync::Arc};

    use super::*;
    use crate::{
        env::{Environment, Variables},
        isolated::config::Config,
    };

    /// Away from `/tmp`, which isolated sessions may write.
    fn outside() -> tempfile::TempDir {
        tempfile::tempdir_in("/var/lib").unwrap()
    }

    /// No floor, but a directory that isolated sessions may write.
    fn shared(place: PathBuf) -> Floor {
        let mut config = Config::default();
        config.allowed_writable = vec![place];
        let environment = Environment::new(Variables::default());
        Floor::new(&config, &Arc::new(environment))
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
            // Commands of another user than root write nothing of root's.
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
        for name in ["shared", "own"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("file"), "").unwrap();
        }
        symlink("shared", at("link")).unwrap();
        for name in ["shared", "link"] {
            let floor = shared(at(name));
            let refused = floor.open_trusted(&at("shared/file")).unwrap_err();
            assert_eq!(refused.to_string(), Doubt::WithinReach.to_string(), "{name}");
            floor.open_trusted(&at("own/file")).unwrap();
        }
    }

    #[test]
    fn a_balanced_session_may_have_written_what_is_in_tmp() {
        let place = tempfile::tempdir_in("/tmp").unwrap();
        let path = place.path().canonicalize().unwrap().join("file");
        fs::write(&path, "").unwrap();
        let floor = shared("/nonexistent".into());
        let refused = floor.open_trusted(&path).unwrap_err();
        assert_eq!(refused.to_string(), Doubt::WithinReach.to_string());
    }

    #[test]
    fn no_link_is_followed_that_somebody_else_may_have_made() {
        let place = outside();
        let place = place.path().canonicalize().unwrap();
        let at = |name: &str| place.join(name);
        for name in ["shared", "own"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("own/file"), "").unwrap();
        for (link, target) in [
            ("own/link", "file"),
            ("way", "own"),
            ("shared/link", "../own/file"),
            ("shared/way", "../own"),
            ("own/through", "../shared/way/file"),
        ] {
            symlink(target, at(link)).unwrap();
        }
        let floor = shared(at("shared"));
        for path in ["own/file", "own/link", "way/link"] {
            floor.open_trusted(&at(path)).unwrap();
        }
        for path in ["shared/link", "shared/way/file", "own/through"] {
            let refused = floor.open_trusted(&at(path)).unwrap_err();
            assert_eq!(refused.to_string(), Doubt::Link.to_string(), "{path}");
        }
    }
}
