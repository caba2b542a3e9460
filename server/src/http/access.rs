//! The least role of each route, REST and console alike (contract: clients §5). One table; a route
//! that is not in it is for service administrators only, and a test finds it.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, Request},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use osb_protocol::{
    error::code,
    identity::Role::{self, Operator, ReadOnly, ServiceAdmin},
};

use super::{error::ApiError, extract};
use crate::identity::Principal;

/// Methods and the role that they need.
type Roles = &'static [(Method, Role)];

/// Every route behind authentication. Those of the API are without `/v1`.
const TABLE: &[(&str, Roles)] = &[
    (
        "/sandboxes",
        &[(Method::GET, ReadOnly), (Method::POST, Operator)],
    ),
    (
        "/sandboxes/{id}",
        &[(Method::GET, ReadOnly), (Method::DELETE, Operator)],
    ),
    ("/sandboxes/{id}/metadata", &[(Method::PATCH, Operator)]),
    (
        "/sandboxes/{id}/renew-expiration",
        &[(Method::POST, Operator)],
    ),
    ("/sandboxes/{id}/pause", &[(Method::POST, Operator)]),
    ("/sandboxes/{id}/resume", &[(Method::POST, Operator)]),
    // Without the headers that open execd, see `lifecycle::endpoints`.
    (
        "/sandboxes/{id}/endpoints/{port}",
        &[(Method::GET, ReadOnly)],
    ),
    ("/sandboxes/{id}/snapshots", &[(Method::POST, Operator)]),
    ("/snapshots", &[(Method::GET, ReadOnly)]),
    (
        "/snapshots/{id}",
        &[(Method::GET, ReadOnly), (Method::DELETE, Operator)],
    ),
    (
        "/pools",
        &[(Method::GET, ReadOnly), (Method::POST, Operator)],
    ),
    (
        "/pools/{name}",
        &[
            (Method::GET, ReadOnly),
            (Method::PUT, Operator),
            (Method::DELETE, Operator),
        ],
    ),
    (
        "/templates",
        &[(Method::GET, ReadOnly), (Method::POST, Operator)],
    ),
    (
        "/templates/{id}",
        &[(Method::GET, ReadOnly), (Method::DELETE, Operator)],
    ),
    (
        "/sandboxes/{id}/networkpolicy",
        &[
            (Method::GET, ReadOnly),
            (Method::PUT, Operator),
            (Method::PATCH, Operator),
            (Method::DELETE, Operator),
        ],
    ),
    (
        "/sandboxes/{id}/diagnostics/logs",
        &[(Method::GET, ReadOnly)],
    ),
    (
        "/sandboxes/{id}/diagnostics/events",
        &[(Method::GET, ReadOnly)],
    ),
    (
        "/sandboxes/{id}/diagnostics/inspect",
        &[(Method::GET, ReadOnly)],
    ),
    (
        "/sandboxes/{id}/diagnostics/summary",
        &[(Method::GET, ReadOnly)],
    ),
    ("/sandboxes/{id}/commands", &[(Method::GET, ReadOnly)]),
    ("/sandboxes/{id}/metrics", &[(Method::GET, ReadOnly)]),
    ("/sandboxes/{id}/metrics/watch", &[(Method::GET, ReadOnly)]),
    ("/metrics/events", &[(Method::POST, ReadOnly)]),
    ("/metrics", &[(Method::GET, ReadOnly)]),
    ("/whoami", &[(Method::GET, ReadOnly)]),
    (
        "/users",
        &[(Method::GET, ServiceAdmin), (Method::POST, ServiceAdmin)],
    ),
    (
        "/users/{id}",
        &[
            (Method::PATCH, ServiceAdmin),
            (Method::DELETE, ServiceAdmin),
        ],
    ),
    (
        "/api-keys",
        &[(Method::GET, ServiceAdmin), (Method::POST, ServiceAdmin)],
    ),
    ("/api-keys/{id}", &[(Method::DELETE, ServiceAdmin)]),
    ("/sessions", &[(Method::GET, ServiceAdmin)]),
    ("/sessions/{id}", &[(Method::DELETE, ServiceAdmin)]),
    // Pages. What they show comes through the principal's scope.
    ("/console/sandboxes", &[(Method::GET, ReadOnly)]),
    ("/console/sandboxes/{id}", &[(Method::GET, ReadOnly)]),
    (
        "/console/sandboxes/{id}/terminal",
        &[(Method::GET, ReadOnly)],
    ),
    (
        "/console/create",
        &[(Method::GET, ReadOnly), (Method::POST, Operator)],
    ),
    ("/console/{*rest}", &[(Method::GET, ReadOnly)]),
    // Forms.
    ("/console/sandboxes/{id}/renew", &[(Method::POST, Operator)]),
    ("/console/sandboxes/{id}/pause", &[(Method::POST, Operator)]),
    (
        "/console/sandboxes/{id}/resume",
        &[(Method::POST, Operator)],
    ),
    (
        "/console/sandboxes/{id}/delete",
        &[(Method::POST, Operator)],
    ),
    // Server functions.
    ("/console/fn/sandboxes/list", &[(Method::POST, ReadOnly)]),
    ("/console/fn/sandboxes/get", &[(Method::POST, ReadOnly)]),
    ("/console/fn/sandboxes/port", &[(Method::POST, ReadOnly)]),
    ("/console/fn/sandboxes/check", &[(Method::POST, Operator)]),
    ("/console/fn/sandboxes/create", &[(Method::POST, Operator)]),
    ("/console/fn/sandboxes/renew", &[(Method::POST, Operator)]),
    ("/console/fn/sandboxes/pause", &[(Method::POST, Operator)]),
    ("/console/fn/sandboxes/resume", &[(Method::POST, Operator)]),
    ("/console/fn/sandboxes/delete", &[(Method::POST, Operator)]),
    // WebSockets.
    ("/console/live", &[(Method::GET, ReadOnly)]),
    ("/console/terminal/{sandbox}", &[(Method::GET, Operator)]),
];

/// Routes about the whole server, which a principal of one tenant may not call.
const SERVER_WIDE: [&str; 1] = ["/metrics"];

static BY_PATH: LazyLock<HashMap<&str, Roles>> = LazyLock::new(|| TABLE.iter().copied().collect());

/// The least role for a method of a route; `None` for one that the table does not have. `path` is the
/// route's pattern, such as `/v1/sandboxes/{id}`.
#[must_use]
pub fn least_role(method: &Method, path: &str) -> Option<Role> {
    let bare = path
        .strip_prefix("/v1")
        .filter(|rest| rest.starts_with('/'));
    let roles = BY_PATH.get(bare.unwrap_or(path))?;
    let wanted = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let row = roles.iter().find(|(method, _)| method == wanted);
    row.map(|(_, role)| *role)
}

/// Why a principal may not call a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forbidden {
    /// What the principal may do.
    has: Role,
    /// What the route needs.
    needs: Role,
}

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { has, needs } = self;
        write!(f, "the role {has} does not allow this: it needs {needs}")
    }
}

/// Whether a principal may call the route of a request. A request without a route is let through: its
/// answer shows nothing.
pub(super) fn check(principal: &Principal, request: &Request) -> Result<(), Forbidden> {
    if principal.role == ServiceAdmin {
        return Ok(());
    }
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return Ok(());
    };
    let needs = match principal.scope.tenant() {
        Some(_) if SERVER_WIDE.contains(&path.as_str()) => ServiceAdmin,
        _ => least_role(request.method(), path.as_str()).unwrap_or(ServiceAdmin),
    };
    if principal.role >= needs {
        return Ok(());
    }
    Err(Forbidden {
        has: principal.role,
        needs,
    })
}

impl Forbidden {
    /// The answer of the REST API, once the rest of the request is read.
    pub(super) async fn refuse(self, request: Request) -> Response {
        extract::drain(request.into_body()).await;
        ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_with_and_without_the_prefix() {
        let (get, delete) = (Method::GET, Method::DELETE);
        for path in ["/sandboxes/{id}", "/v1/sandboxes/{id}"] {
            assert_eq!(least_role(&get, path), Some(ReadOnly));
            assert_eq!(least_role(&Method::HEAD, path), Some(ReadOnly));
            assert_eq!(least_role(&delete, path), Some(Operator));
            assert_eq!(least_role(&Method::PUT, path), None);
        }
        assert_eq!(least_role(&get, "/v1/users"), Some(ServiceAdmin));
        assert_eq!(least_role(&get, "/v1"), None);
        assert_eq!(least_role(&get, "/v1sandboxes"), None);
        assert_eq!(BY_PATH.len(), TABLE.len(), "a path is listed twice");
    }
}
