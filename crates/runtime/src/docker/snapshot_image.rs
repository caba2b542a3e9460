//! Replaces the image that a commit made by one that has the same layers and names nothing of the
//! sandbox.
//!
//! A commit cannot remove labels and variables of its container, only empty them, and engines before
//! release 26 also keep the whole configuration of the container, with its tokens, beside that of the
//! image. So the engine loads an archive with a new configuration for the layers. It reads no layer that
//! it has, so the archive has none. Engines that keep images with containerd refuse such an archive, and
//! the image of the commit stays: it has the names of the emptied entries and, in its history, the command
//! line of the sandbox.

use bollard::{
    models::{ImageConfig, ImageInspect},
    query_parameters::{ImportImageOptionsBuilder, RemoveImageOptionsBuilder},
};
use bytes::Bytes;
use futures::TryStreamExt;
use serde::Serialize;
use sha2::{Digest, Sha256};
use tracing::{debug, warn};

use super::{DockerRuntime, engine::bounded, error, image, labels, snapshot_config::is_no_command};
use crate::RuntimeError;

/// The list of images in an archive.
const MANIFEST: &str = "manifest.json";

/// An image in an archive.
#[derive(Debug, Serialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest<'a> {
    config: &'a str,
    repo_tags: [&'a str; 1],
    layers: Vec<String>,
}

/// The configuration of an image, as engines store it.
#[derive(Debug, Serialize)]
struct Stored<'a> {
    architecture: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    variant: Option<&'a str>,
    os: &'a str,
    #[serde(rename = "os.version", skip_serializing_if = "Option::is_none")]
    os_version: Option<&'a str>,
    created: &'a str,
    comment: &'a str,
    config: ImageConfig,
    rootfs: Layers<'a>,
    /// One entry for each layer. Without them the engine does not know the sizes.
    history: Vec<Step<'a>>,
}

#[derive(Debug, Serialize)]
struct Layers<'a> {
    r#type: &'static str,
    diff_ids: &'a [String],
}

#[derive(Clone, Debug, Serialize)]
struct Step<'a> {
    created: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    comment: &'a str,
}

impl DockerRuntime {
    /// Replaces the image of a snapshot unless that was done. After a failure the image of the commit
    /// stays, which can be used as well.
    pub(super) async fn clean_snapshot(&self, snapshot: &str) {
        let name = image::of_snapshot(snapshot);
        let cleaned = self.replace_image(&name).await;
        match cleaned {
            Ok(()) => {}
            Err(RuntimeError::Other { reason, .. }) => {
                debug!(
                    snapshot,
                    reason, "the image of the snapshot keeps the names of labels and variables"
                );
            }
            Err(error) => {
                warn!(snapshot, %error, "the image of the snapshot keeps the names of labels and variables");
            }
        }
    }

    async fn replace_image(&self, name: &str) -> Result<(), RuntimeError> {
        let docker = self.docker()?;
        let inspected = bounded(docker, docker.inspect_image(name)).await;
        let committed = inspected.map_err(|error| error::other("inspect the snapshot", &error))?;
        if !is_of_a_commit(&committed) {
            return Ok(());
        }
        let created = self.engine_time().to_string();
        let archive = archive(name, &created, &committed);
        let archive = archive.map_err(|reason| RuntimeError::Other {
            runtime: super::KIND,
            op: "pack the configuration of the snapshot",
            reason,
        })?;
        let options = ImportImageOptionsBuilder::default().quiet(true).build();
        let loading = docker.import_image(options, bollard::body_full(archive), None);
        let loaded = loading.try_for_each(|_| async { Ok(()) });
        let loaded = bounded(docker, loaded).await;
        loaded.map_err(|error| error::other("replace the image of the snapshot", &error))?;
        // The name is that of the new image, and the old one has none.
        let Some(old) = committed.id else {
            return Ok(());
        };
        let options = RemoveImageOptionsBuilder::default().noprune(true).build();
        let removed = docker.remove_image(&old, Some(options), None);
        match bounded(docker, removed).await {
            Ok(_) => Ok(()),
            Err(error) if error::is_missing(&error) => Ok(()),
            // Found again by the list of snapshots.
            Err(error) => Err(error::other("remove the replaced image", &error)),
        }
    }
}

/// Whether an image has entries that a commit could only empty. Every sandbox has an id.
fn is_of_a_commit(image: &ImageInspect) -> bool {
    let config = image.config.as_ref();
    let labels = config.and_then(|config| config.labels.as_ref());
    labels.is_some_and(|labels| labels.contains_key(labels::ID))
}

/// Packs an image without its layers.
fn archive(name: &str, created: &str, committed: &ImageInspect) -> Result<Bytes, String> {
    let layers = committed.root_fs.as_ref();
    let layers = layers.and_then(|layers| layers.layers.as_deref());
    let layers = layers.ok_or("the engine does not list its layers")?;
    let mut config = committed.config.clone().unwrap_or_default();
    if let Some(env) = &mut config.env {
        env.retain(|entry| entry.contains('='));
    }
    if let Some(labels) = &mut config.labels {
        labels.retain(|_, value| !value.is_empty());
    }
    if config.cmd.as_deref().is_some_and(is_no_command) {
        config.cmd = None;
    }
    let comment = committed.comment.as_deref().unwrap_or_default();
    let mut history = vec![
        Step {
            created,
            comment: "",
        };
        layers.len()
    ];
    if let Some(last) = history.last_mut() {
        last.comment = comment;
    }
    let stored = Stored {
        architecture: committed.architecture.as_deref().unwrap_or_default(),
        variant: committed.variant.as_deref().filter(|text| !text.is_empty()),
        os: committed.os.as_deref().unwrap_or("linux"),
        os_version: committed
            .os_version
            .as_deref()
            .filter(|text| !text.is_empty()),
        created,
        comment,
        config,
        rootfs: Layers {
            r#type: "layers",
            diff_ids: layers,
        },
        history,
    };
    let stored = serde_json::to_vec(&stored).map_err(|error| error.to_string())?;
    let digest: String = Sha256::digest(&stored)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let file = format!("{digest}.json");
    let manifest = [Manifest {
        config: &file,
        repo_tags: [name],
        layers: (0..layers.len())
            .map(|number| format!("{number}/layer.tar"))
            .collect(),
    }];
    let manifest = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
    let mut archive = tar::Builder::new(Vec::new());
    for (path, content) in [(file.as_str(), &stored), (MANIFEST, &manifest)] {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        archive
            .append_data(&mut header, path, content.as_slice())
            .map_err(|error| error.to_string())?;
    }
    let packed = archive.into_inner().map_err(|error| error.to_string())?;
    Ok(packed.into())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use serde_json::{Value, json};

    use super::*;
    use crate::docker::fake_engine::FakeEngine;

    const NAME: &str = "opensandbox-snapshots:s";

    fn committed() -> Value {
        json!({
            "Id": "sha256:old", "Architecture": "amd64", "Os": "linux", "Variant": "",
            "Comment": "OpenSandbox snapshot s",
            "RootFS": {"Type": "layers", "Layers": ["sha256:1", "sha256:2"]},
            "Config": {
                "Env": ["PATH=/bin", "EXECD_ACCESS_TOKEN"], "Cmd": ["bash"], "Entrypoint": [],
                "User": "me", "WorkingDir": "/w", "ExposedPorts": {"80/tcp": {}},
                "Labels": {labels::ID: "", "team": "", labels::SNAPSHOT: "s", "maintainer": "x"},
            },
        })
    }

    /// Reads the files of an archive.
    fn files(archive: &[u8]) -> Vec<(String, Value)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            (path, serde_json::from_str(&text).unwrap())
        });
        entries.collect()
    }

    #[test]
    fn the_new_image_has_the_same_layers_and_no_emptied_entry() {
        let image: ImageInspect = serde_json::from_value(committed()).unwrap();
        let archive = archive(NAME, "2031-05-01T10:00:00Z", &image).unwrap();
        let files = files(&archive);
        let [(file, config), (manifest, list)] = &files[..] else {
            panic!("{files:?}");
        };
        assert_eq!(manifest, "manifest.json");
        let layers = json!(["0/layer.tar", "1/layer.tar"]);
        assert_eq!(
            *list,
            json!([{"Config": file, "RepoTags": [NAME], "Layers": layers}])
        );
        let want = json!({
            "architecture": "amd64", "os": "linux", "created": "2031-05-01T10:00:00Z",
            "comment": "OpenSandbox snapshot s",
            "rootfs": {"type": "layers", "diff_ids": ["sha256:1", "sha256:2"]},
            "history": [
                {"created": "2031-05-01T10:00:00Z"},
                {"created": "2031-05-01T10:00:00Z", "comment": "OpenSandbox snapshot s"},
            ],
            "config": {
                "Env": ["PATH=/bin"], "Cmd": ["bash"], "Entrypoint": [], "User": "me",
                "WorkingDir": "/w", "ExposedPorts": {"80/tcp": {}},
                "Labels": {labels::SNAPSHOT: "s", "maintainer": "x"},
            },
        });
        assert_eq!(*config, want);
    }

    #[test]
    fn an_image_without_a_command_has_none() {
        let mut image = committed();
        image["Config"]["Cmd"] = json!([""]);
        let image: ImageInspect = serde_json::from_value(image).unwrap();
        let archive = archive(NAME, "2031-05-01T10:00:00Z", &image).unwrap();
        let (_, config) = &files(&archive)[0];
        assert_eq!(config["config"].get("Cmd"), None, "{config}");
        assert_eq!(config["config"]["User"], "me");
    }

    /// An engine with an image, which answers to a load.
    async fn engine(image: Value, load: (u16, String)) -> FakeEngine {
        FakeEngine::start(move |request| match request {
            _ if request.starts_with("GET /images/") => (200, image.to_string()),
            _ if request.starts_with("POST /images/load") => load.clone(),
            _ if request.starts_with("DELETE") => (200, "[]".to_owned()),
            _ => (404, json!({"message": request}).to_string()),
        })
        .await
    }

    #[tokio::test]
    async fn the_image_of_a_commit_is_replaced_once() {
        let done = json!({"stream": "Loaded image: s"}).to_string();
        let engine = engine(committed(), (200, done.clone())).await;
        engine.runtime().clean_snapshot("s").await;
        assert_eq!(engine.requests("POST /images/load").len(), 1);
        let removed = engine.requests("DELETE");
        assert_eq!(removed.len(), 1, "{removed:?}");
        assert!(
            removed[0].starts_with("DELETE /images/sha256:old"),
            "{removed:?}"
        );
        assert!(removed[0].contains("noprune=true"), "{removed:?}");

        let mut cleaned = committed();
        cleaned["Config"]["Labels"] = json!({labels::SNAPSHOT: "s"});
        let again = self::engine(cleaned, (200, done)).await;
        again.runtime().clean_snapshot("s").await;
        assert_eq!(again.requests("POST"), [""; 0]);
    }

    #[tokio::test]
    async fn an_engine_that_takes_no_such_archive_keeps_the_image_of_the_commit() {
        let failed = json!({"errorDetail": {"message": "layer not found"}, "error": "x"});
        for load in [
            (500, json!({"message": "layer not found"}).to_string()),
            (200, failed.to_string()),
        ] {
            let engine = engine(committed(), load).await;
            engine.runtime().clean_snapshot("s").await;
            assert_eq!(engine.requests("POST /images/load").len(), 1);
            assert_eq!(engine.requests("DELETE"), [""; 0]);
        }
    }
}
