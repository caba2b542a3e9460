//! What the routes of network policies may all refuse: in the OpenAPI document, once for all of them.

use osb_protocol::ErrorBody;
use utoipa::IntoResponses;

/// Answers of a route that asks the sidecar of a sandbox. What else a route refuses, and what its
/// 500 and 501 mean, is at the route.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "only documents answers")]
pub(super) enum SidecarRefusal {
    #[response(
        status = 401,
        description = "The API key, or the token of a sandbox with secure access, is missing or wrong"
    )]
    Unauthorized(ErrorBody),
    #[response(status = 404, description = "No such sandbox")]
    NotFound(ErrorBody),
    #[response(status = 409, description = "It is paused")]
    Paused(ErrorBody),
    #[response(
        status = 502,
        description = "It has no network policy, or its sidecar does not answer"
    )]
    NoSidecar(ErrorBody),
    #[response(
        status = 503,
        description = "The server serves as many requests as it can"
    )]
    Overloaded(ErrorBody),
    #[response(status = 504, description = "Its sidecar takes too long")]
    Timeout(ErrorBody),
}
