//! Static files, embedded by build.rs. Their path names their content, so they never go stale.

use axum::Router;
use memory_serve::{CacheControl, MemoryServe};
use osb_app::ui::AssetRoot;

/// Whether this build has the wasm that makes pages live.
pub(super) const HYDRATES: bool = matches!(env!("OSB_SITE_HYDRATES").as_bytes(), b"true");

/// Where the files are.
pub(super) fn root() -> AssetRoot {
    AssetRoot(concat!("/console/assets/", env!("OSB_SITE_ID")).into())
}

/// Serves them.
pub(super) fn router() -> Router {
    let assets: &[(&str, &[memory_serve::Asset])] =
        include!(concat!(env!("OUT_DIR"), "/memory_serve_assets.rs"));
    let files = assets.first().map_or(&[][..], |(_, files)| files);
    // A debug build reads them from disk, where they may change under the same path.
    let cache = if cfg!(debug_assertions) {
        CacheControl::NoCache
    } else {
        CacheControl::Long
    };
    let AssetRoot(path) = root();
    let files = MemoryServe::new(files)
        .index_file(None)
        .cache_control(cache);
    Router::new().nest(&path, files.into_router())
}
