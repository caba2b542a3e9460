//! `/sandboxes/{id}/proxy/{port}/…`: HTTP and upgrades to a port of a sandbox (contract: lifecycle
//! §7, §8, §A11).
//!
//! No API key is needed: who knows the id may talk to what the sandbox serves, unless it is another
//! sandbox. execd is the exception, it wants its own token, which the proxy adds only for callers
//! with an API key that may run commands. With `[tenants]`, every request needs the key of one.
//!
//! A sandbox with secure access wants its own token for every port, from callers with the API key
//! too.
//!
//! What a sandbox sends is hostile. Pages get an origin of their own (`Content-Security-Policy:
//! sandbox` without `allow-same-origin`), and no cookie by the name of the console's gets through.

mod answers;
mod detour;
mod page;
mod preview;
mod sidecar;
mod silence;
mod ways_in;
mod websocket;

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{OriginalUri, Request, State, ws::close_code},
    response::Response,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version,
    header::{AUTHORIZATION, COOKIE},
    uri::{Authority, PathAndQuery},
};
use osb_forward::{ForwardError, Forwarded, HeaderRules, Lease, Limits, Peer};
use osb_protocol::{SandboxId, error::code, headers, identity::Role};
use osb_runtime::EXECD_PORT;
use secrecy::ExposeSecret;
use tracing::debug;

pub use self::preview::{Previews, router as preview_router};
pub(super) use self::sidecar::{SidecarPath, to_sidecar};
use self::{
    detour::{ThroughExecd, failed_outside, may_enter},
    page::Page,
    silence::Held,
    ways_in::WayIn,
    websocket::{WebSocketClient, handshake},
};

use super::{
    AppState,
    auth::{self, Verdict, refusal},
    client::{self, Client},
    error::ApiError,
    extract::{port, sandbox_id},
    gate::{LimitReached, Visitor},
    origin::{self, Origin},
    overload::{self, Kind},
    stall::unless_stalled,
};
use crate::{
    identity::{Denied, Principal, Scope},
    sandbox::{
        AccessSource, Record,
        endpoint::{Target, execd_path},
    },
    trace,
};

/// Longest time for which a client may take nothing of a response.
const IDLE: Duration = Duration::from_secs(180);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than what servers commonly allow, so that a request
/// does not meet a connection that is being closed.
const KEEP: Duration = Duration::from_secs(4);
/// Pauses before a refused connection is tried again: a program that restarts is back soon.
const REFUSED: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(75)];
/// Unused connections kept per sandbox port.
const KEEP_PER_BACKEND: usize = 32;
/// Close reason of a WebSocket that needs the sandbox's token.
const NO_SECURE_ACCESS: &str = "missing or invalid secure access token";
const EXECD_TOKEN: HeaderName = HeaderName::from_static(headers::EXECD_ACCESS_TOKEN);
/// Token of the egress sidecar. The client's own is forwarded; this server never adds it to a
/// proxied request.
const EGRESS_TOKEN: HeaderName = HeaderName::from_static(headers::EGRESS_AUTH);
const SECURE_ACCESS: HeaderName = HeaderName::from_static(headers::SECURE_ACCESS);
const ACCESS_RENEW: HeaderName = HeaderName::from_static(headers::ACCESS_RENEW);
/// The only value of [`ACCESS_RENEW`].
const SKIP: &str = "skip";

/// Request headers that stay here. Names that clients use towards this server only.
static DROPPED: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static(headers::API_KEY),
    SECURE_ACCESS,
    ACCESS_RENEW,
];
/// The same for ports that are not execd's: its token is none of their business.
static DROPPED_WITH_TOKEN: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static(headers::API_KEY),
    SECURE_ACCESS,
    ACCESS_RENEW,
    EXECD_TOKEN,
];

/// Limits of the server's forwarder. How long exchanges and tunnels may be silent is configured.
#[must_use]
pub(crate) fn limits() -> Limits {
    Limits {
        connect: CONNECT,
        refused: &REFUSED,
        keep: KEEP,
        keep_per_backend: KEEP_PER_BACKEND,
        ..Limits::default()
    }
}

/// Forwards one request.
pub(super) async fn proxy(
    State(app): State<AppState>,
    OriginalUri(uri): OriginalUri,
    mut request: Request,
) -> Response {
    let (headers, extensions) = (request.headers(), request.extensions());
    let verdict = auth::authenticate(&app.keys, &app.throttle, headers, extensions).await;
    let verdict = match verdict {
        // Where no key is wanted, a page of another origin still gets no token added.
        Ok(_) if !app.keys.is_required() && origin::of(&request) == Origin::Foreign => {
            Err(Denied::Missing)
        }
        verdict => verdict,
    };
    let (id, port_text) = address(uri.path());
    let id = sandbox_id(id);
    let page = Page::wanted_by(&request, &id, &port_text);
    // Only digits make it a proxy path, which needs no key. `+80` is a number for those with one.
    let is_open = !port_text.is_empty() && port_text.bytes().all(|byte| byte.is_ascii_digit());
    let denied = verdict.as_ref().err().filter(|_| !is_open);
    let port = match (denied, port(&port_text)) {
        (Some(denied), _) => {
            let client = client::of(request.extensions());
            let denied = auth::count(&app.throttle, &client, *denied);
            auth::record_denial(app.unscoped.audit_trail(), &request, denied);
            return Page::answer(page, refusal(denied));
        }
        (None, Err(error)) => return Page::answer(page, error),
        (None, Ok(port)) => port,
    };
    let socket = match handshake(&request) {
        Some(parts) => WebSocketClient::of(parts).await,
        None => None,
    };
    let version = request.version();
    let record = app.unscoped.registry().get(&id);
    let trail = app.unscoped.audit_trail();
    let way_in = WayIn::of(trail, &request, &verdict, (&id, port), record.as_deref());
    let caller = Caller {
        client: client::take(request.extensions_mut()),
        has_key: verdict.is_ok() || has_token(record.as_deref(), request.headers()),
        verdict,
    };
    let wanted = Wanted { id, port, record };
    let answer = match admit(&app, caller, wanted, &uri, &mut request).await {
        Ok(way) => {
            // The domain's path goes on; the mount's was cut off by the router.
            *request.uri_mut() = uri;
            let way_in = way_in.forwarding();
            let Destination { to, rules, detour } = way;
            let failed = if detour.is_some() {
                failed
            } else {
                failed_outside
            };
            let detour = || detour?.find(&app.unscoped, &rules);
            let forwarded = app.forwarder.forward_or(request, to, &rules, detour).await;
            let forwarded = forwarded.map_err(failed);
            match &forwarded {
                Ok(response) => way_in.answered(response.status(), None),
                Err(error) => way_in.answered(error.status(), Some(error.code())),
            }
            forwarded.map_err(Into::into)
        }
        Err(refused) => {
            if refused.is_denial {
                way_in.deny(refused.error.status(), refused.error.code());
            }
            Err(refused)
        }
    };
    match (answer, socket) {
        (Ok(mut response), None) => {
            answers::guard(response.headers_mut());
            match version {
                Version::HTTP_2 => response.map(|it| unless_stalled(it, IDLE, &app.tasks)),
                _ => response,
            }
        }
        (Ok(mut response), Some(_)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            answers::guard(response.headers_mut());
            response
        }
        (Ok(response), Some(socket)) => {
            let status = response.status().as_u16();
            let reason = format!("the backend answered {status} instead of a WebSocket");
            socket.close(close_code::POLICY, &reason)
        }
        (Err(refused), None) => Page::answer(page, refused.error),
        (Err(refused), Some(socket)) => socket.close(refused.close, &refused.reason),
    }
}

/// What is asked for.
struct Wanted {
    id: SandboxId,
    port: u16,
    /// The sandbox, if there is one.
    record: Option<Arc<Record>>,
}

/// Who asks.
struct Caller {
    client: Client,
    verdict: Verdict,
    /// Whether the request has the API key, or a token of the sandbox: older SDKs send nothing else on
    /// these paths.
    has_key: bool,
}

/// A request that is not forwarded.
struct Refused {
    error: ApiError,
    /// Close code and reason for a WebSocket.
    close: u16,
    reason: String,
    /// Whether a key or a token is missing or wrong, rather than something else.
    is_denial: bool,
}

impl From<ApiError> for Box<Refused> {
    fn from(error: ApiError) -> Self {
        Self::new(Refused {
            close: close_code::ERROR,
            reason: error.message().to_owned(),
            error,
            is_denial: false,
        })
    }
}

impl From<LimitReached> for Box<Refused> {
    fn from(full: LimitReached) -> Self {
        let mut refused = Self::from(ApiError::from(full));
        refused.close = close_code::AGAIN;
        refused
    }
}

/// Where an admitted request goes, and how its headers change.
struct Destination {
    to: osb_forward::Target,
    rules: HeaderRules,
    /// Where the request may go if nothing listens there; nowhere else, if that is execd already.
    detour: Option<ThroughExecd>,
}

/// Finds the way of a request that may go, and gives it room until its exchange is over.
async fn admit(
    app: &AppState,
    caller: Caller,
    Wanted { id, port, record }: Wanted,
    uri: &Uri,
    request: &mut Request,
) -> Result<Destination, Box<Refused>> {
    let is_sandbox = |address| app.unscoped.is_sandbox_address(address);
    let scope = match &caller.verdict {
        Ok(principal) => &principal.scope,
        // With tenants, no request is served without a key of one.
        Err(denied) if app.keys.has_tenants() => {
            let denied = auth::count(&app.throttle, &caller.client, *denied);
            return Err(without_key(denied));
        }
        // Only its clients are to reach a sandbox's programs, and a neighbour is none of them.
        Err(denied)
            if !caller.has_key
                && !app.keyless_from_sandboxes
                && caller.client.may_be(is_sandbox) =>
        {
            return Err(without_key(*denied));
        }
        Err(_) => &Scope::All,
    };
    let record = record.filter(|it| scope.contains(it.facts.origin.tenant.as_deref()));
    let target = match app.unscoped.proxy_target(&id, record, port) {
        Ok(target) => target,
        // What it wrote is not for all who know its id.
        Err(error) if caller.has_key => {
            let error = app.unscoped.with_last_output(error).await;
            return Err(ApiError::from(error).into());
        }
        Err(error) => return Err(ApiError::from(error).into()),
    };
    if !has_secure_access(&target.record, request.headers()) {
        return Err(Box::new(no_secure_access()));
    }
    let prefixed = uri.path().starts_with("/v1/");
    let rest = osb_forward::after_segments(uri, if prefixed { 5 } else { 4 });
    let prefix = if prefixed { "/v1" } else { "" };
    let base = app.eip.as_deref().map_or(prefix, path_of);
    let location = format!("{base}/sandboxes/{id}/proxy/{port}");
    let to = destination(&target, rest.clone())?;
    let (kind, client) = match caller.has_key {
        true => (Kind::ProxyKeyed, None),
        false => (Kind::ProxyKeyless, Some(caller.client.group())),
    };
    let visitor = Visitor {
        client,
        sandbox: Some(id),
        connection: overload::busy(request, caller.has_key),
    };
    let permit = app.room.enter(kind, visitor)?;
    if request
        .headers()
        .get(ACCESS_RENEW)
        .is_none_or(|it| it != SKIP)
    {
        let record = &target.record;
        app.unscoped.note_access(record, AccessSource::ServerProxy);
    }
    let rules = rules(&target, port, &caller, request.headers(), location);
    let lease = Lease::with_silence(Held::new(permit, app.unscoped.clone()));
    let lease = match &caller.verdict {
        // A key that is revoked opens nothing further, neither streams nor tunnels.
        Ok(principal) => lease.until(principal.validity.ended().clone()),
        Err(_) => lease,
    };
    request.extensions_mut().insert(lease);
    trace::pass_on(request.headers_mut());
    let has_detour = may_enter(&caller) || target.route.is_execd;
    let detour = has_detour.then_some(ThroughExecd { target, port, rest });
    Ok(Destination { to, rules, detour })
}

/// A request that needs a key and has none, or a wrong one (contract: lifecycle §8, A7).
fn without_key(denied: Denied) -> Box<Refused> {
    let (close, reason) = match denied {
        Denied::Missing => (close_code::POLICY, "missing API key"),
        Denied::Wrong => (close_code::POLICY, "invalid API key"),
        Denied::Unavailable => (close_code::ERROR, "the tenant provider does not answer"),
        Denied::Throttled => (close_code::AGAIN, "too many wrong API keys"),
    };
    Box::new(Refused {
        error: refusal(denied),
        close,
        reason: reason.to_owned(),
        is_denial: denied != Denied::Unavailable,
    })
}

/// Whether a request has a token of the sandbox.
fn has_token(record: Option<&Record>, given: &HeaderMap) -> bool {
    let matches = |name, token: Option<&_>| match (given.get(name), token) {
        (Some(given), Some(token)) => auth::equal(given.as_bytes(), token),
        _ => false,
    };
    record.is_some_and(|record| {
        let origin = &record.facts.origin;
        matches(EXECD_TOKEN, origin.token.as_ref())
            || matches(SECURE_ACCESS, origin.secure_access.as_ref())
            || matches(EGRESS_TOKEN, origin.egress_token.as_ref())
    })
}

/// Whether a request has the token that the sandbox wants for all its ports, if it wants one
/// (contract: lifecycle §7).
fn has_secure_access(record: &Record, given: &HeaderMap) -> bool {
    let Some(token) = &record.facts.origin.secure_access else {
        return true;
    };
    let given = given.get(SECURE_ACCESS).map(HeaderValue::as_bytes);
    given.is_some_and(|given| auth::equal(given, token))
}

fn no_secure_access() -> Refused {
    let message = "the header OpenSandbox-Secure-Access is missing or wrong: every request to this \
                   sandbox needs the headers of its endpoint";
    let status = StatusCode::UNAUTHORIZED;
    Refused {
        error: ApiError::new(status, code::SECURE_ACCESS, message),
        close: close_code::POLICY,
        reason: NO_SECURE_ACCESS.to_owned(),
        is_denial: true,
    }
}

/// Sandbox id and port of a proxy path, as they were sent: the path behind them may be anything, so
/// nothing is decoded.
fn address(path: &str) -> (String, String) {
    let path = path.strip_prefix("/v1").unwrap_or(path);
    let mut segments = path.split('/').skip(2);
    let id = segments.next().unwrap_or_default().to_owned();
    (id, segments.nth(1).unwrap_or_default().to_owned())
}

fn rules(
    target: &Target,
    port: u16,
    caller: &Caller,
    given: &HeaderMap,
    location: String,
) -> HeaderRules {
    let mut rules = HeaderRules {
        drop_request: (&DROPPED[..]).into(),
        drop_response: (&answers::DROPPED[..]).into(),
        forwarded: Forwarded::Rebuild(Peer {
            address: caller.client.address,
            scheme: caller.client.scheme.clone(),
        }),
        location_strip: strip_of(target, port),
        location_prefix: Some(location),
        ..HeaderRules::default()
    };
    match target.execd_token() {
        // execd is what is talked to. A caller without the key must bring the token itself.
        Some(token) => {
            let may_run = |principal: &Principal| principal.role >= Role::Operator;
            let admitted =
                caller.verdict.as_deref().is_ok_and(may_run) && !given.contains_key(EXECD_TOKEN);
            let value = HeaderValue::from_str(token.expose_secret());
            if let (true, Ok(mut value)) = (admitted, value) {
                value.set_sensitive(true);
                rules.set_request.insert(EXECD_TOKEN, value);
            }
        }
        None if port == EXECD_PORT => {}
        None => rules.drop_request = (&DROPPED_WITH_TOKEN[..]).into(),
    }
    rules
}

/// What execd's proxy puts before the redirects of a program, if the way to its port leads through it.
fn strip_of(target: &Target, port: u16) -> Option<String> {
    let is_proxied = target.route.is_execd && port != EXECD_PORT;
    is_proxied.then(|| execd_path(port))
}

fn destination(target: &Target, rest: PathAndQuery) -> Result<osb_forward::Target, ApiError> {
    let route = &target.route;
    let path_and_query = match route.path_prefix.as_str() {
        "" => Ok(rest),
        prefix => format!("{prefix}{rest}").parse(),
    };
    let parsed = (route.authority.parse::<Authority>(), path_and_query);
    let (Ok(authority), Ok(path_and_query)) = parsed else {
        let message = "the sandbox's address cannot be used";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        return Err(ApiError::new(status, code::ENDPOINT_UNAVAILABLE, message));
    };
    Ok(osb_forward::Target {
        authority,
        path_and_query,
    })
}

fn failed(error: ForwardError) -> ApiError {
    let (status, code, message) = match &error {
        ForwardError::Withdrawn => return refusal(Denied::Wrong),
        ForwardError::BadRequest(rule) => (
            StatusCode::BAD_REQUEST,
            code::UNKNOWN_ERROR,
            (*rule).to_owned(),
        ),
        ForwardError::RequestBody(_) => (
            StatusCode::BAD_REQUEST,
            code::UNKNOWN_ERROR,
            error.to_string(),
        ),
        ForwardError::Connect(_) => (
            StatusCode::BAD_GATEWAY,
            code::BACKEND_CONNECTION_FAILED,
            "Could not connect to the backend sandbox: nothing listens on that port".to_owned(),
        ),
        ForwardError::Timeout(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            code::BACKEND_TIMEOUT,
            error.to_string(),
        ),
        ForwardError::Exhausted(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            code::UNKNOWN_ERROR,
            "An internal error occurred in the proxy".to_owned(),
        ),
        ForwardError::Response(_) | ForwardError::TransferCoding | ForwardError::UnaskedUpgrade => {
            (
                StatusCode::BAD_GATEWAY,
                code::BACKEND_RESPONSE_FAILED,
                error.to_string(),
            )
        }
    };
    let answer = ApiError::new(status, code, message).because(&error);
    if error.origin() != osb_forward::Origin::Upstream {
        return answer;
    }
    // What a program does is no event of this server, and anyone can ask it again and again.
    debug!(
        error = &error as &dyn std::error::Error,
        "a sandbox did not answer"
    );
    answer.unlogged()
}

/// The path of an address like `host:port/path`.
fn path_of(eip: &str) -> &str {
    let bare = eip.split_once("://").map_or(eip, |(_, rest)| rest);
    bare.find('/').map_or("", |slash| &bare[slash..])
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;

    use super::{super::error::Cause, *};

    #[test]
    fn every_failure_has_the_contracts_status_and_code() {
        let refused = || std::io::ErrorKind::ConnectionRefused.into();
        for (error, status, code) in [
            (
                ForwardError::Connect(refused()),
                502,
                "BACKEND_CONNECTION_FAILED",
            ),
            (
                ForwardError::Timeout(osb_forward::Awaited::ResponseHead),
                504,
                "BACKEND_TIMEOUT",
            ),
            (
                ForwardError::Timeout(osb_forward::Awaited::RequestBody),
                504,
                "BACKEND_TIMEOUT",
            ),
            (ForwardError::TransferCoding, 502, "BACKEND_RESPONSE_FAILED"),
            (ForwardError::UnaskedUpgrade, 502, "BACKEND_RESPONSE_FAILED"),
            (
                ForwardError::Exhausted(refused()),
                500,
                "GENERAL::UNKNOWN_ERROR",
            ),
        ] {
            let shown = error.to_string();
            let answer = failed(error);
            let seen = (answer.status().as_u16(), answer.code());
            assert_eq!(seen, (status, code), "{shown}");
        }
    }

    #[test]
    fn failures_of_programs_are_no_lines_of_the_log() {
        let logged = |error| {
            let answer = failed(error).into_response();
            answer.extensions().get::<Cause>().is_some()
        };
        assert!(!logged(ForwardError::TransferCoding));
        assert!(!logged(ForwardError::Timeout(
            osb_forward::Awaited::ResponseHead
        )));
        assert!(logged(ForwardError::BadRequest("why")));
    }

    #[test]
    fn id_and_port_are_read_from_the_raw_path() {
        let read = |path| address(path);
        assert_eq!(
            read("/v1/sandboxes/a/proxy/80/caf%E9"),
            ("a".into(), "80".into())
        );
        assert_eq!(read("/sandboxes/a/proxy/80"), ("a".into(), "80".into()));
        assert_eq!(
            read("/sandboxes/%2e%2e/proxy/80/"),
            ("%2e%2e".into(), "80".into())
        );
    }

    #[test]
    fn the_path_of_a_public_address_is_found() {
        assert_eq!(path_of("e.example:1/x/y"), "/x/y");
        assert_eq!(path_of("https://e.example"), "");
        assert_eq!(path_of("https://e.example/z"), "/z");
    }
}
