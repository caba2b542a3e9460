//! Ways into a sandbox for the audit trail: tunnels that are opened, and uses of its execd. What goes
//! through a tunnel and which commands are run is not recorded.

use std::{net::IpAddr, sync::Arc};

use http::{
    Method, Request, StatusCode,
    header::{CONNECTION, UPGRADE},
};
use osb_protocol::{
    SandboxId,
    audit::{AuditActor, AuditOutcome},
};
use osb_runtime::EXECD_PORT;

use super::super::{AppState, audited::denial, auth::Verdict, client, request_id::RequestId};
use crate::{
    audit::{self, ActOrigin, Action},
    identity::Principal,
};

/// A request that may be recorded. Costs little to make: almost none is.
pub(super) struct WayIn {
    /// `None` for a request that only reads.
    action: Option<Action>,
    /// The status with which a tunnel is opened.
    opens_with: StatusCode,
    principal: Option<Arc<Principal>>,
    address: IpAddr,
    request_id: Option<RequestId>,
    id: SandboxId,
    port: u16,
}

impl WayIn {
    /// Looks at a request before it is forwarded.
    pub(super) fn of<B>(
        request: &Request<B>,
        verdict: &Verdict,
        (id, port): (&SandboxId, u16),
    ) -> Self {
        let headers = request.headers();
        let reads = [Method::GET, Method::HEAD, Method::OPTIONS];
        let upgrades = headers.contains_key(UPGRADE) && headers.contains_key(CONNECTION);
        let connects = *request.method() == Method::CONNECT;
        let action = if upgrades || connects {
            Some(Action::TunnelOpen)
        } else if port == EXECD_PORT && !reads.contains(request.method()) {
            Some(Action::SandboxEnter)
        } else {
            None
        };
        let extensions = request.extensions();
        Self {
            action,
            opens_with: match connects {
                true => StatusCode::OK,
                false => StatusCode::SWITCHING_PROTOCOLS,
            },
            principal: verdict.as_ref().ok().cloned(),
            address: client::of(extensions).address,
            request_id: extensions.get().cloned(),
            id: id.clone(),
            port,
        }
    }

    /// Records a request that was forwarded, if it is a way in.
    pub(super) fn record(self, app: &AppState, status: StatusCode) {
        let Some(action) = self.action else {
            return;
        };
        if action == Action::TunnelOpen && status != self.opens_with {
            return;
        }
        let outcome = AuditOutcome::of_status(status.as_u16());
        let mut entry = audit::entry(action, self.actor(), outcome);
        entry.status = Some(status.as_u16());
        self.origin().write(&mut entry);
        let record = app.unscoped.find(&self.id);
        let tenant = record.and_then(|record| record.facts.origin.tenant.clone());
        entry.tenant = tenant.as_deref().map(audit::bounded);
        entry.object.id = audit::bounded(self.id.as_str());
        entry.changes.insert("port".to_owned(), self.port.into());
        let trail = app.unscoped.audit_trail();
        match action {
            // Without a key it costs a client nothing to open one after another.
            Action::TunnelOpen if self.principal.is_some() => trail.record(entry),
            _ => trail.record_use(entry),
        }
    }

    /// Records a request that was refused, if it lacked a key or a token.
    pub(super) fn deny(self, app: &AppState, status: StatusCode, code: &str) {
        if status == StatusCode::UNAUTHORIZED {
            let denied = Action::AccessDenied;
            let mut entry = denial(denied, self.actor(), &self.origin(), status, code);
            let route = format!("/sandboxes/{}/proxy/{}", self.id, self.port);
            entry.changes.insert("route".to_owned(), route.into());
            app.unscoped.audit_trail().record_denial(entry);
        }
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
