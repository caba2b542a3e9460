//! Static files, embedded by build.rs. Their path has a digest of the content, so caches never go
//! stale.

use std::sync::OnceLock;

use axum::{Router, extract::Request, response::Response, routing::get};
use memory_serve::{CacheControl, MemoryServe};
use osb_app::ui::AssetRoot;
use tower::ServiceExt;

/// Whether this build has the wasm that hydrates pages.
pub(super) const HYDRATES: bool = matches!(env!("OSB_SITE_HYDRATES").as_bytes(), b"true");

/// Path of the files.
pub(super) fn root() -> AssetRoot {
    AssetRoot(concat!("/console/assets/", env!("OSB_SITE_ID")).into())
}

/// Routes of the files.
pub(super) fn router() -> Router {
    let AssetRoot(path) = root();
    // A route, not a fallback: the console's own routes below it would come first.
    Router::new().nest(&path, Router::new().route("/{*file}", get(serve)))
}

async fn serve(request: Request) -> Response {
    let files = match FILES.get() {
        Some(files) => files.clone(),
        None => prepare().await,
    };
    match files.oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    }
}

/// Their routes, once they are prepared.
static FILES: OnceLock<Router> = OnceLock::new();

/// Prepares every file for every encoding that browsers ask for, which takes as long as everything
/// else at the start of a server together: hence beside it.
pub(super) async fn prepare() -> Router {
    let prepared = tokio::task::spawn_blocking(|| FILES.get_or_init(files).clone());
    prepared.await.unwrap_or_else(|error| {
        tracing::error!(%error, "the console's files cannot be served");
        Router::new()
    })
}

fn files() -> Router {
    let assets: &[(&str, &[memory_serve::Asset])] =
        include!(concat!(env!("OUT_DIR"), "/memory_serve_assets.rs"));
    let files = assets.first().map_or(&[][..], |(_, files)| files);
    // A debug build reads them from disk, where they may change under the same path.
    let cache = if cfg!(debug_assertions) {
        CacheControl::NoCache
    } else {
        CacheControl::Long
    };
    MemoryServe::new(files)
        .index_file(None)
        .cache_control(cache)
        .into_router()
}
