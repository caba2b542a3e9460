//! Compresses pages and answers of server functions; static files are compressed when they are built.
//!
//! The length of a compressed page that repeats text of its address says something about the rest of
//! the page to an attacker who can choose the address and see the length on the wire (BREACH). Only another
//! site could choose addresses in the name of a signed-in user, so what another site began is sent
//! as it is. Browsers say who began a request in `Sec-Fetch-Site`, except over plain HTTP, where the
//! wire shows the page itself.

use axum::{
    extract::Request,
    http::{Extensions, HeaderMap, HeaderName, StatusCode, Version, header},
    middleware::Next,
    response::Response,
};
use tower_http::{
    CompressionLevel,
    compression::{CompressionLayer, Predicate, predicate::SizeAbove},
};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Shortest answer that becomes smaller, in bytes.
const SHORTEST: u64 = 1024;
/// Level of compression. With the default level of Brotli, a list of 100 rows takes a third longer than
/// without compression; with this one, it is an eighth longer in bytes than with the default.
const LEVEL: CompressionLevel = CompressionLevel::Precise(1);

/// Compresses what a browser gets that accepts it.
pub(super) fn layer() -> CompressionLayer<impl Predicate> {
    CompressionLayer::new()
        .quality(LEVEL)
        .compress_when(SizeAbove::new(SHORTEST).and(is_text))
}

/// Pages and answers of server functions. What is sent piece by piece would wait in the compressor.
fn is_text(_: StatusCode, _: Version, headers: &HeaderMap, _: &Extensions) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|it| it.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/html") || kind.starts_with("application/json")
}

/// Takes the browser's offer of compression out of requests that another site began.
pub(super) async fn only_own(mut request: Request, next: Next) -> Response {
    let headers = request.headers_mut();
    let site = headers.get(SEC_FETCH_SITE).map(|it| it.as_bytes());
    if site.is_some_and(|site| !matches!(site, b"same-origin" | b"none")) {
        headers.remove(header::ACCEPT_ENCODING);
    }
    next.run(request).await
}
