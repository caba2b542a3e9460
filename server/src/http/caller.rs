//! Who calls a handler of the API.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use http::{StatusCode, request::Parts};
use osb_protocol::error::code;

use super::{AppState, audited::Noted, error::ApiError};
use crate::{identity::Principal, sandbox::Service};

/// The principal of a request, and the domain as it exists for that principal.
pub(super) struct Caller {
    /// Who calls.
    pub(super) principal: Arc<Principal>,
    /// The domain as it is for the principal.
    pub(super) service: Service,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, ApiError> {
        let principal = parts.extensions.get::<Arc<Principal>>();
        // Every route that has a caller is behind authentication; one that is not fails closed.
        let principal = principal.ok_or_else(|| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            ApiError::new(status, code::UNKNOWN_ERROR, "the request has no principal")
        })?;
        Ok(Self {
            service: app
                .unscoped
                .for_principal(principal)
                .noting(Noted::of(&parts.extensions).0),
            principal: Arc::clone(principal),
        })
    }
}
