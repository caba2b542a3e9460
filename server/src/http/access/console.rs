//! Routes of the console: pages, forms, files and WebSockets.

use http::Method;
use osb_protocol::identity::Role::{Operator, ReadOnly, ServiceAdmin};

use super::rule::{
    Effect::{Acts, Reads},
    Route,
};
use crate::audit::Action;

/// Pages. What they show comes through the principal's scope.
pub(super) const PAGES: &[Route] = &[
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
        "/console/sandboxes/{id}/network",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/create",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::SandboxCreate)),
        ],
    ),
    ("/console/snapshots", &[(Method::GET, ReadOnly, Reads)]),
    ("/console/snapshots/{id}", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/pools",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::PoolCreate)),
        ],
    ),
    ("/console/pools/{id}", &[(Method::GET, ReadOnly, Reads)]),
    (
        "/console/templates",
        &[
            (Method::GET, ReadOnly, Reads),
            (Method::POST, Operator, Acts(Action::TemplateCreate)),
        ],
    ),
    ("/console/templates/{id}", &[(Method::GET, ReadOnly, Reads)]),
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
    (
        "/console/sandboxes/{id}/preview",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/console/sandboxes/{id}/files",
        &[(Method::GET, ReadOnly, Reads)],
    ),
];

/// Forms for browsers without script.
pub(super) const FORMS: &[Route] = &[
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
        "/console/sandboxes/{id}/snapshot",
        &[(Method::POST, Operator, Acts(Action::SnapshotCreate))],
    ),
    (
        "/console/snapshots/{id}/delete",
        &[
            (Method::GET, Operator, Reads),
            (Method::POST, Operator, Acts(Action::SnapshotDelete)),
        ],
    ),
    (
        "/console/pools/{id}/capacity",
        &[(Method::POST, Operator, Acts(Action::PoolUpdate))],
    ),
    (
        "/console/pools/{id}/delete",
        &[
            (Method::GET, Operator, Reads),
            (Method::POST, Operator, Acts(Action::PoolDelete)),
        ],
    ),
    (
        "/console/templates/{id}/delete",
        &[
            (Method::GET, Operator, Reads),
            (Method::POST, Operator, Acts(Action::TemplateDelete)),
        ],
    ),
    (
        "/console/sandboxes/{id}/labels",
        &[(Method::POST, Operator, Acts(Action::MetadataPatch))],
    ),
    (
        "/console/sandboxes/{id}/network/add",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyPatch))],
    ),
    (
        "/console/sandboxes/{id}/network/remove",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyDelete))],
    ),
    (
        "/console/sandboxes/{id}/network/move",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyReplace))],
    ),
    (
        "/console/sandboxes/{id}/network/default",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyReplace))],
    ),
    (
        "/console/sandboxes/{id}/network/put",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyReplace))],
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
];

/// Content of files.
pub(super) const FILES: &[Route] = &[
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
];

/// WebSockets, and ways to a port.
pub(super) const SOCKETS: &[Route] = &[
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
    (
        "/console/output/{sandbox}",
        &[(Method::GET, Operator, Reads)],
    ),
];
