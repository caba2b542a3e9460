//! Whether a page of this server sent a request. Browsers say so in `Origin`, which scripts cannot
//! forge; programs say nothing.

use axum::extract::Request;
use http::{Uri, header, uri::Authority};

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
    let origin = origin.to_str().ok();
    let origin = origin.and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(Uri::authority);
    match (origin, host(request)) {
        (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(host) => Origin::Own,
        _ => Origin::Foreign,
    }
}

/// Whether a request names a page under its own host as the one that it comes from, in `Referer`. Scripts
/// cannot name a page of another origin, but can leave the header out.
pub(super) fn has_own_referer(request: &Request) -> bool {
    let referer = request.headers().get(header::REFERER);
    let referer = referer.and_then(|referer| referer.to_str().ok());
    let authority = referer.and_then(|referer| {
        let (_, rest) = referer.split_once("://")?;
        rest.split(['/', '?', '#']).next()
    });
    match (authority, host(request)) {
        (Some(authority), Some(host)) => authority.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// The host and port that a request names.
fn host(request: &Request) -> Option<&str> {
    let named = request.uri().authority().map(Authority::as_str);
    named.or_else(|| request.headers().get(header::HOST)?.to_str().ok())
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

    #[test]
    fn only_a_page_of_the_same_host_and_port_is_an_own_referer() {
        let is_own = |referer: &str| {
            let request = Request::builder().header("host", "h:8080");
            let request = request.header("referer", referer).body(Body::empty());
            has_own_referer(&request.unwrap())
        };
        for own in ["http://h:8080/a?b", "http://H:8080", "http://h:8080?\"|"] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "",
            "/a",
            "http://h/",
            "http://h:8080.e/",
            "http://x/?://h:8080/",
            "http://h:8080@x/",
            "about:blank",
        ] {
            assert!(!is_own(other), "{other}");
        }
        assert!(!has_own_referer(&Request::new(Body::empty())));
    }
}
