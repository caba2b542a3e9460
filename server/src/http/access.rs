//! The least role of each route, REST and console alike (contract: clients §5), and what the audit
//! trail calls it. One table; a route that is not in it is for service administrators only, and a test
//! finds it.

use std::{collections::HashMap, sync::LazyLock};

use axum::{
    extract::{MatchedPath, Request},
    response::{IntoResponse, Response},
};
use http::{Method, StatusCode};
use osb_protocol::{
    error::code,
    identity::Role::{self, Operator, ReadOnly, ServiceAdmin},
};

use self::Effect::{Acts, Reads};
use super::{error::ApiError, extract};
use crate::{audit::Action, identity::Principal};

/// Methods, the role that they need, and what they do.
type Rules = &'static [(Method, Role, Effect)];

/// What a request does, as far as the audit trail is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// It changes nothing, so it is not recorded.
    Reads,
    /// It is recorded by this name.
    Acts(Action),
}

/// Every route behind authentication. Those of the API are without `/v1`.
const TABLE: &[(&str, Rules)] = &[
    (
        "/sandboxes",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::SandboxCreate)),
        ],
    ),
    (
        "/sandboxes/{id}",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::DELETE, Operator, Acts(Action::SandboxDelete)),
        ],
    ),
    (
        "/sandboxes/{id}/metadata",
        &[(Method::PATCH, Operator, Acts(Action::MetadataPatch))],
    ),
    (
        "/sandboxes/{id}/renew-expiration",
        &[(Method::POST, Operator, Acts(Action::SandboxRenew))],
    ),
    (
        "/sandboxes/{id}/pause",
        &[(Method::POST, Operator, Acts(Action::SandboxPause))],
    ),
    (
        "/sandboxes/{id}/resume",
        &[(Method::POST, Operator, Acts(Action::SandboxResume))],
    ),
    // Without the headers that open execd, see `lifecycle::endpoints`.
    (
        "/sandboxes/{id}/endpoints/{port}",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/snapshots",
        &[(Method::POST, Operator, Acts(Action::SnapshotCreate))],
    ),
    ("/snapshots", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/snapshots/{id}",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::DELETE, Operator, Acts(Action::SnapshotDelete)),
        ],
    ),
    (
        "/pools",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::PoolCreate)),
        ],
    ),
    (
        "/pools/{name}",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::PUT, Operator, Acts(Action::PoolUpdate)),
            (Method::DELETE, Operator, Acts(Action::PoolDelete)),
        ],
    ),
    (
        "/templates",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::TemplateCreate)),
        ],
    ),
    (
        "/templates/{id}",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::DELETE, Operator, Acts(Action::TemplateDelete)),
        ],
    ),
    (
        "/sandboxes/{id}/networkpolicy",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::PUT, Operator, Acts(Action::NetworkPolicyReplace)),
            (Method::PATCH, Operator, Acts(Action::NetworkPolicyPatch)),
            (Method::DELETE, Operator, Acts(Action::NetworkPolicyDelete)),
        ],
    ),
    (
        "/sandboxes/{id}/diagnostics/logs",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/diagnostics/events",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/diagnostics/inspect",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/diagnostics/summary",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/commands",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    ("/sandboxes/{id}/metrics", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/sandboxes/{id}/metrics/watch",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    ("/metrics/events", &[(Method::POST, ReadOnly, Reads)]),
    ("/metrics", &[(Method::GET, ReadOnly, Reads)]),
    ("/whoami", &[(Method::GET, ReadOnly, Reads)]),
    // A caller gets its own; administrators get all.
    ("/quotas", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/users",
        &[
            (Method::GET, ServiceAdmin, Reads),
            (Method::POST, ServiceAdmin, Acts(Action::UserCreate)),
        ],
    ),
    (
        "/users/{id}",
        &[
            (Method::PATCH, ServiceAdmin, Acts(Action::UserUpdate)),
            (Method::DELETE, ServiceAdmin, Acts(Action::UserDelete)),
        ],
    ),
    (
        "/api-keys",
        &[
            (Method::GET, ServiceAdmin, Reads),
            (Method::POST, ServiceAdmin, Acts(Action::KeyCreate)),
        ],
    ),
    (
        "/api-keys/{id}",
        &[(Method::DELETE, ServiceAdmin, Acts(Action::KeyRevoke))],
    ),
    ("/audit", &[(Method::GET, ServiceAdmin, Reads)]),
    ("/sessions", &[(Method::GET, ServiceAdmin, Reads)]),
    (
        "/sessions/{id}",
        &[(Method::DELETE, ServiceAdmin, Acts(Action::SessionRevoke))],
    ),
    (
        "/webhooks",
        &[
            (Method::GET, ServiceAdmin, Reads),
            (Method::POST, ServiceAdmin, Acts(Action::WebhookCreate)),
        ],
    ),
    (
        "/webhooks/{id}",
        &[
            (Method::GET, ServiceAdmin, Reads),
            (Method::DELETE, ServiceAdmin, Acts(Action::WebhookDelete)),
        ],
    ),
    (
        "/webhooks/{id}/enable",
        &[(Method::POST, ServiceAdmin, Acts(Action::WebhookEnable))],
    ),
    (
        "/webhooks/{id}/test",
        &[(Method::POST, ServiceAdmin, Acts(Action::WebhookTest))],
    ),
    (
        "/webhooks/{id}/deliveries",
        &[(Method::GET, ServiceAdmin, Reads)],
    ),
    (
        "/webhooks/{id}/deliveries/{delivery}/redeliver",
        &[(Method::POST, ServiceAdmin, Acts(Action::WebhookRedeliver))],
    ),
    // Pages. What they show comes through the principal's scope.
    ("/console", &[(Method::GET, ReadOnly, Reads)]),
    ("/console/sandboxes", &[(Method::GET, ReadOnly, Reads)]),
    ("/console/design", &[(Method::GET, ReadOnly, Reads)]),
    ("/console/sandboxes/{id}", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/sandboxes/{id}/terminal",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/logs",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/logs/download",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/metrics",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/diagnostics",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/diagnostics/download",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/run",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/create",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::SandboxCreate)),
        ],
    ),
    (
        "/console/access",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, ServiceAdmin, Acts(Action::KeyCreate)),
        ],
    ),
    ("/console/events", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/events/download",
        &[(Method::GET, ServiceAdmin, Reads)],
    ),
    ("/console/settings", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/settings/bundle",
        &[(Method::GET, ServiceAdmin, Reads)],
    ),
    ("/console/{*rest}", &[(Method::GET, ReadOnly, Reads)]),
    // Forms.
    (
        "/console/test",
        &[(Method::POST, Operator, Acts(Action::SandboxCreate))],
    ),
    (
        "/console/access/keys/{id}/revoke",
        &[(Method::POST, ServiceAdmin, Acts(Action::KeyRevoke))],
    ),
    (
        "/console/access/users",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserCreate))],
    ),
    (
        "/console/access/users/{id}/change",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserUpdate))],
    ),
    (
        "/console/access/users/{id}/password",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserUpdate))],
    ),
    (
        "/console/access/users/{id}/delete",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserDelete))],
    ),
    // Of others for service administrators only.
    (
        "/console/access/sessions/{id}/end",
        &[(Method::POST, ReadOnly, Acts(Action::SessionRevoke))],
    ),
    (
        "/console/sandboxes/{id}/renew",
        &[(Method::POST, Operator, Acts(Action::SandboxRenew))],
    ),
    (
        "/console/sandboxes/{id}/pause",
        &[(Method::POST, Operator, Acts(Action::SandboxPause))],
    ),
    (
        "/console/sandboxes/{id}/resume",
        &[(Method::POST, Operator, Acts(Action::SandboxResume))],
    ),
    (
        "/console/sandboxes/{id}/delete",
        &[
            (Method::GET, Operator, Reads),
            (Method::POST, Operator, Acts(Action::SandboxDelete)),
        ],
    ),
    (
        "/console/sandboxes/bulk/extend",
        &[(Method::POST, Operator, Acts(Action::SandboxRenew))],
    ),
    (
        "/console/sandboxes/bulk/pause",
        &[(Method::POST, Operator, Acts(Action::SandboxPause))],
    ),
    (
        "/console/sandboxes/bulk/resume",
        &[(Method::POST, Operator, Acts(Action::SandboxResume))],
    ),
    (
        "/console/sandboxes/bulk/delete",
        &[(Method::POST, Operator, Acts(Action::SandboxDelete))],
    ),
    // Asks first.
    (
        "/console/sandboxes/bulk/confirm-delete",
        &[(Method::POST, Operator, Reads)],
    ),
    // Server functions.
    ("/console/fn/access/get", &[(Method::POST, ReadOnly, Reads)]),
    (
        "/console/fn/access/add-user",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserCreate))],
    ),
    (
        "/console/fn/access/change-user",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserUpdate))],
    ),
    (
        "/console/fn/access/set-password",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserUpdate))],
    ),
    (
        "/console/fn/access/delete-user",
        &[(Method::POST, ServiceAdmin, Acts(Action::UserDelete))],
    ),
    (
        "/console/fn/access/add-key",
        &[(Method::POST, ServiceAdmin, Acts(Action::KeyCreate))],
    ),
    (
        "/console/fn/access/revoke-key",
        &[(Method::POST, ServiceAdmin, Acts(Action::KeyRevoke))],
    ),
    (
        "/console/fn/access/end-session",
        &[(Method::POST, ReadOnly, Acts(Action::SessionRevoke))],
    ),
    ("/console/fn/events/get", &[(Method::POST, ReadOnly, Reads)]),
    (
        "/console/fn/settings/get",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/overview/get",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/overview/test",
        &[(Method::POST, Operator, Acts(Action::SandboxCreate))],
    ),
    (
        "/console/fn/sandboxes/list",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/get",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/port",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/log",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/metrics",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/diagnosis",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/commands",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/interrupt",
        &[(Method::POST, Operator, Acts(Action::CommandInterrupt))],
    ),
    ("/console/fn/files/open", &[(Method::POST, Operator, Reads)]),
    ("/console/fn/files/find", &[(Method::POST, Operator, Reads)]),
    (
        "/console/fn/files/taken",
        &[(Method::POST, Operator, Reads)],
    ),
    (
        "/console/fn/files/replace",
        &[(Method::POST, Operator, Acts(Action::FileWrite))],
    ),
    (
        "/console/fn/files/save",
        &[(Method::POST, Operator, Acts(Action::FileWrite))],
    ),
    (
        "/console/fn/files/make",
        &[(Method::POST, Operator, Acts(Action::FileWrite))],
    ),
    (
        "/console/fn/files/move",
        &[(Method::POST, Operator, Acts(Action::FileMove))],
    ),
    (
        "/console/fn/files/remove",
        &[(Method::POST, Operator, Acts(Action::FileRemove))],
    ),
    (
        "/console/fn/files/mode",
        &[(Method::POST, Operator, Acts(Action::FileMode))],
    ),
    (
        "/console/sandboxes/{id}/preview",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/fn/preview/ports",
        &[(Method::POST, Operator, Reads)],
    ),
    (
        "/console/sandboxes/{id}/files",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/files/download",
        &[(Method::GET, Operator, Acts(Action::FileRead))],
    ),
    (
        "/console/sandboxes/{id}/files/image",
        &[(Method::GET, Operator, Reads)],
    ),
    (
        "/console/sandboxes/{id}/files/upload",
        &[(Method::POST, Operator, Acts(Action::FileWrite))],
    ),
    (
        "/console/fn/sandboxes/check",
        &[(Method::POST, Operator, Reads)],
    ),
    (
        "/console/fn/sandboxes/images",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/sandboxes/original",
        &[(Method::POST, Operator, Reads)],
    ),
    (
        "/console/fn/sandboxes/create",
        &[(Method::POST, Operator, Acts(Action::SandboxCreate))],
    ),
    (
        "/console/fn/sandboxes/renew",
        &[(Method::POST, Operator, Acts(Action::SandboxRenew))],
    ),
    (
        "/console/fn/sandboxes/pause",
        &[(Method::POST, Operator, Acts(Action::SandboxPause))],
    ),
    (
        "/console/fn/sandboxes/resume",
        &[(Method::POST, Operator, Acts(Action::SandboxResume))],
    ),
    (
        "/console/fn/sandboxes/delete",
        &[(Method::POST, Operator, Acts(Action::SandboxDelete))],
    ),
    (
        "/console/fn/sandboxes/extend-all",
        &[(Method::POST, Operator, Acts(Action::SandboxRenew))],
    ),
    (
        "/console/fn/sandboxes/pause-all",
        &[(Method::POST, Operator, Acts(Action::SandboxPause))],
    ),
    (
        "/console/fn/sandboxes/resume-all",
        &[(Method::POST, Operator, Acts(Action::SandboxResume))],
    ),
    (
        "/console/fn/sandboxes/delete-all",
        &[(Method::POST, Operator, Acts(Action::SandboxDelete))],
    ),
    (
        "/console/fn/terminal/end",
        &[(Method::POST, Operator, Acts(Action::TerminalEnd))],
    ),
    // WebSockets.
    ("/console/live", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/terminal/{sandbox}",
        &[(Method::GET, Operator, Acts(Action::TerminalOpen))],
    ),
    (
        "/console/tunnel/{sandbox}/{port}",
        &[(Method::GET, Operator, Acts(Action::TunnelOpen))],
    ),
    (
        "/console/preview/{sandbox}/{port}",
        &[(Method::GET, Operator, Acts(Action::TunnelOpen))],
    ),
    (
        "/console/run/{sandbox}",
        &[(Method::GET, Operator, Acts(Action::CommandRun))],
    ),
];

/// Routes about the whole server, which a principal of one tenant may not call.
const SERVER_WIDE: [&str; 1] = ["/metrics"];

static BY_PATH: LazyLock<HashMap<&str, Rules>> = LazyLock::new(|| TABLE.iter().copied().collect());

/// The least role for a method of a route; `None` for one that the table does not have. `path` is the
/// route's pattern, such as `/v1/sandboxes/{id}`.
#[must_use]
pub fn least_role(method: &Method, path: &str) -> Option<Role> {
    rule(method, path).map(|(role, _)| role)
}

/// What a method of a route does; `None` for one that the table does not have.
#[must_use]
pub fn effect(method: &Method, path: &str) -> Option<Effect> {
    rule(method, path).map(|(_, effect)| effect)
}

fn rule(method: &Method, path: &str) -> Option<(Role, Effect)> {
    let bare = path
        .strip_prefix("/v1")
        .filter(|rest| rest.starts_with('/'));
    let rules = BY_PATH.get(bare.unwrap_or(path))?;
    let wanted = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let row = rules.iter().find(|(method, ..)| method == wanted);
    row.map(|(_, role, effect)| (*role, *effect))
}

/// The act that a request is, if it is one.
pub(super) fn action(request: &Request) -> Option<Action> {
    let path = request.extensions().get::<MatchedPath>()?;
    match effect(request.method(), path.as_str())? {
        Reads => None,
        Acts(action) => Some(action),
    }
}

/// Why a principal may not call a route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forbidden {
    /// What the principal may do.
    has: Role,
    /// What the route needs.
    needs: Role,
}

impl std::fmt::Display for Forbidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { has, needs } = self;
        write!(f, "the role {has} does not allow this: it needs {needs}")
    }
}

/// Whether a principal may call the route of a request. A request without a route is let through: its
/// answer shows nothing.
pub(super) fn check(principal: &Principal, request: &Request) -> Result<(), Forbidden> {
    if principal.role == ServiceAdmin {
        return Ok(());
    }
    let Some(path) = request.extensions().get::<MatchedPath>() else {
        return Ok(());
    };
    let needs = match principal.scope.tenant() {
        Some(_) if SERVER_WIDE.contains(&path.as_str()) => ServiceAdmin,
        _ => least_role(request.method(), path.as_str()).unwrap_or(ServiceAdmin),
    };
    if principal.role >= needs {
        return Ok(());
    }
    Err(Forbidden {
        has: principal.role,
        needs,
    })
}

impl Forbidden {
    /// The answer of the REST API, once the rest of the request is read.
    pub(super) async fn refuse(self, request: Request) -> Response {
        extract::drain(request.into_body()).await;
        ApiError::new(StatusCode::FORBIDDEN, code::FORBIDDEN, self.to_string()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A method that changes nothing by its definition is recorded only if it opens a way into a
    /// sandbox; every other one is, unless it is known to read.
    #[test]
    fn what_changes_state_has_a_name_in_the_trail() {
        const READS: [&str; 20] = [
            "/metrics/events",
            "/console/fn/settings/get",
            "/console/fn/events/get",
            "/console/fn/files/open",
            "/console/fn/files/find",
            "/console/fn/files/taken",
            "/console/fn/preview/ports",
            "/console/fn/access/get",
            "/console/sandboxes/bulk/confirm-delete",
            "/console/fn/overview/get",
            "/console/fn/sandboxes/list",
            "/console/fn/sandboxes/get",
            "/console/fn/sandboxes/port",
            "/console/fn/sandboxes/log",
            "/console/fn/sandboxes/metrics",
            "/console/fn/sandboxes/commands",
            "/console/fn/sandboxes/diagnosis",
            "/console/fn/sandboxes/check",
            "/console/fn/sandboxes/images",
            "/console/fn/sandboxes/original",
        ];
        for (path, rules) in TABLE {
            for (method, _, effect) in *rules {
                let may_read = method == Method::GET || READS.contains(path);
                let opens = [
                    "/console/terminal/{sandbox}",
                    "/console/tunnel/{sandbox}/{port}",
                    "/console/preview/{sandbox}/{port}",
                    "/console/run/{sandbox}",
                    "/console/sandboxes/{id}/files/download",
                ];
                let opens = opens.contains(path);
                assert_eq!(*effect == Reads, may_read && !opens, "{method} {path}");
            }
        }
    }

    #[test]
    fn the_table_is_read_with_and_without_the_prefix() {
        let (get, delete) = (Method::GET, Method::DELETE);
        for path in ["/sandboxes/{id}", "/v1/sandboxes/{id}"] {
            assert_eq!(least_role(&get, path), Some(ReadOnly));
            assert_eq!(least_role(&Method::HEAD, path), Some(ReadOnly));
            assert_eq!(least_role(&delete, path), Some(Operator));
            assert_eq!(least_role(&Method::PUT, path), None);
        }
        assert_eq!(least_role(&get, "/v1/users"), Some(ServiceAdmin));
        assert_eq!(least_role(&get, "/v1"), None);
        assert_eq!(least_role(&get, "/v1sandboxes"), None);
        assert_eq!(BY_PATH.len(), TABLE.len(), "a path is listed twice");
    }
}
