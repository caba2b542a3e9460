//! Ways into a sandbox for the audit trail: tunnels that are opened, and uses of its execd. What goes
//! through a tunnel and which commands are run is not recorded.

use std::{net::IpAddr, sync::Arc};

use http::{
    Method, Request, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use osb_protocol::{
    SandboxId,
    audit::{AuditActor, AuditEntry, AuditOutcome},
};
use osb_runtime::{EGRESS_PORT, EXECD_PORT};

use super::super::{audited::denial, auth::Verdict, client, request_id::RequestId};
use crate::{
    audit::{self, ActOrigin, Action, AuditTrail},
    identity::Principal,
    sandbox::Record,
};

/// A request that may be recorded. Costs little to make: almost none is.
pub(super) struct WayIn<'a> {
    trail: &'a AuditTrail,
    /// The status that opens a tunnel, for a request that asks for one. With any other it is a request
    /// like those that do not.
    opens_with: Option<StatusCode>,
    /// Whether it uses execd, other than by reading or through a tunnel.
    enters: bool,
    /// What it does to the network policy, if it goes to the sidecar.
    changes_policy: Option<Action>,
    principal: Option<Arc<Principal>>,
    address: IpAddr,
    request_id: Option<RequestId>,
    id: SandboxId,
    port: u16,
    /// Whose the sandbox is.
    tenant: Option<Arc<str>>,
}

impl<'a> WayIn<'a> {
    /// Looks at a request before it is forwarded.
    pub(super) fn of<B>(
        trail: &'a AuditTrail,
        request: &Request<B>,
        verdict: &Verdict,
        (id, port): (&SandboxId, u16),
        record: Option<&Record>,
    ) -> Self {
        let headers = request.headers();
        let no_use = [Method::GET, Method::HEAD, Method::OPTIONS, Method::CONNECT];
        let upgrades = headers.contains_key(UPGRADE) && headers.contains_key(CONNECTION);
        let connects = *request.method() == Method::CONNECT;
        let extensions = request.extensions();
        Self {
            trail,
            opens_with: match connects {
                true => Some(StatusCode::OK),
                false => upgrades.then_some(StatusCode::SWITCHING_PROTOCOLS),
            },
            enters: port == EXECD_PORT && !no_use.contains(request.method()),
            changes_policy: change_of_policy(request.method()).filter(|_| {
                let has_sidecar = record.is_some_and(|it| it.facts.origin.egress_token.is_some());
                port == EGRESS_PORT && has_sidecar
            }),
            principal: verdict.as_ref().ok().cloned(),
            address: client::of(extensions).address,
            request_id: extensions.get().cloned(),
            id: id.clone(),
            port,
            tenant: record.and_then(|record| record.facts.origin.tenant.clone()),
        }
    }

    /// The request while it is forwarded.
    pub(super) fn forwarding(self) -> Forwarding<'a> {
        Forwarding(Some(self))
    }

    /// Records a request that is refused because it lacks a key or a token.
    pub(super) fn deny(self, status: StatusCode, code: &str) {
        let action = match (self.enters, self.opens_with) {
            (true, _) => Action::SandboxEnter,
            (false, Some(_)) => Action::TunnelOpen,
            (false, None) => Action::AccessDenied,
        };
        let mut entry = denial(action, self.actor(), &self.origin(), status, code);
        if action == Action::AccessDenied {
            Action::SandboxEnter
                .object()
                .clone_into(&mut entry.object.kind);
        }
        self.write_object(&mut entry);
        self.trail.record_denial(entry);
    }

    /// Records what became of a request that was forwarded, if it is a way in.
    fn record(&self, status: Option<StatusCode>, code: Option<&str>) {
        let opens = status.is_some() && status == self.opens_with;
        let action = match (opens, self.enters, self.changes_policy) {
            (true, ..) => Action::TunnelOpen,
            (false, true, _) => Action::SandboxEnter,
            (false, false, Some(change)) => change,
            (false, false, None) => return,
        };
        let outcome = status.map_or(AuditOutcome::Failed, |status| {
            AuditOutcome::of_status(status.as_u16())
        });
        let mut entry = audit::entry(action, self.actor(), outcome);
        entry.status = status.map(|status| status.as_u16());
        entry.code = code.map(str::to_owned);
        self.origin().write(&mut entry);
        self.write_object(&mut entry);
        match action {
            Action::SandboxEnter => self.trail.record_use(entry),
            // Without a key it costs a client nothing to open one after another.
            _ if self.principal.is_some() => self.trail.record(entry),
            _ => self.trail.record_use(entry),
        }
    }

    fn write_object(&self, entry: &mut AuditEntry) {
        entry.tenant = self.tenant.as_deref().map(audit::bounded);
        entry.object.id = audit::bounded(self.id.as_str());
        entry.changes.insert("port".to_owned(), self.port.into());
    }

    fn actor(&self) -> AuditActor {
        let principal = self.principal.as_deref();
        principal.map_or_else(|| audit::unknown(""), audit::actor)
    }

    fn origin(&self) -> ActOrigin {
        ActOrigin {
            address: Some(self.address),
            request_id: self.request_id.as_ref().map(RequestId::text),
        }
    }
}

/// What a request to a sidecar does to the policy.
fn change_of_policy(method: &Method) -> Option<Action> {
    match *method {
        Method::POST | Method::PUT => Some(Action::NetworkPolicyReplace),
        Method::PATCH => Some(Action::NetworkPolicyPatch),
        Method::DELETE => Some(Action::NetworkPolicyDelete),
        _ => None,
    }
}

/// A request that is forwarded. It is recorded with its answer or, when it is dropped before, as
/// unanswered: execd may do what it asks for all the same.
pub(super) struct Forwarding<'a>(Option<WayIn<'a>>);

impl Forwarding<'_> {
    /// Ends with the status of the answer, and with the code if the answer is this server's own.
    pub(super) fn answered(mut self, status: StatusCode, code: Option<&str>) {
        if let Some(way_in) = self.0.take() {
            way_in.record(Some(status), code);
        }
    }
}

impl Drop for Forwarding<'_> {
    fn drop(&mut self) {
        if let Some(way_in) = self.0.take() {
            way_in.record(None, Some(audit::UNANSWERED));
        }
    }
}
