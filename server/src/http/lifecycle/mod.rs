//! The lifecycle API, a file per resource. Mounted under `/v1` and at the root.

mod absent;
mod commands;
mod diagnostics;
mod endpoints;
mod events;
mod metrics;
mod pause;
mod sandboxes;

use axum::Router;
use osb_protocol::{Feature, FeatureSet};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::AppState;

/// The routes that a runtime with these features has, with their documentation.
pub(super) fn routes(features: FeatureSet) -> OpenApiRouter<AppState> {
    let routes = OpenApiRouter::new()
        .routes(routes!(sandboxes::create, sandboxes::list))
        .routes(routes!(sandboxes::get, sandboxes::delete))
        .routes(routes!(sandboxes::patch_metadata))
        .routes(routes!(sandboxes::renew))
        .routes(routes!(endpoints::get))
        .routes(routes!(commands::list))
        .routes(routes!(metrics::history))
        .routes(routes!(metrics::watch));
    let routes = match features.contains(Feature::Pause) {
        true => routes
            .routes(routes!(pause::pause))
            .routes(routes!(pause::resume)),
        false => routes,
    };
    match features.contains(Feature::Diagnostics) {
        true => routes
            .routes(routes!(diagnostics::logs))
            .routes(routes!(diagnostics::events))
            .routes(routes!(diagnostics::inspect))
            .routes(routes!(diagnostics::summary)),
        false => routes,
    }
}

/// Routes that exist under `/v1` only.
pub(super) fn v1_only() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(events::record))
}

/// The same routes without documentation, for the root.
pub(super) fn plain(features: FeatureSet) -> Router<AppState> {
    routes(features).split_for_parts().0
}

/// Paths of the routes that not every server serves.
pub(super) fn optional_paths() -> impl Iterator<Item = &'static str> {
    absent::paths()
}

/// Routes of the contract that answer 501, under both prefixes.
pub(super) fn absent(runtime: &'static str, features: FeatureSet) -> Router<AppState> {
    let routes = || absent::routes(runtime, features);
    routes().nest("/v1", routes())
}
