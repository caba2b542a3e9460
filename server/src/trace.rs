//! Spans of traces: request → work on a sandbox → call of the runtime or of execd.
//!
//! Without `[otel] traces` no receiver of these spans exists, and each costs one check. The context
//! of a client's trace (W3C `traceparent`) becomes the parent of its request; programs behind the
//! proxy get that of the request.

use http::{HeaderMap, Request, StatusCode};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_http::{HeaderExtractor, HeaderInjector};
use opentelemetry_sdk::propagation::TraceContextPropagator;
use osb_service::telemetry::TRACE_TARGET;
use tracing::{Level, Span, field::Empty, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::identity::redact_keys;

/// Makes the span of a request.
pub(crate) fn request<B>(request: &Request<B>, route: &'static str) -> Span {
    let span = info_span!(
        target: TRACE_TARGET,
        parent: None,
        "request",
        otel.name = %format_args!("{} {route}", request.method()),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = %request.method(),
        http.route = route,
        http.response.status_code = Empty,
        url.path = %redact_keys(request.uri().path()),
    );
    if !span.is_disabled() {
        let headers = HeaderExtractor(request.headers());
        let parent = TraceContextPropagator::new().extract(&headers);
        // It fails only for a span that has begun, which this one has not.
        let _ = span.set_parent(parent);
    }
    span
}

/// Adds the status of the answer to the span of its request.
pub(crate) fn answered(span: &Span, status: StatusCode) {
    if span.is_disabled() {
        return;
    }
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
}

/// Makes the span of a step, within the present one.
pub(crate) fn step(name: &'static str) -> Span {
    info_span!(target: TRACE_TARGET, "step", otel.name = name)
}

/// Makes the span of work on a sandbox.
pub(crate) fn work(name: &'static str, sandbox: &osb_protocol::SandboxId) -> Span {
    info_span!(
        target: TRACE_TARGET,
        "work",
        otel.name = name,
        opensandbox.id = %sandbox,
    )
}

/// Returns the present span as headers of a request of this server to another program.
pub(crate) fn context() -> Vec<(String, String)> {
    let mut headers = HeaderMap::new();
    pass_on(&mut headers);
    let pairs = headers.iter().filter_map(|(name, value)| {
        let value = value.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// Writes the present span into the headers of a request that goes on to another program, in place
/// of the client's.
pub(crate) fn pass_on(headers: &mut HeaderMap) {
    if tracing::span_enabled!(target: TRACE_TARGET, Level::INFO) {
        let context = Span::current().context();
        TraceContextPropagator::new().inject_context(&context, &mut HeaderInjector(headers));
    }
}
