//! Where hooks are kept from one start to the next.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
};

use rustix::{
    fs::{OFlags, StatVfsMountFlags, fstatvfs},
    process::geteuid,
};

use super::{ENV_KEPT_AT, config::Lifecycle};
use crate::{env::Variables, hardening::Floor, limits};

/// Where, unless the environment says otherwise, below the home directory.
const DEFAULT: &str = ".execd/lifecycle.toml";

/// Where they are kept. `None` without a home directory.
pub(super) fn path(own: &Variables) -> Option<PathBuf> {
    let set = |name| {
        own.get(name)
            .filter(|value| !value.is_empty())
            .map(Path::new)
    };
    set(ENV_KEPT_AT)
        .map(Path::to_owned)
        .or_else(|| set("HOME").map(|home| home.join(DEFAULT)))
}

/// Whether the environment says where.
pub(super) fn is_named(own: &Variables) -> bool {
    own.get(ENV_KEPT_AT).is_some_and(|value| !value.is_empty())
}

/// Keeps hooks, readable by the daemon's user alone: their commands may hold secrets.
pub(super) fn keep(path: &Path, hooks: &Lifecycle) -> io::Result<()> {
    let text = toml::to_string(hooks).map_err(io::Error::other)?;
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // It may not even have been made.
        let _gone = fs::remove_file(&temporary);
    }
    written
}

/// Why a file is not taken for one that was kept: hooks have all rights of the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Doubt {
    #[error("it is no file")]
    Kind,
    #[error("it belongs neither to the user of execd nor to root")]
    Owner,
    #[error("others than its owner may write it")]
    Mode,
    #[error(
        "commands or isolated sessions, which have fewer rights than hooks, may have written it: it \
         belongs to the user of execd, and is in allowed_writable or not closed by [landlock] or a \
         read-only mount"
    )]
    Commands,
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
            Some(Doubt::Commands)
        } else {
            None
        }
    }
}

/// What was kept, if anything was.
///
/// # Errors
/// When it cannot be read, or somebody may have written it who has fewer rights than hooks.
pub(super) fn kept(path: &Path, floor: &Floor) -> io::Result<Option<String>> {
    let mut text = String::new();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let read = OpenOptions::new()
        .read(true)
        // A pipe in its place has nobody at the other end.
        .custom_flags(flags)
        .open(path)
        .and_then(|file| {
            believe(&file, floor)?;
            file.take(limits::LIFECYCLE_FILE).read_to_string(&mut text)
        });
    match read {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Refuses a file that is doubtful. Asks about what was opened, since a path may mean something else
/// by then.
fn believe(file: &File, floor: &Floor) -> io::Result<()> {
    let meta = file.metadata()?;
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    let doubt = match meta.is_file() {
        false => Some(Doubt::Kind),
        true => Writers {
            owner: meta.uid(),
            own: geteuid().as_raw(),
            mode: meta.mode(),
            read_only: fstatvfs(file)?.f_flag.contains(StatVfsMountFlags::RDONLY),
            within_reach: floor.leaves_writable(&real),
        }
        .doubt(),
    };
    doubt.map_or(Ok(()), |doubt| Err(io::Error::other(doubt)))
}

#[cfg(test)]
mod tests {
    use std::{
        os::unix::fs::{PermissionsExt, symlink},
        sync::Arc,
    };

    use super::*;
    use crate::{env::Environment, isolated::config::Config};

    #[test]
    fn what_is_kept_is_private_and_replaced_whole() {
        let place = tempfile::tempdir().unwrap();
        let own = Variables::from_iter([("HOME", place.path())]);
        let path = path(&own).unwrap();
        assert_eq!(path, place.path().join(".execd/lifecycle.toml"));
        let floor = Floor::default();
        assert_eq!(kept(&path, &floor).unwrap(), None);
        let hooks = Lifecycle::read(r#"{"preStart":{"command":["a"]}}"#).unwrap();
        for _ in 0..2 {
            keep(&path, &hooks).unwrap();
            let text = kept(&path, &floor).unwrap().unwrap();
            assert_eq!(Lifecycle::read(&text).unwrap(), hooks);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(kept(place.path(), &floor).is_err(), "a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let refused = kept(&path, &floor).unwrap_err().to_string();
        assert_eq!(refused, Doubt::Mode.to_string());
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
                Some(Doubt::Commands),
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
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        for name in ["shared", "own"] {
            fs::create_dir(at(name)).unwrap();
            fs::write(at(name).join("hooks.toml"), "").unwrap();
        }
        symlink("shared", at("link")).unwrap();
        for name in ["shared", "link"] {
            let mut config = Config::default();
            config.allowed_writable = vec![at(name)];
            let environment = Environment::new(Variables::default());
            let floor = Floor::new(&config, &Arc::new(environment));
            let refused = kept(&at("shared/hooks.toml"), &floor).unwrap_err();
            assert_eq!(refused.to_string(), Doubt::Commands.to_string(), "{name}");
            assert!(kept(&at("own/hooks.toml"), &floor).unwrap().is_some());
        }
    }
}
