//! Server functions of the console's pages.

use http::Method;
use osb_protocol::identity::Role::{Operator, ReadOnly, ServiceAdmin};

use super::rule::{
    Effect::{Acts, Reads},
    Route,
};
use crate::audit::Action;

/// Every server function.
pub(super) const ROUTES: &[Route] = &[
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
        "/console/fn/sandboxes/health",
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
    (
        "/console/fn/network/read",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/network/propose",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/network/add",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyPatch))],
    ),
    (
        "/console/fn/network/remove",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyDelete))],
    ),
    (
        "/console/fn/network/replace",
        &[(Method::POST, Operator, Acts(Action::NetworkPolicyReplace))],
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
        "/console/fn/preview/ports",
        &[(Method::POST, Operator, Reads)],
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
        "/console/fn/sandboxes/labels",
        &[(Method::POST, Operator, Acts(Action::MetadataPatch))],
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
        "/console/fn/snapshots/list",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/snapshots/get",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/snapshots/offered",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/snapshots/take",
        &[(Method::POST, Operator, Acts(Action::SnapshotCreate))],
    ),
    (
        "/console/fn/snapshots/delete",
        &[(Method::POST, Operator, Acts(Action::SnapshotDelete))],
    ),
    ("/console/fn/pools/list", &[(Method::POST, ReadOnly, Reads)]),
    ("/console/fn/pools/get", &[(Method::POST, ReadOnly, Reads)]),
    (
        "/console/fn/pools/create",
        &[(Method::POST, Operator, Acts(Action::PoolCreate))],
    ),
    (
        "/console/fn/pools/resize",
        &[(Method::POST, Operator, Acts(Action::PoolUpdate))],
    ),
    (
        "/console/fn/pools/delete",
        &[(Method::POST, Operator, Acts(Action::PoolDelete))],
    ),
    (
        "/console/fn/templates/list",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/templates/get",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/templates/offered",
        &[(Method::POST, ReadOnly, Reads)],
    ),
    (
        "/console/fn/templates/create",
        &[(Method::POST, Operator, Acts(Action::TemplateCreate))],
    ),
    (
        "/console/fn/templates/delete",
        &[(Method::POST, Operator, Acts(Action::TemplateDelete))],
    ),
    (
        "/console/fn/terminal/end",
        &[(Method::POST, Operator, Acts(Action::TerminalEnd))],
    ),
];
