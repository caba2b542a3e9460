//! `/sandboxes/{id}/diagnostics/…`, on runtimes that have them (contract: lifecycle §11).
//!
//! Logs and events have two forms at one path: with `scope` a JSON description with the content, without
//! it plain text, which is deprecated.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use http::{HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE};
use osb_protocol::{
    ErrorBody, FieldError, SandboxId,
    error::code,
    lifecycle::{Delivery, DiagnosticContent, DiagnosticKind},
};

use super::super::{
    AppState,
    caller::Caller,
    error::ApiError,
    extract::{InPath, Query, sandbox_id},
    overload::LogRoom,
};
use crate::{
    identity::Principal,
    sandbox::diagnostics::{events_text, log_text, parse_since},
};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const DEPRECATION: HeaderName = HeaderName::from_static("deprecation");
/// Most lines of a log.
const TAIL_MAX: usize = 10_000;
/// Most health checks among the events.
const LIMIT_MAX: usize = 500;
/// Lines of a log with a scope.
const SCOPED_LOG: usize = 100;
/// Events with a scope.
const SCOPED_EVENTS: usize = 50;
/// Scope of everything that there is.
const ALL: &str = "all";

/// Output of a sandbox's entry point.
///
/// With `scope`, a JSON description with the last 100 lines; without it, plain text.
#[utoipa::path(
    get, path = "/sandboxes/{id}/diagnostics/logs", tag = "diagnostics",
    operation_id = "getSandboxDiagnosticLogs",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("scope" = Option<String>, Query, description = "`container` or `all`; without it the answer is plain text"),
        ("container" = Option<String>, Query, description = "Ignored: a sandbox has one entry point"),
        ("tail" = Option<u32>, Query, description = "Lines of plain text; 100 when absent", minimum = 1, maximum = 10000),
        ("since" = Option<String>, Query, description = "Age of the oldest line of plain text, such as `10m`"),
    ),
    responses(
        (status = 200, description = "The output", content(
            (DiagnosticContent = "application/json"), (String = "text/plain"),
        )),
        (status = 400, description = "No such scope", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 500, description = "The runtime cannot read the log", body = ErrorBody),
        (status = 501, description = "The runtime has no diagnostics", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn logs(
    State(app): State<AppState>,
    Caller { service, principal }: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let id = sandbox_id(id);
    let tail = bounded(&query, "tail", 100, TAIL_MAX)?;
    let Some(scope) = scope(&query, "container")? else {
        let since = query.last("since").and_then(parse_since);
        let room = room_for_log(&app, &principal)?;
        let log = service.diagnostic_log(&id, tail, since).await?;
        return Ok(deprecated(room.hold(log_text(log))));
    };
    let room = room_for_log(&app, &principal)?;
    // One more shows whether there are more.
    let mut log = service.diagnostic_log(&id, SCOPED_LOG + 1, None).await?;
    let surplus = log.text.lines().count().saturating_sub(SCOPED_LOG);
    let mut ends = log.text.match_indices('\n').map(|(end, _)| end);
    if let Some(end) = surplus.checked_sub(1).and_then(|last| ends.nth(last)) {
        log.text.drain(..=end);
    }
    let truncated = log.is_cut || surplus > 0;
    let warning = "Only the container's logs contribute to this scope.";
    let text = log_text(log);
    let content = described(id, DiagnosticKind::Logs, scope, text, truncated, warning);
    let json = serde_json::to_string(&content).expect("a text always serialises");
    Ok(([(CONTENT_TYPE, JSON)], room.hold(json)).into_response())
}

/// What happened to a sandbox.
///
/// With `scope`, a JSON description with the first 50 events; without it, plain text.
#[utoipa::path(
    get, path = "/sandboxes/{id}/diagnostics/events", tag = "diagnostics",
    operation_id = "getSandboxDiagnosticEvents",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("scope" = Option<String>, Query, description = "`runtime` or `all`; without it the answer is plain text"),
        ("limit" = Option<u32>, Query, description = "Health checks in plain text; 50 when absent", minimum = 1, maximum = 500),
    ),
    responses(
        (status = 200, description = "The events", content(
            (DiagnosticContent = "application/json"), (String = "text/plain"),
        )),
        (status = 400, description = "No such scope", body = ErrorBody),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 500, description = "The runtime cannot inspect the sandbox", body = ErrorBody),
        (status = 501, description = "The runtime has no diagnostics", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn events(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let id = sandbox_id(id);
    let limit = bounded(&query, "limit", 50, LIMIT_MAX)?;
    let Some(scope) = scope(&query, "runtime")? else {
        let lines = service.diagnostic_events(&id, limit).await?;
        return Ok(deprecated(events_text(&lines)));
    };
    let mut lines = service.diagnostic_events(&id, SCOPED_EVENTS + 1).await?;
    let truncated = lines.len() > SCOPED_EVENTS;
    lines.truncate(SCOPED_EVENTS);
    let warning = "Only the runtime's events contribute to this scope.";
    let text = events_text(&lines);
    let content = described(id, DiagnosticKind::Events, scope, text, truncated, warning);
    Ok(Json(content).into_response())
}

/// Settings and state of a sandbox.
///
/// Values of environment variables and tokens are masked.
#[utoipa::path(
    get, path = "/sandboxes/{id}/diagnostics/inspect", tag = "diagnostics",
    operation_id = "inspectSandbox",
    params(("id" = String, Path, description = "Sandbox id")),
    responses(
        (status = 200, description = "Lines of `Name: value`", body = String, content_type = "text/plain"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 500, description = "The runtime cannot inspect the sandbox", body = ErrorBody),
        (status = 501, description = "The runtime has no diagnostics", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn inspect(
    Caller { service, .. }: Caller,
    InPath(id): InPath<String>,
) -> Result<Response, ApiError> {
    let page = service.diagnostic_inspect(&sandbox_id(id)).await?;
    Ok(text(page))
}

/// Settings, events and log of a sandbox in one text.
#[utoipa::path(
    get, path = "/sandboxes/{id}/diagnostics/summary", tag = "diagnostics",
    operation_id = "getSandboxDiagnosticSummary",
    params(
        ("id" = String, Path, description = "Sandbox id"),
        ("tail" = Option<u32>, Query, description = "Lines of the log; 50 when absent", minimum = 1, maximum = 10000),
        ("event_limit" = Option<u32>, Query, description = "Health checks among the events; 20 when absent", minimum = 1, maximum = 500),
    ),
    responses(
        (status = 200, description = "The sections", body = String, content_type = "text/plain"),
        (status = 401, description = "The API key is missing or wrong", body = ErrorBody),
        (status = 404, description = "No such sandbox", body = ErrorBody),
        (status = 422, description = "A parameter is out of range", body = ErrorBody),
        (status = 501, description = "The runtime has no diagnostics", body = ErrorBody),
        (status = 503, description = "The runtime is away", body = ErrorBody),
    ),
)]
pub(super) async fn summary(
    State(app): State<AppState>,
    Caller { service, principal }: Caller,
    InPath(id): InPath<String>,
    query: Query,
) -> Result<Response, ApiError> {
    let tail = query.number("tail", 50, 1..=TAIL_MAX);
    let limit = query.number("event_limit", 20, 1..=LIMIT_MAX);
    let (tail, limit) = match (tail, limit) {
        (Ok(tail), Ok(limit)) => (tail, limit),
        (tail, limit) => {
            let wrong: Vec<FieldError> = [tail.err(), limit.err()].into_iter().flatten().collect();
            return Err(ApiError::invalid(wrong));
        }
    };
    let id = sandbox_id(id);
    let room = room_for_log(&app, &principal)?;
    let summary = service.diagnostic_summary(&id, tail, limit).await?;
    Ok(text(room.hold(summary)))
}

fn bounded(query: &Query, name: &str, default: usize, most: usize) -> Result<usize, ApiError> {
    let number = query.number(name, default, 1..=most);
    number.map_err(|error| ApiError::invalid(vec![error]))
}

/// The requested scope; `None` for plain text.
fn scope<'a>(query: &Query, own: &'a str) -> Result<Option<&'a str>, ApiError> {
    let Some(given) = query.last("scope") else {
        return Ok(None);
    };
    let wanted = given.trim().to_ascii_lowercase();
    if wanted == own {
        return Ok(Some(own));
    }
    if wanted == ALL {
        return Ok(Some(ALL));
    }
    let message = format!("scope: must be {own} or {ALL}");
    Err(ApiError::new(
        StatusCode::BAD_REQUEST,
        code::DIAGNOSTICS_SCOPE_UNSUPPORTED,
        message,
    ))
}

/// Room for a log in memory, until its last byte was sent.
fn room_for_log(app: &AppState, principal: &Principal) -> Result<LogRoom, ApiError> {
    app.room.log(principal).ok_or_else(|| {
        let message = "as many logs are read as the server has room for; try again shortly";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, code::OVERLOADED, message).unlogged()
    })
}

fn text(body: impl IntoResponse) -> Response {
    ([(CONTENT_TYPE, TEXT)], body).into_response()
}

fn deprecated(body: impl IntoResponse) -> Response {
    let mut response = text(body);
    let headers = response.headers_mut();
    headers.insert(DEPRECATION, HeaderValue::from_static("true"));
    response
}

fn described(
    sandbox_id: SandboxId,
    kind: DiagnosticKind,
    scope: &str,
    content: String,
    truncated: bool,
    warning: &str,
) -> DiagnosticContent {
    let warnings = match scope {
        ALL => vec![warning.to_owned()],
        _ => Vec::new(),
    };
    DiagnosticContent {
        sandbox_id,
        kind,
        scope: scope.to_owned(),
        delivery: Delivery::Inline,
        content_type: TEXT.to_owned(),
        content_length: u64::try_from(content.len()).ok(),
        content: Some(content),
        truncated,
        warnings,
    }
}
