//! `/proxy/{port}/{path}`: the user's own servers on the loopback interface (contract: execd §12).
//!
//! A server may listen on `127.0.0.1` or on `::1` only, so both are tried.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use axum::{
    Router,
    extract::{ConnectInfo, FromRef, Request, State},
    response::{IntoResponse, Response},
    routing::any,
};
use http::{HeaderName, HeaderValue, StatusCode, Uri, header::HOST, uri::Scheme};
use osb_forward::{
    Detour, ForwardError, Forwarded, Forwarder, HeaderRules, Host, Limits, Origin, Peer, Target,
    after_segments,
};
use osb_protocol::headers::{API_KEY, EXECD_ACCESS_TOKEN, EXECD_NO_PROGRAM};
use osb_service::Supervisor;
use tracing::debug;

/// Headers that a user's server must not receive: execd's token, the platform's key, which clients
/// send to every endpoint (contract: clients §0, rule 17), and a host name set by another proxy.
static HIDDEN: [HeaderName; 3] = [
    HeaderName::from_static(EXECD_ACCESS_TOKEN),
    HeaderName::from_static(API_KEY),
    HeaderName::from_static("x-forwarded-host"),
];

/// Says of execd's own answers that nothing listens; a user's server must not say it.
static NO_PROGRAM: [HeaderName; 1] = [HeaderName::from_static(EXECD_NO_PROGRAM)];
/// Pauses before a refused connection is tried again: a program that restarts is back soon.
const REFUSED: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(75)];

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
        refused: &REFUSED,
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
    let given = port_of(request.uri().path()).unwrap_or_default();
    let location = format!("/proxy/{given}");
    let Some(port) = given.parse::<u16>().ok().filter(|port| *port > 0) else {
        return (
            StatusCode::BAD_REQUEST,
            "port must be a number from 1 to 65535",
        )
            .into_response();
    };
    let path_and_query = after_segments(request.uri(), 2);
    let to = |address: SocketAddr| Target {
        authority: address.to_string().parse().expect("an address and a port"),
        path_and_query: path_and_query.clone(),
    };
    let rules = HeaderRules {
        drop_request: (&HIDDEN).into(),
        drop_response: (&NO_PROGRAM).into(),
        host: if request.headers().contains_key(HOST) {
            Host::Keep
        } else {
            Host::OfTarget
        },
        forwarded: Forwarded::Append(Peer {
            address: client.ip(),
            scheme: Scheme::HTTP,
        }),
        location_prefix: Some(location),
        ..HeaderRules::default()
    };
    let over_ipv6 = || {
        Some(Detour {
            to: to((Ipv6Addr::LOCALHOST, port).into()),
            rules: rules.clone(),
            refusal: None,
        })
    };
    let over_ipv4 = to((Ipv4Addr::LOCALHOST, port).into());
    let forwarded = forwarder.forward_or(request, over_ipv4, &rules, over_ipv6);
    match forwarded.await {
        Ok(response) => response,
        Err(error) => {
            debug!(port, %error, "not forwarded");
            match error.origin() {
                Origin::Client => (StatusCode::BAD_REQUEST, "Bad Request").into_response(),
                _ => bad_gateway(&error),
            }
        }
    }
}

fn bad_gateway(error: &ForwardError) -> Response {
    let mut response = (StatusCode::BAD_GATEWAY, "Bad Gateway").into_response();
    if matches!(error, ForwardError::Connect(_)) {
        let [name] = &NO_PROGRAM;
        let value = HeaderValue::from_static("1");
        response.headers_mut().insert(name, value);
    }
    response
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
