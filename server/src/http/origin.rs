//! Whether a page of this server sent a request. Browsers say so in `Origin`, which scripts cannot
//! forge; programs say nothing.

use axum::extract::Request;
use http::{Uri, header};

/// Who sent a request, as far as its `Origin` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// No page, or a page that only reads.
    Unknown,
    /// A page under the host that the request names.
    Own,
    /// Any other page, one without an origin of its own (`null`) included.
    Foreign,
}

/// The origin of a request.
pub(super) fn of(request: &Request) -> Origin {
    let Some(origin) = request.headers().get(header::ORIGIN) else {
        return Origin::Unknown;
    };
    let text = |value: &http::HeaderValue| value.to_str().ok().map(str::to_owned);
    let host = request
        .uri()
        .authority()
        .map(|host| host.as_str().to_owned());
    let host = host.or_else(|| request.headers().get(header::HOST).and_then(text));
    let origin = text(origin).and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority);
    match (origin, host) {
        (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(&host) => Origin::Own,
        _ => Origin::Foreign,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn sent(origin: Option<&str>) -> Origin {
        let mut request = Request::builder().uri("/v1/x").header("host", "h:8080");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        of(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn only_the_same_host_and_port_are_this_server() {
        assert_eq!(sent(None), Origin::Unknown);
        assert_eq!(sent(Some("http://h:8080")), Origin::Own);
        assert_eq!(sent(Some("https://H:8080")), Origin::Own);
        for other in [
            "http://h:8081",
            "http://h",
            "http://evil:8080",
            "null",
            "",
            "http://h:8080.e",
        ] {
            assert_eq!(sent(Some(other)), Origin::Foreign, "{other}");
        }
    }
}
