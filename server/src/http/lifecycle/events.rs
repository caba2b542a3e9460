//! `/v1/metrics/events`: what SDKs report about their creates (contract: lifecycle §A5).

use std::time::Duration;

use axum::extract::State;
use http::{HeaderMap, StatusCode, header::USER_AGENT};
use osb_protocol::{ErrorBody, FieldError, lifecycle::ClientMetricsEvent};
use serde_json::{Map, Value};
use tracing::debug;

use super::super::{AppState, error::ApiError, extract::JsonBody, measure::SdkCreate};

/// Record an SDK's measurement of a create.
#[utoipa::path(
    post, path = "/metrics/events", tag = "metrics", operation_id = "recordClientMetrics",
    request_body = ClientMetricsEvent,
    responses(
        (status = 204, description = "Noted"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 422, description = "Not such an event", body = ErrorBody),
    ),
)]
pub(super) async fn record(
    State(app): State<AppState>,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<StatusCode, ApiError> {
    let body = body.into_members()?;
    let wrong = check(&body);
    if !wrong.is_empty() {
        return Err(ApiError::invalid(wrong));
    }
    let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default();
    let milliseconds = body.get("createDurationMs").and_then(Value::as_u64);
    let success = body.get("success").and_then(Value::as_bool);
    if let (Some(milliseconds), Some(success)) = (milliseconds, success) {
        let agent = headers
            .get(USER_AGENT)
            .and_then(|agent| agent.to_str().ok());
        let create = SdkCreate::of(agent.unwrap_or_default(), success);
        app.meter
            .sdk_create(create, Duration::from_millis(milliseconds));
    }
    debug!(
        sandbox = text("sandboxId"),
        milliseconds, success, "an SDK created a sandbox"
    );
    Ok(StatusCode::NO_CONTENT)
}

fn check(body: &Map<String, Value>) -> Vec<FieldError> {
    let mut wrong = Vec::new();
    let mut expect = |name: &str, right: fn(&Value) -> bool, rule: &str| {
        match body.get(name) {
            None => wrong.push(FieldError::body("missing", [name], "is required")),
            Some(value) if !right(value) => {
                wrong.push(FieldError::body("value_error", [name], rule));
            }
            Some(_) => {}
        };
    };
    expect(
        "eventType",
        |value| value == "sandbox.create",
        "must be sandbox.create",
    );
    let duration = |value: &Value| value.as_i64().is_some_and(|ms| ms >= 0);
    expect(
        "createDurationMs",
        duration,
        "must be a whole number of at least 0",
    );
    expect("success", Value::is_boolean, "must be true or false");
    for name in ["sandboxId", "image"] {
        if body
            .get(name)
            .is_some_and(|value| !value.is_string() && !value.is_null())
        {
            wrong.push(FieldError::body("string_type", [name], "must be a string"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_checked_member_by_member() {
        let good = json!({"eventType": "sandbox.create", "createDurationMs": 1, "success": true});
        let check = |body: &Value| check(body.as_object().unwrap());
        assert!(check(&good).is_empty());
        assert_eq!(check(&json!({})).len(), 3);
        let bad = json!({"eventType": "x", "createDurationMs": -1, "success": 1, "image": 1});
        assert_eq!(check(&bad).len(), 4);
    }
}
