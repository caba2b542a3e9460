//! Security headers: what the browser lets a page of the console do.

use axum::{
    extract::{Request, State},
    http::{HeaderName, HeaderValue, header},
    middleware::Next,
    response::Response,
};
use leptos::{nonce::Nonce, prelude::use_context};
use leptos_axum::ResponseOptions;

use super::ConsoleState;

/// Policy of everything that is no page: it may load and run nothing, even if opened as a page.
const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Headers of every answer.
const ALWAYS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// Adds the headers that do not depend on the page, and keeps pages out of caches.
pub(super) async fn headers(
    State(state): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    let is_asset = request.uri().path().starts_with(&*state.assets.0);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CONTENT_SECURITY_POLICY)
        .or_insert(HeaderValue::from_static(NOTHING));
    if !is_asset {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// Policy of the page that is being rendered. Only scripts with this page's nonce and what they
/// load may run. xterm makes `<style>` elements, and for colours beyond its palette `style` attributes,
/// hence `unsafe-inline` for both.
pub(super) fn of_page() {
    let (Some(nonce), Some(response)) = (use_context::<Nonce>(), use_context::<ResponseOptions>())
    else {
        return;
    };
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}' 'strict-dynamic' 'wasm-unsafe-eval'; \
         style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; frame-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.insert_header(header::CONTENT_SECURITY_POLICY, policy);
    }
}
