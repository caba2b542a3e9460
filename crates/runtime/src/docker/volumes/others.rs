//! Directories of the host that other sandboxes have.
//!
//! ```text
//! created by this release   numbers of directories, from the container's label
//! by an earlier release     numbers that execd was to find, or where the paths lead now
//! by docker.sandbox_binds   where the paths lead now; as if a sandbox always had them
//! each of them              paths as the engine lists them
//! starting now              numbers of directories, from this process
//! ```

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{
    models::{ContainerSummary, ContainerSummaryStateEnum as State, MountPoint},
    query_parameters::InspectContainerOptions,
};
use osb_protocol::SandboxId;

use super::{
    below::{self, Watched},
    blocking,
    places::{self, Held, Identity, Overlap, Unnoted},
};
use crate::{
    RuntimeError,
    docker::{DockerRuntime, KIND, engine::bounded, error, labels},
};

/// Directories that sandboxes have.
#[derive(Debug, Default)]
struct Mounted {
    held: Vec<Held>,
    /// Paths, and whether each may be written to.
    paths: Vec<(PathBuf, bool)>,
}

impl Mounted {
    fn overlap(&self, new: &Watched) -> Option<Overlap> {
        let held = new.place.held(new.writes);
        let path = (new.place.found.path.as_path(), new.writes);
        let by_number = self.held.iter().find_map(|other| held.overlap(other));
        let by_path = || {
            let mut paths = self.paths.iter();
            paths.find_map(|(other, writes)| places::overlap_of_paths(path, (other, *writes)))
        };
        by_number.or_else(by_path)
    }
}

/// What a new sandbox must not overlap with.
#[derive(Debug, Default)]
pub(super) struct Others {
    sandboxes: Mounted,
    /// What every sandbox gets.
    binds: Mounted,
}

impl Others {
    /// Why a directory cannot be mounted.
    pub(super) fn refuse(&self, new: &Watched) -> Option<&'static str> {
        let of_sandbox = self.sandboxes.overlap(new).map(reason);
        of_sandbox.or_else(|| {
            Some(match self.binds.overlap(new)? {
                Overlap::Below => {
                    "lies below a directory that every sandbox can write to (docker.sandbox_binds, also a \
                     read-only one with other file systems below it), which could replace it by a link"
                }
                Overlap::Above => {
                    "lies above a directory that every sandbox gets (docker.sandbox_binds), so it could be \
                     used to replace that by a link: mount it with readOnly"
                }
            })
        })
    }
}

fn reason(overlap: Overlap) -> &'static str {
    match overlap {
        Overlap::Below => {
            "lies below a directory that another sandbox can write to, which could replace it by a link: \
             mount one that no sandbox has a directory above, wait until that sandbox is removed, or have \
             the operator accept this (storage.allow_racy_paths)"
        }
        Overlap::Above => {
            "lies above a directory that another sandbox has, so it could be used to move or replace that: \
             mount it with readOnly, mount one that no sandbox has a directory below, wait until that \
             sandbox is removed, or have the operator accept this (storage.allow_racy_paths)"
        }
    }
}

/// Sandboxes of this process that are starting, with the directories of the host that each gets. An entry
/// holds until the sandbox's create ends. The engine lists the container as started, or not at all, then.
#[derive(Debug, Default)]
pub(super) struct Starts(Mutex<HashMap<SandboxId, Vec<Held>>>);

impl Starts {
    /// Notes a start, unless it overlaps with that of another create in progress.
    ///
    /// # Errors
    /// The first of the directories that overlaps, and why it is refused.
    pub(super) fn enter(
        &self,
        id: &SandboxId,
        directories: &[Watched],
        in_progress: impl Fn(&SandboxId) -> bool,
    ) -> Result<(), (usize, &'static str)> {
        let mut starts = self.locked();
        starts.retain(|other, _| other != id && in_progress(other));
        let others = Mounted {
            held: starts.values().flatten().cloned().collect(),
            paths: Vec::new(),
        };
        for (place, directory) in directories.iter().enumerate() {
            if let Some(overlap) = others.overlap(directory) {
                return Err((place, reason(overlap)));
            }
        }
        starts.insert(id.clone(), below::held(directories));
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<SandboxId, Vec<Held>>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DockerRuntime {
    /// Lists the directories of the host that sandboxes other than `id` have.
    pub(super) async fn others(&self, id: &SandboxId) -> Result<Others, RuntimeError> {
        let list = self
            .list_labelled(labels::ID, "list what sandboxes have mounted")
            .await?;
        let mut sandboxes = Mounted::default();
        for container in &list {
            let read = container.labels.as_ref().map(labels::Read);
            let owner = read.as_ref().and_then(labels::Read::id);
            if owner.as_ref() == Some(id) || self.has_no_mounts(container, owner.as_ref()) {
                continue;
            }
            let mounts = container.mounts.iter().flatten();
            sandboxes.paths.extend(mounts.filter_map(source));
            let note = read.as_ref().and_then(|read| read.held());
            let noted = owner.zip(note);
            match noted.and_then(|(owner, note)| places::read_note(&owner, note)) {
                Some(held) => sandboxes.held.extend(held),
                None => sandboxes.held.extend(self.unnoted(container).await?),
            }
        }
        let paths = self.config.sandbox_binds.iter();
        let paths: Vec<_> = paths.filter_map(|bind| source_of_bind(bind)).collect();
        let unnoted = paths.iter().map(|(path, writes)| Unnoted {
            path: path.clone(),
            writes: *writes,
            expected: None,
        });
        let held = look_at(unnoted.collect()).await?;
        let binds = Mounted { held, paths };
        Ok(Others { sandboxes, binds })
    }

    /// Whether a container has no mounts on the host, and gets none before another check.
    fn has_no_mounts(&self, container: &ContainerSummary, owner: Option<&SandboxId>) -> bool {
        match container.state {
            Some(State::EXITED | State::DEAD) => true,
            // Its create checks again before the start.
            Some(State::CREATED) => owner.is_some_and(|owner| self.creating.contains(owner)),
            _ => false,
        }
    }

    /// Finds out what a container has whose label does not say it.
    async fn unnoted(&self, container: &ContainerSummary) -> Result<Vec<Held>, RuntimeError> {
        // A look elsewhere could wait for a file system that is in no sandbox's way.
        let mounts = container.mounts.iter().flatten().filter_map(|mount| {
            let (path, writes) = source(mount)?;
            let touches = self.volumes.allowed.touch(&path);
            touches.then_some((path, writes, mount.destination.as_deref()))
        });
        let mounts: Vec<_> = mounts.collect();
        if mounts.is_empty() {
            return Ok(Vec::new());
        }
        let expected = match &container.id {
            Some(container) => self.expected_mounts(container).await?,
            None => Vec::new(),
        };
        let unnoted = mounts.into_iter().map(|(path, writes, destination)| {
            let is_there = |at: &str| destination.map(Path::new) == Some(Path::new(at));
            let mut expected = expected.iter();
            let expected = expected.find(|(at, _)| is_there(at));
            Unnoted {
                path,
                writes,
                expected: expected.map(|(_, identity)| *identity),
            }
        });
        look_at(unnoted.collect()).await
    }

    /// Reads what execd was to find at its start, and where.
    async fn expected_mounts(
        &self,
        container: &str,
    ) -> Result<Vec<(String, Identity)>, RuntimeError> {
        let docker = self.docker()?;
        let inspected = docker.inspect_container(container, None::<InspectContainerOptions>);
        let inspected = match bounded(docker, inspected).await {
            Ok(inspected) => inspected,
            Err(error) if error::is_missing(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error::other("inspect a sandbox's container", &error)),
        };
        let init = inspected.config.and_then(|config| config.entrypoint);
        let flags = init.iter().flatten();
        Ok(flags.filter_map(|flag| below::read_flag(flag)).collect())
    }
}

/// The path of a mount, and whether it may be written to. Volumes that an image declares have none.
fn source(mount: &MountPoint) -> Option<(PathBuf, bool)> {
    let path = Path::new(mount.source.as_deref()?);
    // An engine that does not say whether a mount is read-only means that it is not.
    let writes = mount.rw != Some(false);
    path.is_absolute().then(|| (path.to_owned(), writes))
}

/// The same of a configured bind, `source:target[:modes]`. Names of volumes are no paths.
fn source_of_bind(bind: &str) -> Option<(PathBuf, bool)> {
    let mut parts = bind.split(':');
    let path = Path::new(parts.next()?);
    let modes = parts.nth(1).unwrap_or_default();
    let writes = !modes.split(',').any(|mode| mode == "ro");
    path.is_absolute().then(|| (path.to_owned(), writes))
}

async fn look_at(unnoted: Vec<Unnoted>) -> Result<Vec<Held>, RuntimeError> {
    if unnoted.is_empty() {
        return Ok(Vec::new());
    }
    let look = || unnoted.into_iter().filter_map(Unnoted::held).collect();
    blocking(look)
        .await
        .ok_or_else(|| RuntimeError::Unavailable {
            runtime: KIND,
            reason: "the file system of a directory that sandboxes have does not answer".to_owned(),
        })
}
