//! Refuses mounts that would cover the platform's directories in a sandbox.
//!
//! The engine follows links of the image in a mount path, and so a path that reads like any other may
//! lead to execd, which would run another program in its place. Before a sandbox starts, its mount paths
//! are resolved in its image, the platform's own too. A mount that leads through a link must not overlap
//! with another: it could hide the link of a third from this look. A path that leads through another
//! mount must have no link there.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use bollard::{
    Docker,
    errors::Error,
    query_parameters::{
        ContainerArchiveInfoOptionsBuilder, DownloadFromContainerOptionsBuilder,
        InspectContainerOptions,
    },
};
use futures::StreamExt as _;

use super::{
    super::{DockerRuntime, KIND, engine::bounded, error, execd_volume, helper},
    failure::NotStarted,
};
use crate::{CreateSpec, RuntimeError, VolumeFailure};

/// Directories of the platform in a sandbox, the first of which has execd's mount in it.
const OWN: [&str; 3] = ["/opt/opensandbox", execd_volume::MOUNT, "/var/lib/execd"];
/// Images whose links are kept.
const IMAGES: usize = 256;

/// Targets of the links among the paths that were looked at. `None` is no link, or no file.
type Links = HashMap<String, Option<String>>;

/// Links of images, by the image's id.
#[derive(Debug, Default)]
pub(in crate::docker) struct ImageLinks(Mutex<HashMap<String, Links>>);

impl ImageLinks {
    fn of(&self, image: &str) -> Links {
        self.locked().get(image).cloned().unwrap_or_default()
    }

    fn put(&self, image: &str, links: Links) {
        let mut images = self.locked();
        if images.len() >= IMAGES {
            images.clear();
        }
        images.insert(image.to_owned(), links);
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, Links>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A mount of a sandbox.
struct Place<'a> {
    /// Path, in parts.
    read: Vec<String>,
    /// The path in the image that this leads to.
    led: Vec<String>,
    /// `None` for a mount of the platform or the operator, which is trusted.
    owner: Option<Owner<'a>>,
}

/// Origin of a mount that is not trusted.
#[derive(Clone, Copy)]
enum Owner<'a> {
    /// The client, by the place of the volume in the request.
    Client(usize),
    /// The image declares it.
    Image(&'a str),
}

impl Owner<'_> {
    fn refused(self, why: &str) -> NotStarted {
        let error = match self {
            Self::Client(index) => RuntimeError::Volume {
                index,
                member: "mountPath",
                failure: VolumeFailure::MountPath,
                reason: why.to_owned(),
            },
            Self::Image(path) => RuntimeError::Refused {
                runtime: KIND,
                reason: format!("image.uri: the image declares a volume at {path}, which {why}")
                    .into(),
            },
        };
        error.into()
    }
}

impl DockerRuntime {
    /// Checks the mounts of a sandbox's container, which is created and not started.
    ///
    /// # Errors
    /// A mount covers a directory of the platform, or may hide that it does, or the engine cannot mount
    /// what the container has.
    pub(super) async fn check_coverage(
        &self,
        container: &str,
        spec: &CreateSpec,
    ) -> Result<(), NotStarted> {
        let docker = self.docker()?;
        let inspected = docker.inspect_container(container, None::<InspectContainerOptions>);
        let inspected = bounded(docker, inspected)
            .await
            .map_err(|error| error::other("inspect the sandbox", &error))?;
        let declared = inspected.config.and_then(|config| config.volumes);
        let mut declared = declared.unwrap_or_default();
        if declared.is_empty() && spec.volumes.is_empty() {
            return Ok(());
        }
        // One image is refused for the same volume each time.
        declared.sort();
        let mounts = inspected.mounts.unwrap_or_default().into_iter();
        let mounts: Vec<_> = mounts.filter_map(|mount| mount.destination).collect();
        let paths = places(spec, &declared, &mounts);
        for (path, owner) in &paths {
            // The engine could not mount these to show where others lead.
            if let (Some(owner @ Owner::Image(_)), Some(own)) = (owner, own_above(path)) {
                return Err(owner.refused(&covers(own)));
            }
        }
        let image = inspected.image.unwrap_or_default();
        let mut root = Root {
            docker,
            container: None,
            image: &image,
            instance: &self.config.instance,
            links: self.image_links.of(&image),
        };
        let led = root.resolve_all(
            OWN.iter()
                .copied()
                .chain(paths.iter().map(|(path, _)| *path)),
        );
        let led = led.await;
        if let Some(helper) = &root.container {
            helper::remove(docker, helper).await;
        }
        let mut led = led?;
        self.image_links.put(&image, root.links);
        let places = led.split_off(OWN.len());
        let places = paths.iter().zip(places).map(|((path, owner), led)| Place {
            read: parts(path).collect(),
            led,
            owner: *owner,
        });
        let places: Vec<_> = places.collect();
        check_places(&led, &places)?;
        let mut root = Root {
            docker,
            container: Some(container.to_owned()),
            image: &image,
            instance: &self.config.instance,
            links: Links::new(),
        };
        for place in places.iter().filter(|place| is_nested(place, &places)) {
            let Some(owner) = place.owner else {
                continue;
            };
            let path = format!("/{}", place.read.join("/"));
            if root.resolve(&path).await? != place.led {
                return Err(owner.refused("leads through a link in another volume"));
            }
        }
        Ok(())
    }
}

/// The paths of all mounts, each once.
fn places<'a>(
    spec: &'a CreateSpec,
    declared: &'a [String],
    mounts: &'a [String],
) -> Vec<(&'a str, Option<Owner<'a>>)> {
    let volumes = spec.volumes.iter().enumerate();
    let of_client = volumes.map(|(index, it)| (it.mount_path.as_str(), Some(Owner::Client(index))));
    let of_image = declared
        .iter()
        .map(|path| (path.as_str(), Some(Owner::Image(path))));
    let others = mounts.iter().map(|path| (path.as_str(), None));
    let mut known = HashSet::new();
    let mut all: Vec<_> = of_client.chain(of_image).chain(others).collect();
    all.retain(|(path, _)| known.insert(parts(path).collect::<Vec<_>>()));
    all
}

/// Refuses mounts that cover what the platform has, at `own` in the image, or that may hide links.
fn check_places(own: &[Vec<String>], places: &[Place<'_>]) -> Result<(), NotStarted> {
    for (number, place) in places.iter().enumerate() {
        let Place { read, led, owner } = place;
        let Some(owner) = owner else {
            continue;
        };
        let is_linked = led != read;
        let shown = led.join("/");
        // The engine mounts by the number of parts in a path. What an image declares above the platform's
        // directories comes before them, and covers nothing.
        let may_be_above = matches!(owner, Owner::Image(_)) && !is_linked;
        let covered = own
            .iter()
            .zip(OWN)
            .find(|(own, _)| led.starts_with(own) || !may_be_above && own.starts_with(led));
        if let Some((_, own)) = covered {
            let why = format!("leads to /{shown} in this image, and {}", covers(own));
            return Err(owner.refused(&why));
        }
        let others = places
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != number);
        let mut overlapping =
            others.filter(|(_, it)| it.led.starts_with(led) || led.starts_with(&it.led));
        if let (true, Some((_, other))) = (is_linked, overlapping.next()) {
            let other = other.read.join("/");
            let why = format!(
                "leads to /{shown} in this image, and overlaps there with what is mounted at /{other}"
            );
            return Err(owner.refused(&why));
        }
    }
    Ok(())
}

/// Whether the path of a mount leads through another mount.
fn is_nested(place: &Place<'_>, all: &[Place<'_>]) -> bool {
    let is_other =
        |it: &Place<'_>| it.led.len() < place.led.len() && place.led.starts_with(&it.led);
    all.iter().any(is_other)
}

/// The platform's directory at or above a path, as it reads.
fn own_above(path: &str) -> Option<&'static str> {
    let read: Vec<_> = parts(path).collect();
    let mut own = OWN.into_iter();
    own.find(|own| read.starts_with(&parts(own).collect::<Vec<_>>()))
}

fn covers(own: &str) -> String {
    format!("would cover {own}, a directory of the platform")
}

/// The files of a container that is not started, with what the engine mounts there.
struct Root<'a> {
    docker: &'a Docker,
    /// The container. Without one, a helper of the image is made when it is needed.
    container: Option<String>,
    image: &'a str,
    instance: &'a str,
    links: Links,
}

impl Root<'_> {
    async fn resolve_all<'p>(
        &mut self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<Vec<Vec<String>>, NotStarted> {
        let mut resolved = Vec::new();
        for path in paths {
            resolved.push(self.resolve(path).await?);
        }
        Ok(resolved)
    }

    /// The parts of the path that a path leads to. Parts that do not exist are as they read: the engine
    /// makes them.
    async fn resolve(&mut self, path: &str) -> Result<Vec<String>, NotStarted> {
        let mut resolved = Vec::new();
        for part in parts(path) {
            resolved.push(part);
            let reached = format!("/{}", resolved.join("/"));
            // The engine has followed all links of the target.
            if let Some(target) = self.link(reached).await? {
                resolved = parts(&target).collect();
            }
        }
        Ok(resolved)
    }

    async fn link(&mut self, path: String) -> Result<Option<String>, NotStarted> {
        if let Some(known) = self.links.get(&path) {
            return Ok(known.clone());
        }
        let container = match self.container.take() {
            Some(container) => container,
            None => helper::create(self.docker, self.image, self.instance, Vec::new())
                .await
                .map_err(NotStarted::Engine)?,
        };
        let container = self.container.insert(container);
        let options = ContainerArchiveInfoOptionsBuilder::default()
            .path(&path)
            .build();
        let info = self
            .docker
            .get_container_archive_info(container, Some(options));
        let target = match bounded(self.docker, info).await {
            Ok(info) => Some(info.link_target).filter(|target| !target.is_empty()),
            Err(error) if error::is_missing(&error) => None,
            Err(error) => {
                let error = explained(self.docker, container, &path, error).await;
                return Err(NotStarted::Engine(error));
            }
        };
        self.links.insert(path, target.clone());
        Ok(target)
    }
}

/// The same error with the engine's reason: a response to HEAD has no body.
async fn explained(docker: &Docker, container: &str, path: &str, error: Error) -> Error {
    let options = DownloadFromContainerOptionsBuilder::default()
        .path(path)
        .build();
    let mut archive = docker.download_from_container(container, Some(options));
    let begun = async { archive.next().await.transpose() };
    bounded(docker, begun).await.err().unwrap_or(error)
}

/// The parts of an absolute path.
fn parts(path: &str) -> impl Iterator<Item = String> + '_ {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    parts.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place<'a>(read: &str, led: &str, owner: Option<Owner<'a>>) -> Place<'a> {
        Place {
            read: parts(read).collect(),
            led: parts(led).collect(),
            owner,
        }
    }

    fn is_refused(places: &[Place<'_>]) -> bool {
        let own = OWN.map(|path| parts(path).collect());
        check_places(&own, places).is_err()
    }

    #[test]
    fn a_mount_behind_a_link_overlaps_with_none() {
        let of = |index: usize, read: &str, led: &str| place(read, led, Some(Owner::Client(index)));
        for (others, refused) in [
            (vec![of(1, "/b", "/b")], false),
            (vec![of(1, "/run/b", "/run/b")], false),
            (vec![of(1, "/run", "/run")], true),
            (vec![of(1, "/run/a", "/run/a")], true),
            (vec![of(1, "/run/a/below", "/run/a/below")], true),
            (vec![of(1, "/p/q/r", "/run")], true),
            (vec![place("/run", "/run", None)], true),
            (
                vec![place("/run/a", "/run/a", Some(Owner::Image("/run/a")))],
                true,
            ),
        ] {
            let mut all = vec![of(0, "/var/run/a", "/run/a")];
            all.extend(others);
            assert_eq!(is_refused(&all), refused);
        }
        // Without links, the engine mounts what is above first.
        assert!(!is_refused(&[of(0, "/a/b", "/a/b"), of(1, "/a", "/a")]));
    }

    #[test]
    fn only_what_an_image_declares_without_a_link_may_be_above_the_platform() {
        for (read, led, owner, refused) in [
            ("/opt", "/opt", Some(Owner::Image("/opt")), false),
            ("/high", "/opt", Some(Owner::Image("/high")), true),
            ("/opt", "/opt", Some(Owner::Client(0)), true),
            ("/whole", "/", Some(Owner::Client(0)), true),
            ("/opt", "/opt", None, false),
            ("/opt/other", "/opt/other", Some(Owner::Client(0)), false),
        ] {
            assert_eq!(
                is_refused(&[place(read, led, owner)]),
                refused,
                "{read} {led}"
            );
        }
    }
}
