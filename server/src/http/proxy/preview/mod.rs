//! Previews with an origin of their own: a listener on which every port of every sandbox has its own
//! host name, no route of this server exists, and no cookie passes in either direction. Pages have
//! their storage there, and cannot reach the console or another sandbox with it.
//!
//! A browser comes from the console with a ticket, which the origin exchanges for a pass in a cookie
//! ([`grants`]). Host names of one domain are one site to browsers, which therefore send that cookie
//! for pages of other sandboxes too: requests that another origin makes are refused.

mod grants;

use std::{collections::HashSet, sync::Arc};

use axum::{
    Router,
    extract::{Query, Request, State},
    response::{IntoResponse, Response},
    routing::get,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Version,
    header::{
        ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, LOCATION,
        REFERRER_POLICY, SET_COOKIE,
    },
};
use osb_forward::{Forwarded, HeaderRules, Lease, Peer};
use osb_protocol::{SandboxId, error::code, headers, identity::Role};
use osb_runtime::EXECD_PORT;
use serde::Deserialize;

use self::grants::{Grant, Grants, PASS};
use super::{
    super::{
        AppState, client,
        error::ApiError,
        gate::Visitor,
        host,
        origin::{self, Origin},
        overload::{self, Kind},
        stall::unless_stalled,
    },
    IDLE, answers, destination,
    detour::ThroughExecd,
    failed,
    silence::Held,
};
use crate::{
    identity::Principal,
    preview_origin::{PreviewOrigins, Site},
    sandbox::{AccessSource, Record},
    trace,
};

/// Path of an origin that exchanges a ticket. Programs of sandboxes do not get it.
const ENTER: &str = "/.opensandbox/enter";
/// Cookie with the pass.
const COOKIE_NAME: &str = "osb_preview";
/// Only the page's own origin may show it in a frame. A page of another sandbox is none.
const FRAMES: HeaderValue = HeaderValue::from_static("frame-ancestors 'self'");
/// Request headers that stay here: those of this server's clients, and all cookies.
static DROPPED_REQUEST: [HeaderName; 5] = [
    COOKIE,
    HeaderName::from_static(headers::API_KEY),
    HeaderName::from_static(headers::SECURE_ACCESS),
    HeaderName::from_static(headers::ACCESS_RENEW),
    HeaderName::from_static(headers::EXECD_ACCESS_TOKEN),
];

/// The previews of this server. Clones share them.
#[derive(Clone, Debug)]
pub struct Previews(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    origins: PreviewOrigins,
    grants: Grants,
}

impl Previews {
    /// Previews at these origins.
    #[must_use]
    pub fn new(origins: PreviewOrigins) -> Self {
        Self(Arc::new(Inner {
            origins,
            grants: Grants::default(),
        }))
    }

    /// The address at which a browser gets a pass for a port of a sandbox, good for one use within a
    /// minute. `None` when the sandbox's id fits into no host name, or the port is execd's.
    pub(in super::super) fn address(
        &self,
        (sandbox, port): (SandboxId, u16),
        principal: Arc<Principal>,
        session: &str,
    ) -> Option<String> {
        let site = Site { sandbox, port };
        let origin = self.0.origins.of(&site).filter(|_| port != EXECD_PORT)?;
        let ticket = self.0.grants.ticket(site, principal, session);
        Some(format!("{origin}{ENTER}?ticket={ticket}"))
    }

    /// Whether anyone may see one.
    pub(in super::super) fn is_used(&self) -> bool {
        !self.0.grants.is_empty()
    }

    /// Ends those that were opened from other sessions of the console than these.
    pub(in super::super) fn retain(&self, sessions: &HashSet<String>) {
        self.0.grants.retain(sessions);
    }
}

/// State of the listener.
#[derive(Clone)]
struct PreviewState {
    app: AppState,
    previews: Previews,
}

/// Routes of the listener for previews.
pub fn router(app: AppState, previews: Previews) -> Router {
    Router::new()
        .route(ENTER, get(enter))
        .fallback(forward)
        .with_state(PreviewState { app, previews })
}

#[derive(Deserialize)]
struct Ticket {
    #[serde(default)]
    ticket: String,
}

/// Exchanges a ticket for a pass, and leads to the preview.
async fn enter(
    State(PreviewState { previews, .. }): State<PreviewState>,
    Query(Ticket { ticket }): Query<Ticket>,
    request: Request,
) -> Response {
    let Inner { origins, grants } = &*previews.0;
    let Some(site) = site(origins, &request) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "There is no preview at this address.",
        );
    };
    let Some(pass) = grants.redeem(&ticket, &site) else {
        let why = "This link was used, or is older than a minute. Open the preview from the console again.";
        return refuse(StatusCode::FORBIDDEN, why);
    };
    let secure = if origins.is_https() { "; Secure" } else { "" };
    let age = PASS.as_secs();
    let cookie =
        format!("{COOKIE_NAME}={pass}; Path=/; Max-Age={age}; HttpOnly; SameSite=Lax{secure}");
    let headers = [
        (LOCATION, "/".to_owned()),
        (SET_COOKIE, cookie),
        (CACHE_CONTROL, "no-store".to_owned()),
        (REFERRER_POLICY, "no-referrer".to_owned()),
    ];
    (StatusCode::SEE_OTHER, headers).into_response()
}

/// Forwards a request of a browser with a pass.
async fn forward(State(state): State<PreviewState>, mut request: Request) -> Response {
    let Inner { origins, grants } = &*state.previews.0;
    let Some(site) = site(origins, &request) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "There is no preview at this address.",
        );
    };
    if is_foreign(&request) {
        let why = "A page of another origin made this request.";
        return refuse(StatusCode::FORBIDDEN, why);
    }
    let passes = passes(request.headers());
    // Pages of the same domain may have set more cookies of this name.
    let grant = passes
        .into_iter()
        .find_map(|pass| grants.admit(pass, &site));
    let Some(grant) = grant.filter(|it| it.principal.role >= Role::Operator) else {
        let why = "This preview is not open, or was opened more than an hour ago. Open it from the console.";
        return refuse(StatusCode::FORBIDDEN, why);
    };
    let app = &state.app;
    let record = app.unscoped.registry().get(&site.sandbox);
    let scope = &grant.principal.scope;
    let record = record.filter(|it| scope.contains(it.facts.origin.tenant.as_deref()));
    let version = request.version();
    match pass_on(app, &site, record, grant, &mut request) {
        Ok((to, rules, detour)) => {
            let detour = || detour.find(&app.unscoped, &rules);
            match app.forwarder.forward_or(request, to, &rules, detour).await {
                Ok(mut response) => {
                    guard(response.headers_mut());
                    if !origins.is_https() {
                        keep_referer(response.headers_mut());
                    }
                    match version {
                        Version::HTTP_2 => {
                            response.map(|body| unless_stalled(body, IDLE, &app.tasks))
                        }
                        _ => response,
                    }
                }
                Err(error) => {
                    let error = failed(error);
                    refuse(error.status(), error.message())
                }
            }
        }
        Err(error) => refuse(error.status(), error.message()),
    }
}

/// Where a request goes, how its headers change, and where it goes if nothing listens there. It gets room
/// until its exchange is over.
fn pass_on(
    app: &AppState,
    site: &Site,
    record: Option<Arc<Record>>,
    grant: Arc<Grant>,
    request: &mut Request,
) -> Result<(osb_forward::Target, HeaderRules, ThroughExecd), ApiError> {
    let target = app.unscoped.proxy_target(&site.sandbox, record, site.port);
    let target = target.map_err(ApiError::from)?;
    if target.execd_token().is_some() || site.port == EXECD_PORT {
        let why = "This port is execd's own.";
        return Err(ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, why));
    }
    let rest = osb_forward::after_segments(request.uri(), 0);
    let to = destination(&target, rest.clone())?;
    let visitor = Visitor {
        client: None,
        sandbox: Some(site.sandbox.clone()),
        connection: overload::busy(request, true),
    };
    let permit = app.room.enter(Kind::ProxyKeyed, visitor);
    let permit = permit.map_err(ApiError::from)?;
    app.unscoped
        .note_access(&target.record, AccessSource::ServerProxy);
    let ended = grant.ended.clone();
    let held = Held::with(permit, app.unscoped.clone(), grant);
    let lease = Lease::with_silence(held).until(ended);
    request.extensions_mut().insert(lease);
    trace::pass_on(request.headers_mut());
    let client = client::take(request.extensions_mut());
    let mut dropped = answers::DROPPED.to_vec();
    dropped.push(SET_COOKIE);
    let rules = HeaderRules {
        drop_request: (&DROPPED_REQUEST[..]).into(),
        drop_response: dropped.into(),
        forwarded: Forwarded::Rebuild(Peer {
            address: client.address,
            scheme: client.scheme,
        }),
        ..HeaderRules::default()
    };
    let port = site.port;
    Ok((to, rules, ThroughExecd { target, port, rest }))
}

/// The preview that a request names. One that names two hosts names none.
fn site(origins: &PreviewOrigins, request: &Request) -> Option<Site> {
    let named = host::named(request).ok()?;
    let (first, others) = named.split_first()?;
    let is_one = others.iter().all(|other| other == first);
    origins.site(first.as_str()).filter(|_| is_one)
}

/// Every pass that a request brings.
fn passes(headers: &HeaderMap) -> Vec<&str> {
    let cookies = headers.get_all(COOKIE).into_iter();
    let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
    let pairs = cookies.flat_map(|cookies| cookies.split(';'));
    let named = pairs.filter_map(|pair| pair.trim().strip_prefix(COOKIE_NAME));
    named.filter_map(|rest| rest.strip_prefix('=')).collect()
}

/// Whether a page of another origin made the request, other than by leading the browser here.
fn is_foreign(request: &Request) -> bool {
    let says = |name: &str| request.headers().get(name).map(HeaderValue::as_bytes);
    let is_visit = [Method::GET, Method::HEAD].contains(request.method())
        && says("sec-fetch-mode") == Some(b"navigate")
        && says("sec-fetch-dest") == Some(b"document");
    match says("sec-fetch-site") {
        Some(b"same-origin" | b"none") => origin::of(request) == Origin::Foreign,
        Some(_) => !is_visit,
        // An older browser, or one that came by plain HTTP: it says nothing of the kind, and names no
        // origin when it only reads.
        None => match origin::of(request) {
            Origin::Own => false,
            Origin::Foreign => true,
            Origin::Unknown => !opens_page(request) && !origin::has_own_referer(request),
        },
    }
}

/// Whether a browser wants a page rather than a part of one.
fn opens_page(request: &Request) -> bool {
    let accept = request.headers().get(ACCEPT).map(HeaderValue::as_bytes);
    [Method::GET, Method::HEAD].contains(request.method())
        && accept.is_some_and(|accept| accept.starts_with(b"text/html"))
}

/// Keeps what a sandbox sends from acting beyond its origin.
fn guard(headers: &mut HeaderMap) {
    headers.append(CONTENT_SECURITY_POLICY, FRAMES);
    let own = HeaderName::from_static("cross-origin-resource-policy");
    headers.insert(own, HeaderValue::from_static("same-origin"));
    // Otherwise pages may agree to be of the domain that they share.
    let cluster = HeaderName::from_static("origin-agent-cluster");
    headers.insert(cluster, HeaderValue::from_static("?1"));
}

/// Lets the pages of an origin name themselves to it, which [`is_foreign`] needs where browsers say nothing
/// else. No other origin learns of it.
fn keep_referer(headers: &mut HeaderMap) {
    let hides = |policy: &HeaderValue| {
        let mut tokens = policy.as_bytes().split(|byte| *byte == b',');
        tokens.any(|token| token.trim_ascii().eq_ignore_ascii_case(b"no-referrer"))
    };
    if headers.get_all(REFERRER_POLICY).iter().any(hides) {
        headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    }
}

/// A refusal that people read.
fn refuse(status: StatusCode, why: &str) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (CACHE_CONTROL, "no-store"),
        (
            CONTENT_SECURITY_POLICY,
            "default-src 'none'; frame-ancestors 'none'",
        ),
    ];
    (status, headers, format!("{why}\n")).into_response()
}
