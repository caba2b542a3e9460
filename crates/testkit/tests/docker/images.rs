//! Images that the engine pulls from a registry.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use axum::{
    Router,
    extract::{Path, State},
    http::{Method as HttpMethod, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use osb_runtime::{Images, UnusedImage};
use osb_service::Supervisor;
use osb_testkit::wait_until;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::stage::{Stage, answer, body, create, delete, docker, get as get_sandbox, ready};

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// A registry with one image, which has one file.
#[derive(Clone)]
struct Registry {
    manifest: Arc<Vec<u8>>,
    blobs: Arc<HashMap<String, Vec<u8>>>,
    /// Layers that were downloaded.
    pulls: Arc<AtomicUsize>,
}

fn digest(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    format!("sha256:{digits}")
}

impl Registry {
    /// Starts it on a free port. Its image's file has this text, so that no other image has its layer.
    async fn start(text: &str) -> (Self, String) {
        let mut layer = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o644);
        layer
            .append_data(&mut header, "text", text.as_bytes())
            .unwrap();
        let layer = layer.into_inner().unwrap();
        let arch = if cfg!(target_arch = "aarch64") {
            "arm64"
        } else {
            "amd64"
        };
        let config = json!({
            "architecture": arch, "os": "linux", "config": {},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        })
        .to_string()
        .into_bytes();
        let part = |kind: &str, bytes: &[u8]| json!({"mediaType": kind, "size": bytes.len(), "digest": digest(bytes)});
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": part("application/vnd.docker.container.image.v1+json", &config),
            "layers": [part("application/vnd.docker.image.rootfs.diff.tar", &layer)],
        });
        let this = Self {
            manifest: Arc::new(manifest.to_string().into_bytes()),
            blobs: Arc::new([(digest(&config), config), (digest(&layer), layer)].into()),
            pulls: Arc::default(),
        };
        let routes = Router::new()
            .route("/v2/", get(async || "{}"))
            .route("/v2/hello/manifests/{reference}", get(manifest_of))
            .route("/v2/hello/blobs/{digest}", get(blob))
            .with_state(this.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let name = format!(
            "localhost:{}/hello:1",
            listener.local_addr().unwrap().port()
        );
        let serving = axum::serve(listener, routes);
        // It ends with the runtime of the test.
        Supervisor::new().spawn_abortable("registry", async move {
            let _ = serving.await;
        });
        (this, name)
    }
}

async fn manifest_of(State(registry): State<Registry>) -> Response {
    let bytes = registry.manifest.to_vec();
    let headers = [
        (CONTENT_TYPE.as_str(), MANIFEST.to_owned()),
        ("Docker-Content-Digest", digest(&bytes)),
    ];
    (headers, bytes).into_response()
}

async fn blob(
    State(registry): State<Registry>,
    method: HttpMethod,
    Path(digest): Path<String>,
) -> Response {
    let Some(bytes) = registry.blobs.get(&digest) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    if method == HttpMethod::GET {
        registry.pulls.fetch_add(1, SeqCst);
    }
    bytes.clone().into_response()
}

#[tokio::test]
async fn a_pulled_image_can_be_removed_when_nothing_uses_it() {
    let mut stage = Stage::set();
    stage.engine.up().unwrap();
    let (registry, image) = Registry::start(&stage.instance).await;
    let server = stage.server().await;
    ready(&server).await;
    let runtime = stage.runtime(|_| {});
    let unused = async || -> Option<UnusedImage> {
        let unused = runtime.list_unused().await.unwrap();
        let vendor = |name: &String| name.starts_with("opensandbox/");
        assert!(
            !unused.iter().any(|it| it.names.iter().any(vendor)),
            "{unused:?}"
        );
        unused.into_iter().find(|it| it.names.contains(&image))
    };
    for round in 1..=2 {
        let mut body = body();
        body["image"]["uri"] = json!(image);
        // The image has no other program.
        body["entrypoint"] = json!(["/opt/opensandbox/.dist/execd", "--version"]);
        let id = create(&server, &body).await;
        let state = async || get_sandbox(&server, &id).await.1["status"]["state"].clone();
        let is_over = |state: &Value| state == "Terminated" || state == "Failed";
        wait_until("its end", state, is_over).await;
        assert_eq!(registry.pulls.load(SeqCst), 2 * round, "config and layer");
        assert_eq!(unused().await, None, "a container uses it");
        delete(&server, &id).await;
        let found = unused().await.unwrap();
        assert!(runtime.remove_unused(&found).await.unwrap());
        assert_eq!(unused().await, None);
        assert_eq!(docker(&["images", "--quiet", &image]), "");
    }
    let (_, listed) = answer(server.request(reqwest::Method::GET, "/v1/sandboxes")).await;
    assert_eq!(listed["items"], json!([]));
    server.stop().await;
}
