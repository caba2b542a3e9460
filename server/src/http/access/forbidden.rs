//! Whether a principal may call the route of a request.

use axum::{
    extract::{MatchedPath, Request},
    response::{IntoResponse, Response},
};
use http::StatusCode;
use osb_protocol::{
    error::code,
    identity::Role::{self, ServiceAdmin},
};

use super::{
    super::{error::ApiError, extract},
    least_role,
};
use crate::identity::Principal;

/// Routes about the whole server, which a principal of one tenant may not call.
const SERVER_WIDE: [&str; 1] = ["/metrics"];

/// Why a principal may not call a route.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Forbidden {
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
pub(in super::super) fn check(principal: &Principal, request: &Request) -> Result<(), Forbidden> {
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
    pub(in super::super) async fn refuse(self, request: Request) -> Response {
        extract::drain(request.into_body()).await;
        ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, self.to_string()).into_response()
    }
}
