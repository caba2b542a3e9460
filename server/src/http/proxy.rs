//! `/sandboxes/{id}/proxy/{port}/…`: HTTP and upgrades to a port of a sandbox (contract: lifecycle
//! §7, §8, §A11).
//!
//! No API key is needed: who knows the id may talk to what the sandbox serves, unless it is another
//! sandbox. execd is the exception, it wants its own token, which the proxy adds only for callers
//! with the API key.
//!
//! What a sandbox sends is hostile. Pages get an origin of their own (`Content-Security-Policy:
//! sandbox` without `allow-same-origin`), and no cookie by the name of the console's gets through.

use std::time::Duration;

use axum::{
    body::Body,
    extract::{
        FromRequestParts, OriginalUri, Request, State,
        ws::{CloseFrame, Message, WebSocketUpgrade, close_code},
    },
    response::{IntoResponse, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, Version,
    header::{
        AUTHORIZATION, CONTENT_SECURITY_POLICY, COOKIE, PUBLIC_KEY_PINS,
        PUBLIC_KEY_PINS_REPORT_ONLY, REFRESH, SERVER, SET_COOKIE, STRICT_TRANSPORT_SECURITY,
        UPGRADE, WWW_AUTHENTICATE,
    },
    request::Parts,
    uri::{Authority, PathAndQuery},
};
use hyper::upgrade::OnUpgrade;
use osb_forward::{ForwardError, Forwarded, HeaderRules, Lease, Limits, Peer};
use osb_protocol::{SandboxId, error::code, headers};
use osb_runtime::EXECD_PORT;
use secrecy::ExposeSecret;
use tracing::debug;

use super::{
    AppState,
    auth::Verdict,
    client::{self, Client},
    error::ApiError,
    extract::{port, sandbox_id},
    gate::{LimitReached, Visitor},
    origin::{self, Origin},
    overload::{self, Kind},
    stall::unless_stalled,
};
use crate::sandbox::endpoint::Target;

/// Longest silence in an exchange; event streams of execd say something every 3 s.
const IDLE: Duration = Duration::from_secs(180);
/// Longest wait for a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than what servers commonly allow, so that a request
/// does not meet a connection that is being closed.
const KEEP: Duration = Duration::from_secs(4);
/// Unused connections kept per sandbox port.
const KEEP_PER_BACKEND: usize = 32;
/// Longest WebSocket close reason, in bytes (RFC 6455 §5.5).
const CLOSE_REASON: usize = 123;

/// The console's cookies begin like this; see `console::session`.
const CONSOLE_COOKIES: [&[u8]; 3] = [b"osb_", b"__host-", b"__secure-"];

const SANDBOXED: HeaderValue = HeaderValue::from_static(
    "sandbox allow-scripts allow-forms allow-popups allow-downloads allow-modals",
);
/// Close reason of a WebSocket that needs a key.
const MISSING_KEY: &str = "missing API key";
const EXECD_TOKEN: HeaderName = HeaderName::from_static(headers::EXECD_ACCESS_TOKEN);

/// Request headers that stay here. Names that clients use towards this server only.
static DROPPED: [HeaderName; 5] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static(headers::API_KEY),
    HeaderName::from_static(headers::SECURE_ACCESS),
    HeaderName::from_static(headers::ACCESS_RENEW),
];
/// The same for ports that are not execd's: its token is none of their business.
static DROPPED_WITH_TOKEN: [HeaderName; 6] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static(headers::API_KEY),
    HeaderName::from_static(headers::SECURE_ACCESS),
    HeaderName::from_static(headers::ACCESS_RENEW),
    EXECD_TOKEN,
];
/// Response headers that stay here.
static DROPPED_FROM_ANSWER: [HeaderName; 19] = [
    // The backend's name.
    SERVER,
    // Asks the browser for a password in this server's name. The `Authorization` that would follow
    // stays here too, so no program can use it.
    WWW_AUTHENTICATE,
    // Leads the page to an address that, unlike `Location`, has no proxy path put in front.
    REFRESH,
    // What browsers keep for the whole origin, the console included: where else it is served,
    HeaderName::from_static("alt-svc"),
    // that it needs HTTPS, with which certificates,
    STRICT_TRANSPORT_SECURITY,
    PUBLIC_KEY_PINS,
    PUBLIC_KEY_PINS_REPORT_ONLY,
    HeaderName::from_static("expect-ct"),
    // what to forget of it,
    HeaderName::from_static("clear-site-data"),
    // where to report what users do on it,
    HeaderName::from_static("nel"),
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    // what to tell it with each request,
    HeaderName::from_static("accept-ch"),
    HeaderName::from_static("critical-ch"),
    HeaderName::from_static("use-as-dictionary"),
    // who is signed in,
    HeaderName::from_static("set-login"),
    HeaderName::from_static("sec-session-registration"),
    HeaderName::from_static("sec-session-challenge"),
    // and which of its paths a service worker may serve.
    HeaderName::from_static("service-worker-allowed"),
];

/// Limits of the server's forwarder.
#[must_use]
pub(crate) fn limits(tunnel_idle: Option<Duration>) -> Limits {
    Limits {
        connect: CONNECT,
        idle: Some(IDLE),
        tunnel_idle,
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
    let verdict = match app.keys.verify(request.headers()) {
        // Where no key is wanted, a page of another origin still gets no token added.
        Verdict::Admitted if !app.keys.is_required() && origin::of(&request) == Origin::Foreign => {
            Verdict::Missing
        }
        verdict => verdict,
    };
    let (id, port_text) = address(uri.path());
    let id = sandbox_id(id);
    let port = match port(&port_text) {
        Ok(port) => port,
        // Only a numeric port makes it a proxy path that needs no key.
        Err(error) => return verdict.refusal().unwrap_or(error).into_response(),
    };
    let socket = match handshake(&request) {
        Some(parts) => WebSocketClient::of(parts).await,
        None => None,
    };
    let version = request.version();
    let caller = Caller {
        client: client::of(request.extensions()),
        verdict,
        has_key: verdict == Verdict::Admitted || has_token(&app, &id, request.headers()),
    };
    let answer = match admit(&app, caller, (&id, port), &uri, &mut request) {
        Ok(way) => {
            // The domain's path goes on; the mount's was cut off by the router.
            *request.uri_mut() = uri;
            let forwarded = app.forwarder.forward(request, way.to, &way.rules).await;
            forwarded.map_err(|error| failed(error).into())
        }
        Err(refused) => Err(refused),
    };
    match (answer, socket) {
        (Ok(mut response), None) => {
            guard(response.headers_mut());
            match version {
                Version::HTTP_2 => response.map(|it| unless_stalled(it, IDLE, &app.tasks)),
                _ => response,
            }
        }
        (Ok(mut response), Some(_)) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
            guard(response.headers_mut());
            response
        }
        (Ok(response), Some(socket)) => {
            let status = response.status().as_u16();
            let reason = format!("the backend answered {status} instead of a WebSocket");
            socket.close(close_code::POLICY, &reason)
        }
        (Err(refused), None) => refused.error.into_response(),
        (Err(refused), Some(socket)) => socket.close(refused.close, &refused.reason),
    }
}

/// Who asks.
struct Caller {
    client: Client,
    verdict: Verdict,
    /// Whether the request has the API key, or the token of the sandbox's execd: older SDKs send
    /// nothing else on these paths.
    has_key: bool,
}

/// A request that is not forwarded.
struct Refused {
    error: ApiError,
    /// Close code and reason for a WebSocket.
    close: u16,
    reason: String,
}

impl From<ApiError> for Box<Refused> {
    fn from(error: ApiError) -> Self {
        Self::new(Refused {
            close: close_code::ERROR,
            reason: error.message().to_owned(),
            error,
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
}

/// Finds the way of a request that may go, and gives it room until its exchange is over.
fn admit(
    app: &AppState,
    caller: Caller,
    (id, port): (&SandboxId, u16),
    uri: &Uri,
    request: &mut Request,
) -> Result<Destination, Box<Refused>> {
    let is_sandbox = |address| app.service.is_sandbox_address(address);
    let refusal = caller.verdict.refusal();
    if let (false, false, Some(error)) = (caller.has_key, app.keyless_from_sandboxes, refusal)
        && caller.client.may_be(is_sandbox)
    {
        // Only its clients are to reach a sandbox's programs, and a neighbour is none of them.
        return Err(Box::new(Refused {
            error,
            close: close_code::POLICY,
            reason: MISSING_KEY.to_owned(),
        }));
    }
    let target = app.service.proxy_target(id, port).map_err(ApiError::from)?;
    let prefixed = uri.path().starts_with("/v1/");
    let rest = osb_forward::after_segments(uri, if prefixed { 5 } else { 4 });
    let prefix = if prefixed { "/v1" } else { "" };
    let base = app.eip.as_deref().map_or(prefix, path_of);
    let location = format!("{base}/sandboxes/{id}/proxy/{port}");
    let to = destination(&target, &rest)?;
    let (kind, client) = match caller.has_key {
        true => (Kind::ProxyKeyed, None),
        false => (Kind::ProxyKeyless, Some(caller.client.group())),
    };
    let visitor = Visitor {
        client,
        sandbox: Some(id.clone()),
        connection: overload::busy(request, caller.has_key),
    };
    let permit = app.room.enter(kind, visitor)?;
    let rules = rules(&target, port, &caller, request.headers(), location);
    request.extensions_mut().insert(Lease::new(permit));
    Ok(Destination { to, rules })
}

/// Whether a request has the token of the sandbox's execd.
fn has_token(app: &AppState, id: &SandboxId, given: &HeaderMap) -> bool {
    let token = given.get(EXECD_TOKEN).map(HeaderValue::as_bytes);
    token.is_some_and(|token| app.service.is_execd_token(id, token))
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
        drop_response: (&DROPPED_FROM_ANSWER[..]).into(),
        forwarded: Forwarded::Rebuild(Peer {
            address: caller.client.address,
            scheme: caller.client.scheme.clone(),
        }),
        location_prefix: Some(location),
        ..HeaderRules::default()
    };
    match &target.token {
        // execd is what is talked to. A caller without the key must bring the token itself.
        Some(token) => {
            let admitted = caller.verdict == Verdict::Admitted && !given.contains_key(EXECD_TOKEN);
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

fn destination(target: &Target, rest: &PathAndQuery) -> Result<osb_forward::Target, ApiError> {
    let path = format!("{}{rest}", target.path_prefix);
    let parsed = (
        target.authority.parse::<Authority>(),
        path.parse::<PathAndQuery>(),
    );
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

/// Keeps what a sandbox sends from acting in this server's name.
fn guard(headers: &mut HeaderMap) {
    headers.append(CONTENT_SECURITY_POLICY, SANDBOXED);
    let harmful = |cookie: &HeaderValue| is_console_cookie(cookie) || has_domain(cookie);
    if headers.get_all(SET_COOKIE).iter().any(harmful) {
        let kept: Vec<HeaderValue> = headers
            .get_all(SET_COOKIE)
            .iter()
            .filter(|cookie| !harmful(cookie))
            .cloned()
            .collect();
        headers.remove(SET_COOKIE);
        for cookie in kept {
            headers.append(SET_COOKIE, cookie);
        }
    }
}

/// Whether a cookie has a name of the console's.
fn is_console_cookie(cookie: &HeaderValue) -> bool {
    let cookie = cookie.as_bytes();
    // Browsers send a cookie without a name, `=osb_console=x`, as its value alone.
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'=';
    let start = cookie.iter().position(|byte| !blank(byte));
    let name = cookie[start.unwrap_or(0)..].to_ascii_lowercase();
    CONSOLE_COOKIES
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether a cookie would be sent to other hosts than this one.
fn has_domain(cookie: &HeaderValue) -> bool {
    let mut attributes = cookie.as_bytes().split(|byte| *byte == b';').skip(1);
    attributes.any(|attribute| {
        let name = attribute.split(|byte| *byte == b'=').next();
        name.is_some_and(|name| name.trim_ascii().eq_ignore_ascii_case(b"domain"))
    })
}

/// The path of an address like `host:port/path`.
fn path_of(eip: &str) -> &str {
    let bare = eip.split_once("://").map_or(eip, |(_, rest)| rest);
    bare.find('/').map_or("", |slash| &bare[slash..])
}

/// A copy of the head of a request that asks for a WebSocket.
fn handshake(request: &Request) -> Option<Parts> {
    let upgrade = request.headers().get(UPGRADE)?.to_str().ok()?;
    if !upgrade.eq_ignore_ascii_case("websocket") {
        return None;
    }
    let on_upgrade = request.extensions().get::<OnUpgrade>()?.clone();
    let mut bare = http::Request::builder()
        .method(request.method().clone())
        .uri(request.uri().clone())
        .version(request.version())
        .body(())
        .ok()?;
    *bare.headers_mut() = request.headers().clone();
    bare.extensions_mut().insert(on_upgrade);
    Some(bare.into_parts().0)
}

/// A client that asked for a WebSocket: a failure reaches it as a close frame, which is what a
/// browser can show; an HTTP status it cannot see.
struct WebSocketClient(WebSocketUpgrade);

impl WebSocketClient {
    /// `None` unless the handshake is complete: another one can only be answered over HTTP.
    async fn of(mut parts: Parts) -> Option<Self> {
        let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
        upgrade.ok().map(Self)
    }

    fn close(self, code: u16, reason: &str) -> Response {
        let reason = &reason[..reason.floor_char_boundary(CLOSE_REASON)];
        let frame = CloseFrame {
            code,
            reason: reason.into(),
        };
        let upgraded = self.0.on_upgrade(async move |mut socket| {
            // The client may be gone already.
            let _ = socket.send(Message::Close(Some(frame))).await;
        });
        upgraded.map(Body::new)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::error::Cause, *};

    #[test]
    fn hostile_answers_are_guarded() {
        let mut headers = HeaderMap::new();
        for cookie in [
            "a=1",
            " OSB_console=x; Path=/console",
            "__Host-osb=1",
            "=osb_console=x; Path=/console",
            " = \t__Secure-osb_console=x",
            "osb_console",
            "wide=1; Path=/; domain=example.org",
            "wide=1;Domain = .example.org ;Secure",
            "b=domain; Path=/domain",
        ] {
            headers.append(SET_COOKIE, cookie.parse().unwrap());
        }
        headers.insert(CONTENT_SECURITY_POLICY, "default-src *".parse().unwrap());
        guard(&mut headers);
        let cookies: Vec<_> = headers.get_all(SET_COOKIE).iter().collect();
        assert_eq!(cookies, ["a=1", "b=domain; Path=/domain"]);
        let policies: Vec<_> = headers.get_all(CONTENT_SECURITY_POLICY).iter().collect();
        assert_eq!(policies.len(), 2);
        assert!(!policies[1].to_str().unwrap().contains("allow-same-origin"));
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
