//! Requests of the API that the sidecar of a sandbox answers, which enforces its network policy
//! (contract: lifecycle §A4). They take the way of proxied requests, except that this server adds the
//! sidecar's token: who may change the policy is decided here.

use axum::{extract::Request, response::Response};
use http::{HeaderValue, Version, uri::PathAndQuery};
use osb_forward::{Forwarded, HeaderRules, Lease, Peer};
use osb_protocol::SandboxId;
use secrecy::ExposeSecret;

use super::{
    super::{
        AppState,
        caller::Caller,
        client,
        error::ApiError,
        gate::Visitor,
        overload::{self, Kind},
        stall::unless_stalled,
    },
    ACCESS_RENEW, DROPPED_WITH_TOKEN, EGRESS_TOKEN, EXECD_TOKEN, IDLE, SKIP, answers, destination,
    failed, has_secure_access, no_secure_access,
    silence::Held,
};
use crate::{sandbox::AccessSource, trace};

/// What the sidecar's API has.
#[derive(Clone, Copy, Debug)]
pub(in super::super) enum SidecarPath {
    /// The policy (contract: egress §5).
    Policy,
    /// What was decided: an addition to the contract.
    Decisions,
}

impl SidecarPath {
    const fn text(self) -> &'static str {
        match self {
            Self::Policy => "/policy",
            Self::Decisions => "/decisions",
        }
    }
}

/// Sends a request to the sidecar of a sandbox, with the request's method, query and body.
///
/// # Errors
/// When there is no such sandbox, it has no policy or does not run, or its sidecar does not answer.
pub(in super::super) async fn to_sidecar(
    app: &AppState,
    caller: &Caller,
    id: &SandboxId,
    path: SidecarPath,
    mut request: Request,
) -> Result<Response, ApiError> {
    let version = request.version();
    let (to, rules) = pass_on(app, caller, id, path, &mut request)?;
    let forwarded = app.forwarder.forward(request, to, &rules).await;
    let mut response = forwarded.map_err(failed)?;
    // If the sidecar is gone, a program of the sandbox can take its port.
    answers::guard(response.headers_mut());
    Ok(match version {
        Version::HTTP_2 => response.map(|body| unless_stalled(body, IDLE, &app.tasks)),
        _ => response,
    })
}

/// Where a request goes, and how its headers change. It gets room until its exchange is over.
fn pass_on(
    app: &AppState,
    Caller { service, principal }: &Caller,
    id: &SandboxId,
    path: SidecarPath,
    request: &mut Request,
) -> Result<(osb_forward::Target, HeaderRules), ApiError> {
    let target = service.sidecar(id)?;
    if !has_secure_access(&target.record, request.headers()) {
        return Err(no_secure_access().error);
    }
    let path = match request.uri().query() {
        Some(query) => format!("{}?{query}", path.text()),
        None => path.text().to_owned(),
    };
    let path = PathAndQuery::try_from(path).expect("a path and a valid query are valid");
    let to = destination(&target, path)?;
    let visitor = Visitor {
        client: None,
        sandbox: Some(id.clone()),
        connection: overload::busy(request, true),
    };
    let permit = app.room.enter(Kind::ProxyKeyed, visitor)?;
    if request
        .headers()
        .get(ACCESS_RENEW)
        .is_none_or(|it| it != SKIP)
    {
        service.note_access(&target.record, AccessSource::ServerProxy);
    }
    let lease = Lease::with_silence(Held::new(permit, app.unscoped.clone()));
    let lease = lease.until(principal.validity.ended().clone());
    request.extensions_mut().insert(lease);
    trace::pass_on(request.headers_mut());
    let client = client::take(request.extensions_mut());
    let mut dropped = DROPPED_WITH_TOKEN.to_vec();
    dropped.push(EGRESS_TOKEN);
    let mut rules = HeaderRules {
        drop_request: dropped.into(),
        drop_response: (&answers::DROPPED[..]).into(),
        forwarded: Forwarded::Rebuild(Peer {
            address: client.address,
            scheme: client.scheme,
        }),
        ..HeaderRules::default()
    };
    let origin = &target.record.facts.origin;
    for (name, token) in [
        (EGRESS_TOKEN, origin.egress_token.as_ref()),
        // The way may lead through execd.
        (EXECD_TOKEN, target.execd_token()),
    ] {
        let value = token.map(|token| HeaderValue::from_str(token.expose_secret()));
        if let Some(Ok(mut value)) = value {
            value.set_sensitive(true);
            rules.set_request.insert(name, value);
        }
    }
    Ok((to, rules))
}
