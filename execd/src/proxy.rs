//! `/proxy/{port}/{path}`: the user's own servers on the loopback interface (contract: execd §12).

use std::net::{Ipv4Addr, SocketAddr};

use axum::{
    Router,
    extract::{ConnectInfo, FromRef, Request, State},
    response::{IntoResponse, Response},
    routing::any,
};
use http::{HeaderName, StatusCode, Uri, header::HOST, uri::Scheme};
use osb_forward::{
    Forwarded, Forwarder, HeaderRules, Host, Limits, Origin, Peer, Target, after_segments,
};
use osb_protocol::headers::{API_KEY, EXECD_ACCESS_TOKEN};
use osb_service::Supervisor;
use tracing::debug;

/// Headers that a user's server must not receive: execd's token, the platform's key, which clients
/// send to every endpoint (contract: clients §0, rule 17), and a host name set by another proxy.
static HIDDEN: [HeaderName; 3] = [
    HeaderName::from_static(EXECD_ACCESS_TOKEN),
    HeaderName::from_static(API_KEY),
    HeaderName::from_static("x-forwarded-host"),
];

/// Routes of the proxy.
pub(crate) fn routes<S>() -> Router<S>
where
    S: Clone + Send + Sync + 'static,
    Forwarder: FromRef<S>,
{
    Router::new()
        .route("/proxy", any(no_port))
        .route("/proxy/", any(no_port))
        .route("/proxy/{port}", any(forward))
        .route("/proxy/{port}/", any(forward))
        .route("/proxy/{port}/{*path}", any(forward))
}

/// Creates a forwarder to the loopback interface. Responses have no time limit, because both ends
/// are in the sandbox.
pub(crate) fn forwarder(tasks: &Supervisor) -> Forwarder {
    let limits = Limits {
        idle: None,
        ..Limits::default()
    };
    Forwarder::new(limits, tasks)
}

/// Rewrites a request that execd would proxy to itself: clients get endpoints of that form, and a
/// connection through the loopback would only cost time. `None` for any other request.
pub(crate) fn direct(uri: &Uri, own_port: u16) -> Option<Uri> {
    let mut inner = uri.path();
    let mut segments = 0;
    while let Some(rest) = below_port(inner, own_port) {
        inner = rest;
        segments += 2;
    }
    (segments > 0).then(|| after_segments(uri, segments).into())
}

/// Rest of a path after `/proxy/{port}`, if it begins with it.
fn below_port(path: &str, port: u16) -> Option<&str> {
    let given = port_of(path)?;
    let rest = &path["/proxy/".len() + given.len()..];
    (given.parse() == Ok(port)).then_some(rest)
}

fn port_of(path: &str) -> Option<&str> {
    path.strip_prefix("/proxy/")?.split('/').next()
}

async fn no_port() -> Response {
    (StatusCode::BAD_REQUEST, "port is required").into_response()
}

async fn forward(
    State(forwarder): State<Forwarder>,
    ConnectInfo(client): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let port = port_of(request.uri().path()).unwrap_or_default();
    let Some(port) = port.parse::<u16>().ok().filter(|port| *port > 0) else {
        return (
            StatusCode::BAD_REQUEST,
            "port must be a number from 1 to 65535",
        )
            .into_response();
    };
    let authority = format!("{}:{port}", Ipv4Addr::LOCALHOST);
    let target = Target {
        authority: authority.parse().expect("an address and a port"),
        path_and_query: after_segments(request.uri(), 2),
    };
    let rules = HeaderRules {
        drop_request: (&HIDDEN).into(),
        host: if request.headers().contains_key(HOST) {
            Host::Keep
        } else {
            Host::OfTarget
        },
        forwarded: Forwarded::Append(Peer {
            address: client.ip(),
            scheme: Scheme::HTTP,
        }),
        ..HeaderRules::default()
    };
    match forwarder.forward(request, target, &rules).await {
        Ok(response) => response,
        Err(error) => {
            debug!(port, %error, "not forwarded");
            match error.origin() {
                Origin::Client => (StatusCode::BAD_REQUEST, "Bad Request").into_response(),
                _ => (StatusCode::BAD_GATEWAY, "Bad Gateway").into_response(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_ourselves_are_recognised() {
        let direct = |uri: &str| direct(&uri.parse().unwrap(), 44772).map(|uri| uri.to_string());
        assert_eq!(
            direct("/proxy/44772/files/info?path=a%2Fb").as_deref(),
            Some("/files/info?path=a%2Fb")
        );
        assert_eq!(direct("/proxy/44772").as_deref(), Some("/"));
        assert_eq!(direct("/proxy/44772?x").as_deref(), Some("/?x"));
        assert_eq!(
            direct("/proxy/44772/proxy/44772/ping").as_deref(),
            Some("/ping")
        );
        assert_eq!(
            direct("/proxy/44772/proxy/80/x").as_deref(),
            Some("/proxy/80/x")
        );
        // The deepest path that fits in a URI.
        let deep = format!("{}/ping", "/proxy/44772".repeat(5400));
        assert_eq!(direct(&deep).as_deref(), Some("/ping"));
        for other in ["/proxy/8080/x", "/ping", "/proxy/", "/proxy/447720"] {
            assert_eq!(direct(other), None, "{other}");
        }
    }
}
