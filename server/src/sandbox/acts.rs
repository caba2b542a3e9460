//! What the audit trail learns of the domain: the object of an act, what it changed, and what the
//! server does by itself. Never the environment, the entry point or the credentials of an image.

use std::collections::BTreeMap;

use osb_protocol::{SandboxId, WireTime, audit::AuditOutcome};
use osb_runtime::{CreateSpec, Expiry};
use serde_json::json;
use sha2::{Digest, Sha256};

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

    /// Notes the id of the sandbox that the act is about, before anything may refuse it. Whose sandbox
    /// it is follows with [`Self::note_sandbox`], once the caller may know that.
    pub(super) fn note_sandbox_id(&self, id: &SandboxId) {
        if let Some(act) = &self.act {
            act.set_object(id.as_str());
        }
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
        if let Some(pool) = &origin.pool {
            act.note("pool", json!(pool.as_ref()));
        }
        if let Expiry::At(at) = origin.expiry {
            act.note("expiresAt", json!(at));
        }
        if !origin.metadata.is_empty() {
            act.note("metadata", json!(origin.metadata));
        }
        if !origin.volumes.is_empty() {
            act.note("volumes", json!(origin.volumes));
        }
    }

    /// Notes what a create took over. Of variables only the names.
    pub(super) fn note_copy(&self, of: &SandboxId, variables: &[String]) {
        let Some(act) = &self.act else {
            return;
        };
        act.note("copyOf", json!(of));
        if !variables.is_empty() {
            act.note("variablesOfCopy", json!(variables));
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

    /// Notes that a create made nothing: its `Idempotency-Key` has this sandbox.
    pub(super) fn note_replay(&self, id: &SandboxId) {
        self.note_sandbox(id);
        if let Some(act) = &self.act {
            act.note("replayed", json!(true));
        }
    }

    /// Records what the server does to a sandbox by itself.
    pub(super) fn record_own(&self, action: Action, record: &Record) {
        let origin = &record.facts.origin;
        let mut entry = audit::entry(action, audit::system(), AuditOutcome::Succeeded);
        entry.id = own_id(action, &origin.id, record.facts.expires_at());
        entry.object.id = audit::bounded(origin.id.as_str());
        entry.tenant = origin.tenant.as_deref().map(audit::bounded);
        if let Some(at) = record.facts.expires_at() {
            entry.changes.insert("expiresAt".to_owned(), json!(at));
        }
        self.inner.trail.record(entry);
    }
}

/// Id of the entry for what the server does to a sandbox by itself: the same whenever it is done. A
/// server that stops before the sandbox is gone does it again after its next start, and the store
/// keeps the first of entries with one id.
fn own_id(action: Action, sandbox: &SandboxId, expires_at: Option<WireTime>) -> String {
    let deadline = expires_at.map_or(0, WireTime::unix_us);
    let digest = Sha256::new()
        .chain_update(action.name())
        .chain_update([0])
        .chain_update(deadline.to_be_bytes())
        .chain_update(sandbox.as_str())
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes)
        .into_uuid()
        .to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_of_the_server_have_one_id_for_each_sandbox_action_and_deadline() {
        let at = |us| WireTime::from_unix_us(us).unwrap();
        let mut ids = HashSet::new();
        for action in [Action::SandboxExpire, Action::SandboxAbandon] {
            for sandbox in ["a", "b"] {
                for deadline in [None, Some(at(1)), Some(at(2))] {
                    let id = || own_id(action, &SandboxId::from(sandbox), deadline);
                    assert_eq!(id(), id());
                    assert!(uuid::Uuid::parse_str(&id()).is_ok(), "{}", id());
                    assert!(ids.insert(id()), "{action:?} {sandbox} {deadline:?}");
                }
            }
        }
    }
}
