//! WebSockets only from the console's own pages.
//!
//! Browsers send cookies with a WebSocket handshake from any page, and the handshake is a GET that
//! CSRF protection lets pass. They also always send `Origin`, which scripts cannot forge; programs
//! that do not are no browsers, and have the REST API.

use axum::{
    extract::Request,
    http::{StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

/// Refuses upgrades that another origin began.
pub(super) async fn same_origin_upgrades(request: Request, next: Next) -> Response {
    if request.headers().contains_key(header::UPGRADE) && !is_same_origin(&request) {
        return (
            StatusCode::FORBIDDEN,
            "this WebSocket is for the console's own pages",
        )
            .into_response();
    }
    next.run(request).await
}

fn is_same_origin(request: &Request) -> bool {
    let text = |name| {
        request
            .headers()
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let host = request
        .uri()
        .authority()
        .map(|host| host.as_str())
        .or_else(|| text(header::HOST));
    let origin = text(header::ORIGIN).and_then(|origin| origin.parse::<Uri>().ok());
    let origin = origin.as_ref().and_then(|origin| origin.authority());
    matches!((origin, host), (Some(origin), Some(host)) if origin.as_str().eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn asks(origin: Option<&str>) -> bool {
        let mut request = Request::builder()
            .uri("/console/live")
            .header("host", "h:8080");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        is_same_origin(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn only_the_same_host_and_port_pass() {
        assert!(asks(Some("http://h:8080")));
        assert!(asks(Some("https://H:8080")));
        for other in [
            "http://h:8081",
            "http://h",
            "http://evil:8080",
            "null",
            "",
            "http://h:8080.e",
        ] {
            assert!(!asks(Some(other)), "{other}");
        }
        assert!(!asks(None));
    }
}
