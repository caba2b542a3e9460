//! The lifecycle API, a file per resource. Mounted under `/v1` and at the root.

mod absent;
mod commands;
mod diagnostics;
mod endpoints;
mod events;
mod metrics;
mod network_learning;
mod network_policy;
mod pause;
mod pools;
mod sandboxes;
mod sidecar_refusals;
mod snapshots;
mod templates;

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
    let routes = match features.contains(Feature::NetworkPolicy) {
        true => routes
            .routes(routes!(
                network_policy::get,
                network_policy::replace,
                network_policy::merge,
                network_policy::remove
            ))
            .routes(routes!(network_learning::decisions))
            .routes(routes!(network_learning::proposal)),
        false => routes,
    };
    let routes = match features.contains(Feature::Snapshots) {
        true => routes
            .routes(routes!(snapshots::take))
            .routes(routes!(snapshots::list))
            .routes(routes!(snapshots::get, snapshots::delete)),
        false => routes,
    };
    let routes = match features.contains(Feature::Pools) {
        true => routes
            .routes(routes!(pools::create, pools::list))
            .routes(routes!(pools::get, pools::update, pools::delete)),
        false => routes,
    };
    let routes = match features.contains(Feature::Templates) {
        true => routes
            .routes(routes!(templates::create, templates::list))
            .routes(routes!(templates::get, templates::delete))
            .routes(routes!(templates::log)),
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
