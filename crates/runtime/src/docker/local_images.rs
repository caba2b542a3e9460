//! The images on the engine's host.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use async_trait::async_trait;
use bollard::{
    errors::Error,
    models::ImageSummary,
    query_parameters::{ListContainersOptionsBuilder, ListImagesOptions, PruneBuildOptionsBuilder},
};
use osb_protocol::WireTime;
use tokio::time::timeout;
use tracing::warn;

use super::{
    DockerRuntime,
    engine::bounded,
    error,
    image::{full_name, is_snapshot, is_template, split_reference},
    labels,
    snapshots::Removal,
};
use crate::{Images, LocalImage, RuntimeError, UnusedImage};

/// Longest time that the removal of the cache of builds may take.
const PRUNE: Duration = Duration::from_secs(1800);
/// The engine's name of an image that has none.
const NAMELESS: &str = "<none>:<none>";

#[async_trait]
impl Images for DockerRuntime {
    async fn list_images(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        let docker = self.docker()?;
        let list = docker.list_images(None::<ListImagesOptions>);
        let list = bounded(docker, list).await;
        let list = list.map_err(|error| error::other("list the images", &error))?;
        let mut images: Vec<_> = list.into_iter().flat_map(named).collect();
        images.sort();
        images.dedup_by(|a, b| a.reference == b.reference);
        Ok(images)
    }

    async fn list_unused(&self) -> Result<Vec<UnusedImage>, RuntimeError> {
        let docker = self.docker()?;
        let list = bounded(docker, docker.list_images(None::<ListImagesOptions>)).await;
        let list = list.map_err(|error| error::other("list the images", &error))?;
        // Read after the images: one that a container got since is used.
        let options = ListContainersOptionsBuilder::default().all(true).build();
        let containers = bounded(docker, docker.list_containers(Some(options))).await;
        let containers = containers.map_err(|error| error::other("list the containers", &error))?;
        let used: HashSet<String> = containers
            .into_iter()
            .filter_map(|it| it.image_id)
            .collect();
        let candidates = list
            .into_iter()
            .filter(|it| !used.contains(&it.id) && is_pulled(it));
        let mut unused = Vec::new();
        for image in candidates {
            let named_at = match bounded(docker, docker.inspect_image(&image.id)).await {
                Ok(inspected) => inspected.metadata.and_then(|it| it.last_tag_time),
                Err(error) if error::is_missing(&error) => continue,
                Err(error) => {
                    if let Some(unavailable) = error::unavailable(&error) {
                        return Err(unavailable);
                    }
                    // The others can be removed all the same.
                    let reason = error::reason(&error);
                    warn!(image = image.id, reason, "an image cannot be inspected");
                    continue;
                }
            };
            // The engine has the year 1 for "never".
            let named_at = named_at.and_then(|at| WireTime::parse(&at.to_string()).ok());
            unused.push(UnusedImage {
                names: names(&image).map(full_name).collect(),
                bytes: u64::try_from(image.size).unwrap_or_default(),
                named_at: named_at.filter(|at| at.unix_us() > 0),
                id: image.id,
            });
        }
        Ok(unused)
    }

    fn full_name(&self, reference: &str) -> String {
        full_name(reference)
    }

    async fn remove_unused(&self, image: &UnusedImage) -> Result<bool, RuntimeError> {
        const OP: &str = "remove an image";
        let docker = self.docker()?;
        let inspected = match bounded(docker, docker.inspect_image(&image.id)).await {
            Ok(inspected) => inspected,
            Err(error) if error::is_missing(&error) => return Ok(false),
            Err(error) => return Err(error::other("inspect an image", &error)),
        };
        // By its id, the engine refuses one with several names.
        let mut names = inspected.repo_tags.unwrap_or_default();
        names.retain(|name| !name.starts_with("<none>"));
        if names.is_empty() {
            names = inspected.repo_digests.unwrap_or_default();
        }
        // It may have got another name since, such as that of a template.
        let is_known = |name: &String| image.names.contains(&full_name(name));
        if names.is_empty() || !names.iter().all(is_known) {
            return Ok(false);
        }
        let mut is_removed = false;
        for name in names {
            match self.remove_name(&name, OP).await? {
                Removal::Done => is_removed = true,
                // Another call removes it.
                Removal::Missing => {}
                Removal::InUse(_) => return Ok(false),
            }
        }
        Ok(is_removed)
    }

    async fn prune_build_cache(&self, unused_for: Duration) -> Result<u64, RuntimeError> {
        let docker = self.docker()?;
        let until = format!("{}s", unused_for.as_secs());
        let filters = HashMap::from([("until", vec![until.as_str()])]);
        let options = PruneBuildOptionsBuilder::default()
            .filters(&filters)
            .build();
        let pruned = timeout(PRUNE, docker.prune_build(Some(options))).await;
        let pruned = pruned.unwrap_or(Err(Error::RequestTimeoutError));
        let pruned = pruned.map_err(|error| error::other("remove the cache of builds", &error))?;
        let bytes = pruned.space_reclaimed.unwrap_or_default();
        Ok(u64::try_from(bytes).unwrap_or_default())
    }
}

/// The names of an image, with the registry's digests of it.
fn names(image: &ImageSummary) -> impl Iterator<Item = &str> {
    let names = image.repo_tags.iter().chain(&image.repo_digests);
    let names = names.map(String::as_str);
    names.filter(|name| !name.starts_with("<none>"))
}

/// Whether an image is in a registry under each of its names, and is not one of this project.
fn is_pulled(image: &ImageSummary) -> bool {
    let is_own = image
        .labels
        .get(labels::VENDOR)
        .is_some_and(|it| it == labels::VENDOR_NAME);
    let digests = image.repo_digests.iter();
    let repositories: HashSet<&str> = digests
        .filter_map(|digest| Some(digest.split_once('@')?.0))
        .filter(|repository| *repository != "<none>")
        .collect();
    // One that was tagged on this host is in no registry.
    let is_in_registry =
        |tag: &String| tag == NAMELESS || repositories.contains(split_reference(tag).0);
    !repositories.is_empty()
        && image.repo_tags.iter().all(is_in_registry)
        && !is_own
        && !names(image).any(|name| is_snapshot(name) || is_template(name))
}

/// The image under each of its names.
fn named(image: ImageSummary) -> impl Iterator<Item = LocalImage> {
    let bytes = u64::try_from(image.size).unwrap_or_default();
    let tags = image.repo_tags.into_iter();
    tags.filter(|tag| tag != NAMELESS && !is_snapshot(tag) && !is_template(tag))
        .map(move |reference| LocalImage { reference, bytes })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    #[tokio::test]
    async fn images_are_listed_by_name() {
        let engine = FakeEngine::start(|request| match request {
            _ if request.starts_with("GET /images/json") => {
                let image = |id: &str, tags: &[&str], size: i64| {
                    json!({
                        "Id": id, "ParentId": "", "RepoTags": tags, "RepoDigests": [],
                        "Created": 1, "Size": size, "SharedSize": -1, "Labels": {},
                        "Containers": -1,
                    })
                };
                let list = json!([
                    image("sha256:1", &["python:3.13", "debian:12"], 100),
                    image("sha256:2", &["<none>:<none>"], 7),
                    image("sha256:3", &[], 7),
                    image("sha256:4", &["a/b:latest"], -1),
                    image("sha256:5", &["opensandbox-snapshots:s"], 9),
                    image("sha256:6", &["opensandbox-templates/us:t"], 9),
                ]);
                (200, list.to_string())
            }
            _ => (404, String::new()),
        })
        .await;
        let images = engine.runtime().list_images().await.unwrap();
        let images: Vec<_> = images
            .iter()
            .map(|image| (image.reference.as_str(), image.bytes))
            .collect();
        let known = [("a/b:latest", 0), ("debian:12", 100), ("python:3.13", 100)];
        assert_eq!(images, known);
    }

    fn image(id: &str, tags: &[&str], digests: &[&str], vendor: &str) -> serde_json::Value {
        json!({
            "Id": id, "ParentId": "", "RepoTags": tags, "RepoDigests": digests, "Created": 1,
            "Size": 7, "SharedSize": -1, "Labels": {labels::VENDOR: vendor}, "Containers": -1,
        })
    }

    #[tokio::test]
    async fn only_what_was_pulled_and_nothing_uses_is_unused() {
        let engine = FakeEngine::start(|request| {
            let (method, path) = request.split_once(' ').unwrap();
            let path = path.split('?').next().unwrap();
            match (method, path) {
                ("GET", "/images/json") => {
                    let digest = |name: &str| format!("{name}@sha256:{}", "0".repeat(64));
                    let pulled = digest("python");
                    let list = json!([
                        image("sha256:1", &["python:3.13"], &[&pulled], ""),
                        image("sha256:2", &["debian:12"], &[&digest("debian")], ""),
                        image("sha256:3", &["built:1"], &[], ""),
                        image("sha256:4", &["<none>:<none>"], &["<none>@<none>"], ""),
                        image(
                            "sha256:5",
                            &["base:1"],
                            &[&digest("base")],
                            labels::VENDOR_NAME
                        ),
                        image("sha256:6", &["opensandbox-snapshots:s"], &[&pulled], ""),
                        image("sha256:7", &["opensandbox-templates/us:t"], &[&pulled], ""),
                        image(
                            "sha256:8",
                            &["<none>:<none>"],
                            &[&digest("docker.io/library/old")],
                            ""
                        ),
                        image("sha256:9", &["gone:1"], &[&digest("gone")], ""),
                        image("sha256:a", &["broken:1"], &[&digest("broken")], ""),
                        image(
                            "sha256:b",
                            &["python:3.12", "mine:1"],
                            &[&digest("python")],
                            ""
                        ),
                    ]);
                    (200, list.to_string())
                }
                ("GET", "/containers/json") => {
                    (200, json!([{"Id": "c", "ImageID": "sha256:2"}]).to_string())
                }
                ("GET", "/images/sha256:1/json") => {
                    let at = json!({"LastTagTime": "2031-05-01T10:00:00Z"});
                    let tags = ["python:3.13"];
                    (
                        200,
                        json!({"Id": "sha256:1", "Metadata": at, "RepoTags": tags}).to_string(),
                    )
                }
                ("GET", "/images/sha256:8/json") => {
                    let at = json!({"LastTagTime": "0001-01-01T00:00:00Z"});
                    let old = format!("docker.io/library/old@sha256:{}", "0".repeat(64));
                    let found = json!({"Id": "sha256:8", "Metadata": at, "RepoDigests": [old]});
                    (200, found.to_string())
                }
                ("GET", "/images/sha256:c/json") => {
                    let tags = json!({"Id": "sha256:c", "RepoTags": ["taken:1"]});
                    (200, tags.to_string())
                }
                ("GET", "/images/sha256:a/json") => (500, json!({"message": "broken"}).to_string()),
                ("DELETE", "/images/python:3.13") => {
                    (409, json!({"message": "in use"}).to_string())
                }
                ("DELETE", "/images/taken:1") => (404, json!({"message": "gone"}).to_string()),
                ("DELETE", _) => (200, "[]".to_owned()),
                ("POST", "/build/prune") => (200, json!({"SpaceReclaimed": 12}).to_string()),
                _ => (404, json!({"message": "none"}).to_string()),
            }
        })
        .await;
        let runtime = engine.runtime();
        let unused = runtime.list_unused().await.unwrap();
        let ids: Vec<_> = unused.iter().map(|image| image.id.as_str()).collect();
        assert_eq!(ids, ["sha256:1", "sha256:8"]);
        let [python, old] = &unused[..] else {
            panic!("{unused:?}");
        };
        assert_eq!(python.names[0], "python:3.13");
        assert_eq!(
            python.named_at,
            WireTime::parse("2031-05-01T10:00:00Z").ok()
        );
        assert_eq!((old.named_at, old.bytes), (None, 7));
        let digest = format!("old@sha256:{}", "0".repeat(64));
        assert_eq!(old.names, [digest.as_str()]);
        assert_eq!(
            runtime.full_name(&format!("index.docker.io/library/{digest}")),
            digest
        );
        assert!(
            !runtime.remove_unused(python).await.unwrap(),
            "a container got it since"
        );
        assert!(runtime.remove_unused(old).await.unwrap());
        let removed = engine.requests("DELETE /images/");
        assert_eq!(removed.len(), 2, "{removed:?}");
        assert!(removed[1].contains("library/old@sha256"), "{removed:?}");
        // It has become that of a template since.
        let renamed = UnusedImage {
            names: vec!["other:1".to_owned()],
            ..python.clone()
        };
        assert!(!runtime.remove_unused(&renamed).await.unwrap());
        let gone = UnusedImage {
            id: "sha256:9".to_owned(),
            ..python.clone()
        };
        assert!(!runtime.remove_unused(&gone).await.unwrap());
        let taken = UnusedImage {
            id: "sha256:c".to_owned(),
            names: vec!["taken:1".to_owned()],
            ..python.clone()
        };
        let removed = runtime.remove_unused(&taken).await;
        assert!(!removed.unwrap(), "another call has removed it meanwhile");
        assert_eq!(engine.requests("DELETE /images/").len(), 3);
        let pruned = runtime.prune_build_cache(Duration::from_secs(3600)).await;
        assert_eq!(pruned.unwrap(), 12);
        let asked = engine.requests("POST /build/prune").concat();
        assert!(asked.contains("3600s"), "{asked}");
    }

    #[test]
    fn a_short_name_means_the_same_as_the_full_one() {
        for (short, full) in [
            ("python", "python:latest"),
            ("docker.io/library/python:3", "python:3"),
            ("index.docker.io/a/b", "a/b:latest"),
            ("localhost:5000/a", "localhost:5000/a:latest"),
            ("a:1@sha256:0", "a@sha256:0"),
        ] {
            assert_eq!(full_name(short), full);
        }
    }
}
