//! Routes of the contract that this server does not serve: the runtime lacks the feature, or this
//! release does.
//! They answer 501 with the code that the contract has for servers without the feature, so that
//! clients can distinguish it from a mistyped address and do not try again (contract: lifecycle §3, §9.1, §10, §11, §A3; clients §5).

use axum::{
    Router,
    extract::Request,
    routing::{MethodFilter, on},
};
use http::StatusCode;
use osb_protocol::{Feature, FeatureSet, error::code};

use super::super::{AppState, error::ApiError, extract::drain};

/// The routes of a feature.
struct Routes {
    feature: Feature,
    /// Code of the contract for servers without the feature.
    code: &'static str,
    /// Paths without a prefix, with the methods that the contract has for them.
    paths: &'static [(&'static str, MethodFilter)],
}

const DELETE: MethodFilter = MethodFilter::DELETE;
const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const PUT: MethodFilter = MethodFilter::PUT;

/// Features that this release serves on runtimes that have them.
const SERVED: [Feature; 6] = [
    Feature::Pause,
    Feature::Snapshots,
    Feature::Pools,
    Feature::Templates,
    Feature::NetworkPolicy,
    Feature::Diagnostics,
];

/// Features with routes that not every server serves. Those of [`SERVED`] leave this list for
/// runtimes that have them: a path can be routed only once.
const OPTIONAL: [Routes; 6] = [
    Routes {
        feature: Feature::Pause,
        code: code::API_NOT_SUPPORTED,
        paths: &[
            ("/sandboxes/{id}/pause", POST),
            ("/sandboxes/{id}/resume", POST),
        ],
    },
    Routes {
        feature: Feature::Snapshots,
        code: code::SNAPSHOT_NOT_IMPLEMENTED,
        paths: &[
            ("/sandboxes/{id}/snapshots", POST),
            ("/snapshots", GET),
            ("/snapshots/{id}", GET.or(DELETE)),
        ],
    },
    Routes {
        feature: Feature::Pools,
        code: code::POOL_NOT_SUPPORTED,
        paths: &[
            ("/pools", GET.or(POST)),
            ("/pools/{name}", GET.or(PUT).or(DELETE)),
        ],
    },
    Routes {
        feature: Feature::Templates,
        code: code::TEMPLATE_NOT_SUPPORTED,
        paths: &[
            ("/templates", GET.or(POST)),
            ("/templates/{id}", GET.or(DELETE)),
            ("/templates/{id}/log", GET),
        ],
    },
    Routes {
        feature: Feature::NetworkPolicy,
        code: code::API_NOT_SUPPORTED,
        paths: &[
            (
                "/sandboxes/{id}/networkpolicy",
                GET.or(PUT).or(MethodFilter::PATCH).or(DELETE),
            ),
            ("/sandboxes/{id}/networkpolicy/decisions", GET),
            ("/sandboxes/{id}/networkpolicy/proposal", GET),
        ],
    },
    Routes {
        feature: Feature::Diagnostics,
        code: code::DIAGNOSTICS_NOT_IMPLEMENTED,
        paths: &[
            ("/sandboxes/{id}/diagnostics/logs", GET),
            ("/sandboxes/{id}/diagnostics/events", GET),
            ("/sandboxes/{id}/diagnostics/inspect", GET),
            ("/sandboxes/{id}/diagnostics/summary", GET),
        ],
    },
];

/// The routes, without a prefix.
pub(super) fn routes(runtime: &'static str, features: FeatureSet) -> Router<AppState> {
    let mut router = Router::new();
    for Routes {
        feature,
        code,
        paths,
    } in OPTIONAL
    {
        if SERVED.contains(&feature) && features.contains(feature) {
            continue;
        }
        for (path, methods) in paths {
            let refuse = move |request: Request| async move {
                drain(request.into_body()).await;
                let message = if features.contains(feature) {
                    format!("{feature} are not in this release of the server")
                } else {
                    format!("{feature} are not available on the {runtime} runtime")
                };
                ApiError::new(StatusCode::NOT_IMPLEMENTED, code, message)
            };
            router = router.route(path, on(*methods, refuse));
        }
    }
    router
}

/// Paths of the routes that not every server serves.
pub(super) fn paths() -> impl Iterator<Item = &'static str> {
    let paths = OPTIONAL.into_iter().flat_map(|routes| routes.paths);
    paths.map(|(path, _)| *path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_what_is_absent() {
        let page = include_str!("../../../../docs/contract.md");
        for Routes {
            feature,
            code,
            paths,
        } in OPTIONAL
        {
            for (path, _) in paths {
                let (path, code) = (format!("`{path}`"), format!("`{code}`"));
                let listed = page
                    .lines()
                    .any(|line| line.contains(&path) && line.contains(&code));
                assert!(listed, "{feature}: {path} with {code}");
            }
        }
    }
}
