//! What the audit trail learns of the domain: the object of an act, what it changed, and what the
//! server does by itself. Never the environment, the entry point or the credentials of an image.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, WireTime, audit::AuditOutcome};
use osb_runtime::{CreateSpec, Expiry};
use serde_json::json;

use super::{Facts, Record, Service};
use crate::audit::{self, Act, Action, AuditTrail};

impl Service {
    /// The same domain, which notes for an act what it does.
    #[must_use]
    pub fn noting(self, act: Option<Act>) -> Self {
        Self { act, ..self }
    }

    /// The audit trail.
    #[must_use]
    pub fn audit_trail(&self) -> &AuditTrail {
        &self.inner.trail
    }

    /// Notes the sandbox that the act is about.
    pub(super) fn note_sandbox(&self, id: &SandboxId) {
        let Some(act) = &self.act else {
            return;
        };
        act.set_object(id.as_str());
        if let Some(record) = self.inner.registry.get(id) {
            act.set_tenant(record.facts.origin.tenant.as_deref());
        }
    }

    /// Notes the sandbox that is about to be created.
    pub(super) fn note_create(&self, spec: &CreateSpec) {
        let Some(act) = &self.act else {
            return;
        };
        let origin = &spec.origin;
        act.set_object(origin.id.as_str());
        act.set_tenant(origin.tenant.as_deref());
        act.note("image", json!(origin.source.to_string()));
        act.note("resources", json!(origin.resources));
        if let Expiry::At(at) = origin.expiry {
            act.note("expiresAt", json!(at));
        }
        if !origin.metadata.is_empty() {
            act.note("metadata", json!(origin.metadata));
        }
    }

    /// Notes a renewal that is stored.
    pub(super) fn note_renewal(&self, before: &Facts, after: WireTime) {
        if let Some(act) = &self.act {
            let change = audit::change(json!(before.expires_at()), json!(after));
            act.note("expiresAt", change);
        }
    }

    /// Notes a change of metadata.
    pub(super) fn note_patch(
        &self,
        before: &BTreeMap<String, String>,
        patch: &BTreeMap<String, Option<String>>,
    ) {
        let Some(act) = &self.act else {
            return;
        };
        for (key, after) in patch {
            let change = audit::change(json!(before.get(key)), json!(after));
            act.note(&format!("metadata.{key}"), change);
        }
    }

    /// Records what the server does to a sandbox by itself.
    pub(super) fn record_own(&self, action: Action, record: &Record) {
        let origin = &record.facts.origin;
        let mut entry = audit::entry(action, audit::system(), AuditOutcome::Succeeded);
        entry.object.id = audit::bounded(origin.id.as_str());
        entry.tenant = origin.tenant.as_deref().map(audit::bounded);
        if let Some(at) = record.facts.expires_at() {
            entry.changes.insert("expiresAt".to_owned(), json!(at));
        }
        self.inner.trail.record(entry);
    }
}
