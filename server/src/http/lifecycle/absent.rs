//! Routes of the contract that this release does not have. They answer 501 with the code that the
//! contract has for servers without the feature: clients tell that from a mistyped address, and do
//! not try again (contract: lifecycle §3, §9.1, §10, §11, §A3; clients §5).

use axum::{
    Router,
    extract::Request,
    routing::{MethodFilter, on},
};
use http::StatusCode;
use osb_protocol::error::code;

use super::super::{AppState, error::ApiError, extract::drain};

/// A feature that is not there.
struct Absent {
    /// In the plural.
    what: &'static str,
    code: &'static str,
    /// Paths without a prefix, with the methods that the contract has for them.
    routes: &'static [(&'static str, MethodFilter)],
}

const DELETE: MethodFilter = MethodFilter::DELETE;
const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;
const PUT: MethodFilter = MethodFilter::PUT;

/// All of them. What is served one day leaves this list: a route can be had only once.
const ABSENT: [Absent; 6] = [
    Absent {
        what: "pause and resume",
        code: code::API_NOT_SUPPORTED,
        routes: &[
            ("/sandboxes/{id}/pause", POST),
            ("/sandboxes/{id}/resume", POST),
        ],
    },
    Absent {
        what: "snapshots",
        code: code::SNAPSHOT_NOT_IMPLEMENTED,
        routes: &[
            ("/sandboxes/{id}/snapshots", POST),
            ("/snapshots", GET),
            ("/snapshots/{id}", GET.or(DELETE)),
        ],
    },
    Absent {
        what: "pools",
        code: code::POOL_NOT_SUPPORTED,
        routes: &[
            ("/pools", GET.or(POST)),
            ("/pools/{name}", GET.or(PUT).or(DELETE)),
        ],
    },
    Absent {
        what: "templates",
        code: code::TEMPLATE_NOT_SUPPORTED,
        routes: &[
            ("/templates", GET.or(POST)),
            ("/templates/{id}", GET.or(DELETE)),
        ],
    },
    Absent {
        what: "network policies",
        code: code::API_NOT_SUPPORTED,
        routes: &[(
            "/sandboxes/{id}/networkpolicy",
            GET.or(PUT).or(MethodFilter::PATCH).or(DELETE),
        )],
    },
    Absent {
        what: "diagnostics",
        code: code::DIAGNOSTICS_NOT_IMPLEMENTED,
        routes: &[
            ("/sandboxes/{id}/diagnostics/logs", GET),
            ("/sandboxes/{id}/diagnostics/events", GET),
            ("/sandboxes/{id}/diagnostics/inspect", GET),
            ("/sandboxes/{id}/diagnostics/summary", GET),
        ],
    },
];

/// The routes, without a prefix.
pub(super) fn routes() -> Router<AppState> {
    let mut router = Router::new();
    for Absent { what, code, routes } in ABSENT {
        for (path, methods) in routes {
            let refuse = move |request: Request| async move {
                drain(request.into_body()).await;
                let message = format!("{what} are not in this release of the server");
                ApiError::new(StatusCode::NOT_IMPLEMENTED, code, message)
            };
            router = router.route(path, on(*methods, refuse));
        }
    }
    router
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_what_is_absent() {
        let page = include_str!("../../../../docs/contract.md");
        for Absent { what, code, routes } in ABSENT {
            for (path, _) in routes {
                let (path, code) = (format!("`{path}`"), format!("`{code}`"));
                let listed = page
                    .lines()
                    .any(|line| line.contains(&path) && line.contains(&code));
                assert!(listed, "{what}: {path} with {code}");
            }
        }
    }
}
