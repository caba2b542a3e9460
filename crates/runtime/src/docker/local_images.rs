//! The images on the engine's host.

use async_trait::async_trait;
use bollard::{models::ImageSummary, query_parameters::ListImagesOptions};

use super::{
    DockerRuntime,
    engine::bounded,
    error,
    image::{is_snapshot, is_template},
};
use crate::{Images, LocalImage, RuntimeError};

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
}
