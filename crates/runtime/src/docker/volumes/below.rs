//! Directories of the host that sandboxes could replace before they are mounted.
//!
//! The engine mounts such a directory by path, after it was looked up. A sandbox that can write to its
//! parent could put a link in its place in between, and the engine would mount what the link leads to. A
//! sandbox that has a directory above that of another one could move parts of it out, where the other one
//! still writes to what it has open. So neither has the one below the other ([`super::places`]).
//!
//! ```text
//! directory of the host   refused if another sandbox has one above it with write access, or if it may be
//!                         written to and another sandbox has one below it; no two such sandboxes start at
//!                         the same time
//! directory of a volume   the engine looks itself, from API 1.45; refused with older engines
//! allow_racy_paths        both are taken: looked up again directly before each start
//! ```
//!
//! In each case execd compares what was mounted with what was found, before anything else runs, unless the
//! engine looked itself.

use std::path::PathBuf;

use osb_protocol::SandboxId;

use super::{
    Provided, Refused, blocking, host_files,
    places::{Held, Identity, Place},
};
use crate::{RuntimeError, VolumeFailure, docker::DockerRuntime};

/// The first API whose engine looks up directories of volumes itself.
const SUB_PATHS_FROM: (usize, usize) = (1, 45);
/// Flag of execd for what it is to find at a path, with `PATH=DEVICE:INODE`.
const EXPECT_MOUNT: &str = "--expect-mount=";

/// A directory of the host that is mounted, and how it was found.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Of its volume in the request.
    pub(super) index: usize,
    pub(super) mount_path: String,
    /// Whether the sandbox may write to it.
    pub(super) writes: bool,
    pub(super) place: Place,
    pub(super) source: Source,
    /// Whether the engine mounts it by a path in which a sandbox could put a link.
    pub(super) is_racy: bool,
}

/// What a sandbox holds by its mounts.
pub(super) fn held(directories: &[Watched]) -> Vec<Held> {
    let held = directories.iter().map(|it| it.place.held(it.writes));
    held.collect()
}

/// Where a directory was looked up.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Below an allowed directory of the host.
    Host {
        path: PathBuf,
        sub_path: Vec<String>,
    },
    /// Below the directory of a named volume.
    Claim {
        root: PathBuf,
        sub_path: Vec<String>,
    },
}

impl Source {
    /// The member of the request that names the directory.
    fn member(&self) -> &'static str {
        match self {
            Self::Host { sub_path, .. } if sub_path.is_empty() => "host.path",
            Self::Claim { sub_path, .. } if sub_path.is_empty() => "pvc.claimName",
            Self::Host { .. } | Self::Claim { .. } => "subPath",
        }
    }
}

impl Watched {
    /// The flag by which execd compares what was mounted.
    pub(super) fn flag(&self) -> String {
        let (path, (device, inode)) = (&self.mount_path, self.place.found.identity);
        format!("{EXPECT_MOUNT}{path}={device}:{inode}")
    }

    pub(super) fn refused(&self, reason: &str) -> Refused {
        Refused::Volume {
            member: self.source.member(),
            failure: match self.source.member() {
                "subPath" => VolumeFailure::SubPath,
                _ => VolumeFailure::HostPathNotAllowed,
            },
            reason: reason.to_owned(),
        }
    }
}

/// Reads a flag of execd: where it is to find what.
pub(super) fn read_flag(flag: &str) -> Option<(String, Identity)> {
    let (path, identity) = flag.strip_prefix(EXPECT_MOUNT)?.rsplit_once('=')?;
    let (device, inode) = identity.split_once(':')?;
    let identity = (device.parse().ok()?, inode.parse().ok()?);
    Some((path.to_owned(), identity))
}

impl DockerRuntime {
    /// Whether the engine looks up the directory of a volume itself, without a moment for a change.
    pub(super) fn has_sub_paths(&self) -> Result<bool, RuntimeError> {
        let version = self.docker()?.client_version();
        Ok((version.major_version, version.minor_version) >= SUB_PATHS_FROM)
    }

    /// Refuses directories of the host that overlap with those of other sandboxes. `id`: the sandbox that
    /// is to have them.
    pub(super) async fn check_overlaps(
        &self,
        id: &SandboxId,
        watched: &[Watched],
    ) -> Result<(), RuntimeError> {
        if watched.is_empty() || self.config.storage.allow_racy_paths {
            return Ok(());
        }
        let others = self.others(id).await?;
        let refused = watched.iter().find_map(|directory| {
            let reason = others.refuse(directory)?;
            Some(directory.refused(reason).of_volume(directory.index))
        });
        refused.map_or(Ok(()), Err)
    }

    /// Looks all directories of the host up again, directly before the start. Until the create ends, no
    /// sandbox starts whose directories overlap with them.
    pub(in crate::docker) async fn volumes_at_start(
        &self,
        id: &SandboxId,
        provided: &Provided,
    ) -> Result<(), RuntimeError> {
        let watched = &provided.watched;
        let is_accepted = self.config.storage.allow_racy_paths;
        if !watched.is_empty() && !is_accepted {
            // Before the list: what starts after it finds this entry.
            let in_progress = |other: &SandboxId| self.creating.contains(other);
            let entered = self.volumes.starts.enter(id, watched, in_progress);
            entered.map_err(|(place, reason)| {
                let directory = &watched[place];
                directory.refused(reason).of_volume(directory.index)
            })?;
            self.check_overlaps(id, watched).await?;
        }
        for directory in watched.iter().filter(|it| it.is_racy || !is_accepted) {
            let checked = self.look_again(directory).await;
            checked.map_err(|refused| refused.of_volume(directory.index))?;
        }
        Ok(())
    }

    async fn look_again(&self, watched: &Watched) -> Result<(), Refused> {
        let allowed = self.volumes.allowed.clone();
        let source = watched.source.clone();
        let look = move || match source {
            Source::Host { path, sub_path } => {
                let again = host_files::find_allowed(&allowed, &path, &sub_path, false);
                Place::of(again.map_err(|(_, trouble)| trouble)?.found)
            }
            Source::Claim { root, sub_path } => {
                Place::of(host_files::find_below(&root, &sub_path)?)
            }
        };
        let is_accepted = self.config.storage.allow_racy_paths;
        let is_same = |again: &Place| match is_accepted {
            true => again.found == watched.place.found,
            false => *again == watched.place,
        };
        match blocking(look).await {
            Some(Ok(again)) if is_same(&again) => Ok(()),
            None => Err(watched.refused("its file system does not answer")),
            Some(Ok(_) | Err(_)) => Err(watched.refused(
                "was replaced while the sandbox was created, so it is not what was checked",
            )),
        }
    }
}

/// Finds the volume whose directory an engine refuses to look up, by its own words.
pub(super) fn blamed(
    sub_paths: &[(usize, String)],
    own_words: &str,
    reason: &str,
) -> Option<RuntimeError> {
    // github.com/moby/moby, internal/safepath.
    let words = [
        "cannot access path",
        "path concatenation escapes the base directory",
    ];
    if !words.iter().any(|words| own_words.contains(words)) {
        return None;
    }
    let is_named = |path: &str| reason.contains(&["/", path].concat());
    let named = sub_paths.iter().find(|(_, path)| is_named(path));
    let (index, _) = named.or_else(|| sub_paths.first())?;
    Some(RuntimeError::Volume {
        index: *index,
        member: "subPath",
        failure: VolumeFailure::SubPath,
        reason: "the engine finds no such directory in the volume".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_execd_are_read_as_they_are_written() {
        for (flag, want) in [
            ("--expect-mount=/a=1:2", Some(("/a", (1, 2)))),
            ("--expect-mount=/a=b=64769:99", Some(("/a=b", (64769, 99)))),
            ("--expect-mount=/a", None),
            ("--expect-mount=/a=1:x", None),
            ("--", None),
        ] {
            let want = want.map(|(path, identity)| (path.to_owned(), identity));
            assert_eq!(read_flag(flag), want, "{flag}");
        }
    }

    #[test]
    fn the_volume_that_the_engine_refuses_is_named() {
        let sub_paths = [(1, "a/b".to_owned()), (3, "c".to_owned())];
        let blamed = |reason| match blamed(&sub_paths, reason, reason) {
            Some(RuntimeError::Volume { index, .. }) => Some(index),
            _ => None,
        };
        let missing = "cannot access path /v/_data/c: no such file or directory";
        assert_eq!(blamed(missing), Some(3));
        let escapes = "path concatenation escapes the base directory";
        assert_eq!(blamed(escapes), Some(1));
        assert_eq!(blamed("no space left on device"), None);
    }
}
