//! Directories that lie below one which sandboxes may write to.
//!
//! The engine mounts such a directory by path, after it was looked up. A sandbox that can write to its
//! parent could put a link in its place in between, and the engine would mount what the link leads to.
//!
//! ```text
//! directory of the host   refused while another sandbox has a directory above it, with write access;
//!                         no such sandbox starts between the look and the mount
//! directory of a volume   the engine looks itself, from API 1.45; refused with older engines
//! allow_racy_paths        both are taken: looked up again directly before each start
//! ```
//!
//! In each case execd compares what was mounted with what was found, before anything else runs, unless the
//! engine looked itself.

use std::path::{Path, PathBuf};

use bollard::models::ContainerSummary;
use osb_protocol::SandboxId;
use tokio::sync::{RwLockReadGuard, RwLockWriteGuard};

use super::{
    Provided, Refused, blocking,
    host_files::{self, Found, Part},
};
use crate::{
    RuntimeError, VolumeFailure,
    docker::{DockerRuntime, labels},
};

/// The first API whose engine looks up directories of volumes itself.
const SUB_PATHS_FROM: (usize, usize) = (1, 45);

/// A directory that is mounted by path, and how it was found.
#[derive(Clone, Debug)]
pub(super) struct Watched {
    /// Of its volume in the request.
    pub(super) index: usize,
    pub(super) mount_path: String,
    pub(super) found: Found,
    pub(super) source: Source,
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
            Self::Host { .. } | Self::Claim { .. } => "subPath",
        }
    }
}

impl Watched {
    fn refused(&self, reason: &str) -> Refused {
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

/// While it lives, no sandbox starts that could replace a directory which is about to be mounted.
#[must_use]
pub(in crate::docker) enum StartTurn<'a> {
    /// The sandbox neither writes to the host nor mounts what could be replaced.
    Free,
    /// It may write to a directory of the host.
    Writes { _turn: RwLockReadGuard<'a, ()> },
    /// It mounts a directory that must not be replaced.
    Alone { _turn: RwLockWriteGuard<'a, ()> },
}

impl DockerRuntime {
    /// Whether the engine looks up the directory of a volume itself, without a moment for a change.
    pub(super) fn has_sub_paths(&self) -> Result<bool, RuntimeError> {
        let version = self.docker()?.client_version();
        Ok((version.major_version, version.minor_version) >= SUB_PATHS_FROM)
    }

    /// Refuses a directory of the host that another sandbox could replace. `id`: the sandbox that is to
    /// have it.
    pub(super) async fn check_parents(
        &self,
        id: &SandboxId,
        watched: &Watched,
    ) -> Result<(), Refused> {
        let is_of_host = matches!(watched.source, Source::Host { .. });
        if !is_of_host || self.config.storage.allow_racy_paths {
            return Ok(());
        }
        let list = self
            .list_labelled(labels::ID, "list what sandboxes have mounted")
            .await?;
        let mut others = list.iter().filter(|container| {
            let labels = container.labels.as_ref();
            labels.and_then(|labels| labels::Read(labels).id()).as_ref() != Some(id)
        });
        if others.any(|other| writes_above(other, &watched.found.path)) {
            return Err(watched.refused(
                "lies below a directory that another sandbox can write to, which could replace it by a \
                 link: mount one that no sandbox has a directory above, or have the operator accept this \
                 (storage.allow_racy_paths)",
            ));
        }
        Ok(())
    }

    /// Looks all directories up again that are mounted by path. The sandbox must be started before the
    /// turn is dropped.
    pub(in crate::docker) async fn volumes_at_start(
        &self,
        id: &SandboxId,
        provided: &Provided,
    ) -> Result<StartTurn<'_>, RuntimeError> {
        let starts = &self.volumes.starts;
        let mut of_host = provided.watched.iter().map(|it| &it.source);
        let turn = if self.config.storage.allow_racy_paths {
            StartTurn::Free
        } else if of_host.any(|source| matches!(source, Source::Host { .. })) {
            StartTurn::Alone {
                _turn: starts.write().await,
            }
        } else if provided.writes_host || !self.config.sandbox_binds.is_empty() {
            StartTurn::Writes {
                _turn: starts.read().await,
            }
        } else {
            StartTurn::Free
        };
        for watched in &provided.watched {
            let checked = async {
                self.check_parents(id, watched).await?;
                self.look_again(watched).await
            };
            let checked = checked.await;
            checked.map_err(|refused| refused.of_volume(watched.index))?;
        }
        Ok(turn)
    }

    async fn look_again(&self, watched: &Watched) -> Result<(), Refused> {
        let found = match watched.source.clone() {
            Source::Host { path, sub_path } => {
                let allowed = self.volumes.allowed.clone();
                let look = move || {
                    let again = host_files::find_allowed(&allowed, &path, &sub_path, false);
                    again.map(|it| it.found)
                };
                blocking(look).await
            }
            Source::Claim { root, sub_path } => {
                let look = move || {
                    let again = host_files::find_below(&root, &sub_path);
                    again.map_err(|trouble| (Part::SubPath, trouble))
                };
                blocking(look).await
            }
        };
        match found {
            Some(Ok(found)) if found == watched.found => Ok(()),
            None => Err(watched.refused("its file system does not answer")),
            Some(Ok(_) | Err(_)) => Err(watched.refused(
                "was replaced while the sandbox was created, so it is not what was checked",
            )),
        }
    }
}

/// Whether a container has a directory above a path, and may write to it.
fn writes_above(container: &ContainerSummary, path: &Path) -> bool {
    let mut mounts = container.mounts.iter().flatten();
    mounts.any(|mount| {
        let source = mount.source.as_deref().map(Path::new);
        // An engine that does not say whether a mount is read-only means that it is not.
        mount.rw != Some(false)
            && source.is_some_and(|source| path.starts_with(source) && path != source)
    })
}

/// Finds the volume whose directory an engine refuses to look up, by its words.
pub(super) fn blamed(sub_paths: &[(usize, String)], reason: &str) -> Option<RuntimeError> {
    // github.com/moby/moby, internal/safepath.
    let words = [
        "cannot access path",
        "path concatenation escapes the base directory",
    ];
    if !words.iter().any(|words| reason.contains(words)) {
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
    use serde_json::json;

    use super::*;

    #[test]
    fn only_write_access_to_a_directory_above_is_a_danger() {
        for (source, rw, want) in [
            ("/srv/data", Some(true), true),
            ("/srv/data", None, true),
            ("/srv/data", Some(false), false),
            ("/srv/data/a", Some(true), false),
            ("/srv/data/a/b", Some(true), false),
            ("/srv/dat", Some(true), false),
            ("/", Some(true), true),
        ] {
            let mount = json!({"Type": "bind", "Source": source, "Destination": "/x", "RW": rw});
            let container: ContainerSummary =
                serde_json::from_value(json!({"Mounts": [mount]})).unwrap();
            let writes = writes_above(&container, Path::new("/srv/data/a"));
            assert_eq!(writes, want, "{source} {rw:?}");
        }
        assert!(!writes_above(
            &ContainerSummary::default(),
            Path::new("/srv")
        ));
    }

    #[test]
    fn the_volume_that_the_engine_refuses_is_named() {
        let sub_paths = [(1, "a/b".to_owned()), (3, "c".to_owned())];
        let blamed = |reason| match blamed(&sub_paths, reason) {
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
