//! Shedding: above the configured number of requests at once, answer at once that there are too
//! many (contract: lifecycle §1.2).

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse, Response},
};
use http::StatusCode;
use osb_protocol::error::code;
use tokio::sync::Semaphore;

use super::error::ApiError;

/// How many requests are served at once.
#[derive(Clone, Debug)]
pub(super) struct Limit(Arc<Semaphore>);

impl Limit {
    /// 0 means no limit.
    pub(super) fn new(requests: usize) -> Self {
        let permits = if requests == 0 {
            Semaphore::MAX_PERMITS
        } else {
            requests
        };
        Self(Arc::new(Semaphore::new(
            permits.min(Semaphore::MAX_PERMITS),
        )))
    }
}

/// Serves the request if there is room.
pub(super) async fn shed(State(limit): State<Limit>, request: Request, next: Next) -> Response {
    let Ok(_room) = limit.0.try_acquire() else {
        let message = "the server has reached server.limit_concurrency; try again shortly";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        return ApiError::new(status, code::OVERLOADED, message).into_response();
    };
    next.run(request).await
}
