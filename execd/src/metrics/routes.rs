//! Routes `/metrics` and `/metrics/watch`.

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    body::Body,
    extract::{FromRef, State},
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures::{StreamExt, stream};
use osb_protocol::execd::metrics::{Metrics, MetricsSample};
use osb_service::Supervisor;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval};

use super::Meter;
use crate::{
    blocking::blocking,
    error::{ApiError, ApiResult},
    http::stream_headers,
    limits,
};

/// Both routes.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Arc<Meter>: FromRef<S>,
    Supervisor: FromRef<S>,
{
    Router::new()
        .route("/metrics", get(now))
        .route("/metrics/watch", get(watch))
}

/// Remembers CPU counters at intervals, so that `/metrics` answers at once.
pub(crate) async fn remember(meter: Arc<Meter>) {
    let mut tick = interval(limits::METRICS_MEMORY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        meter.remember();
    }
}

async fn now(State(meter): State<Arc<Meter>>) -> ApiResult<Json<Metrics>> {
    let read = blocking(move || {
        meter
            .read()
            .map_err(|error| ApiError::runtime(error.to_string()))
    });
    Ok(Json(read.await?))
}

/// Sends one sample a second until the client disconnects. A blank line ends each, because one
/// official client dispatches only on blank lines.
async fn watch(State(meter): State<Arc<Meter>>, State(tasks): State<Supervisor>) -> Response {
    let mut tick = interval(limits::METRICS_WATCH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let stopping = tasks.stopping().clone().cancelled_owned();
    let samples = stream::unfold((meter, tick, None), |(meter, mut tick, since)| async move {
        tick.tick().await;
        let read = match since {
            None => meter.read().map(|metrics| (metrics, meter.count())),
            Some(since) => meter.read_since(since),
        };
        let (text, since) = match read {
            Ok((metrics, count)) => (
                serde_json::to_vec(&MetricsSample::from(metrics)),
                Some(count),
            ),
            Err(error) => (
                serde_json::to_vec(&json!({ "error": error.to_string() })),
                since,
            ),
        };
        let mut line = text.expect("numbers and texts are JSON");
        line.extend_from_slice(b"\n\n");
        Some((Ok::<_, Infallible>(Bytes::from(line)), (meter, tick, since)))
    });
    (
        stream_headers(),
        Body::from_stream(samples.take_until(stopping)),
    )
        .into_response()
}
