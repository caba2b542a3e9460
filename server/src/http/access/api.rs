//! Routes of the REST API, without `/v1`.

use http::Method;
use osb_protocol::identity::Role::{Operator, ReadOnly, ServiceAdmin};

use super::rule::{
    Effect::{Acts, Reads},
    Route,
};
use crate::audit::Action;

/// Every route of the API behind authentication.
pub(super) const ROUTES: &[Route] = &[
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
    ("/templates/{id}/log", &[(Method::GET, ReadOnly, Reads)]),
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
        "/sandboxes/{id}/networkpolicy/decisions",
        &[(Method::GET, ReadOnly, Reads)],
    ),
    (
        "/sandboxes/{id}/networkpolicy/proposal",
        &[(Method::GET, ReadOnly, Reads)],
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
];
