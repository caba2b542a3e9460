//! `/sandboxes/{id}/metrics`: resource use over time. An addition to the contract.

use std::convert::Infallible;

use axum::{
    Extension, Json,
    extract::State,
    response::sse::{Event, KeepAlive, Sse},
};
use futures::{Stream, stream};
use http::StatusCode;
use osb_forward::Lease;
use osb_protocol::{
    ErrorBody, FieldError,
    error::code,
    lifecycle::{MetricsHistory, MetricsSample},
};
use tokio::sync::broadcast::{Receiver, error::RecvError};

use super::super::{
    AppState,
    caller::Caller,
    error::ApiError,
    extract::{InPath, Query, sandbox_id},
};
use crate::sandbox::{Service, metrics::Step};

/// Resource use of a sandbox over time.
///
/// The last hour by ten seconds, or the last day by minutes; also of a sandbox that is gone, for
/// seven days unless the operator configured another time. Rates are per second.
#[utoipa::path(
    get, path = "/sandboxes/{id}/metrics", tag = "metrics", operation_id = "getSandboxMetrics",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("step" = Option<u32>, Query, description = "Seconds of a step: 10 or 60; 10 when absent"),
    ),
    responses(
        (status = 200, description = "What was recorded", body = MetricsHistory),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "Nothing is known of such a sandbox", body = ErrorBody),
        (status = 422, description = "The step is neither 10 nor 60", body = ErrorBody),
        (status = 501, description = "The runtime has no metrics, or they are turned off", body = ErrorBody),
        (status = 503, description = "The store is away", body = ErrorBody),
    ),
)]
pub(super) async fn history(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Json<MetricsHistory>, ApiError> {
    require_metrics(&service)?;
    let wrong = |error: FieldError| ApiError::invalid(vec![error]);
    let seconds = query.number("step", 10, 1..=60).map_err(wrong)?;
    let step = Step::of_seconds(seconds)
        .ok_or_else(|| wrong(FieldError::query("enum", "step", "must be 10 or 60")))?;
    Ok(Json(service.metrics(&sandbox_id(id), step).await?))
}

/// Follow the resource use of a sandbox.
///
/// Server-sent events, one each second, until the sandbox or the client is gone.
#[utoipa::path(
    get, path = "/sandboxes/{id}/metrics/watch", tag = "metrics",
    operation_id = "watchSandboxMetrics",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 200, description = "A sample each second", body = MetricsSample, content_type = "text/event-stream"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 429, description = "This principal follows as many streams as it may", body = ErrorBody),
        (status = 501, description = "The runtime has no metrics, or they are turned off", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn watch(
    State(app): State<AppState>,
    Caller { service, principal }: Caller,
    Extension(lease): Extension<Lease>,
    InPath(id): InPath<String>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, ApiError> {
    require_metrics(&service)?;
    let samples = service.watch_metrics(&sandbox_id(id))?;
    let place = app.room.watch(&principal.id).ok_or_else(|| {
        let message = "too many streams of metrics at once with these credentials; end some first";
        let status = StatusCode::TOO_MANY_REQUESTS;
        ApiError::new(status, code::TOO_MANY_REQUESTS, message).unlogged()
    })?;
    let state = (samples, app, principal, (lease, place));
    let events = stream::unfold(state, async |(mut samples, app, principal, held)| {
        let sample = tokio::select! {
            sample = next(&mut samples) => sample?,
            () = app.tasks.stopping().cancelled() => return None,
            // The key was revoked, or stands for another principal.
            () = principal.validity.ended().cancelled() => return None,
        };
        let event = Event::default().json_data(sample);
        let event = event.expect("numbers and times always serialise");
        Some((Ok(event), (samples, app, principal, held)))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()))
}

/// The next sample; `None` when the sandbox is gone.
async fn next(samples: &mut Receiver<MetricsSample>) -> Option<MetricsSample> {
    loop {
        match samples.recv().await {
            Ok(sample) => return Some(sample),
            // A slow client misses samples.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return None,
        }
    }
}

fn require_metrics(service: &Service) -> Result<(), ApiError> {
    if service.has_metrics() {
        return Ok(());
    }
    let message = "metrics are turned off, or not available on this runtime";
    Err(ApiError::new(
        StatusCode::NOT_IMPLEMENTED,
        code::API_NOT_SUPPORTED,
        message,
    ))
}
