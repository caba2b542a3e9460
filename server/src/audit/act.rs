//! An act of a request, from its admission until its answer.

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use osb_protocol::{
    SandboxId,
    audit::{AuditActor, AuditEntry, AuditOutcome},
};
use serde_json::{Map, Value};

use super::{Action, AuditTrail, bounded, entry, now};

/// Largest sum of the changes of an entry, in bytes.
const CHANGES_MAX: usize = 2_048;
/// Code of an act whose client disconnected before the answer.
pub const UNANSWERED: &str = "UNANSWERED";

/// Where a request came from.
#[derive(Clone, Debug, Default)]
pub struct ActOrigin {
    /// Address of the client.
    pub address: Option<IpAddr>,
    /// Id of the request.
    pub request_id: Option<String>,
}

impl ActOrigin {
    /// Puts itself into an entry.
    pub fn write(&self, entry: &mut AuditEntry) {
        entry.address = self.address.map(|address| address.to_string());
        entry.request_id = self.request_id.as_deref().map(bounded);
    }
}

/// An act under way. Clones share it. It is recorded once: when it is finished, or else when the last
/// clone is dropped, because the client disconnected.
#[derive(Clone, Debug)]
pub struct Act(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    trail: AuditTrail,
    /// The entry so far; `None` once it is recorded.
    draft: Mutex<Option<AuditEntry>>,
    /// Whether what is behind the route has said how it ended.
    is_settled: AtomicBool,
    /// Whether it ends after the answer to its request.
    is_deferred: AtomicBool,
}

impl Act {
    /// Begins an act.
    #[must_use]
    pub fn begin(trail: &AuditTrail, action: Action, actor: AuditActor, from: &ActOrigin) -> Self {
        let mut draft = entry(action, actor, AuditOutcome::Failed);
        from.write(&mut draft);
        Self(Arc::new(Inner {
            trail: trail.clone(),
            draft: Mutex::new(Some(draft)),
            is_settled: AtomicBool::new(false),
            is_deferred: AtomicBool::new(false),
        }))
    }

    /// Names the object.
    pub fn set_object(&self, id: &str) {
        self.edit(|draft| draft.object.id = bounded(id));
    }

    /// Names the tenant whose object it is.
    pub fn set_tenant(&self, tenant: Option<&str>) {
        self.edit(|draft| draft.tenant = tenant.map(bounded));
    }

    /// Acts like this one on each of these objects; they replace it, so that it is not recorded itself.
    #[must_use]
    pub fn split(&self, ids: &[SandboxId]) -> Vec<Self> {
        let Some(draft) = self.0.locked().take() else {
            return Vec::new();
        };
        let part = |id: &SandboxId| {
            let mut draft = draft.clone();
            draft.id = uuid::Uuid::new_v4().to_string();
            draft.object.id = bounded(id.as_str());
            Self(Arc::new(Inner {
                trail: self.0.trail.clone(),
                draft: Mutex::new(Some(draft)),
                is_settled: AtomicBool::new(false),
                is_deferred: AtomicBool::new(false),
            }))
        };
        ids.iter().map(part).collect()
    }

    /// Notes a value that is changed, or a fact about the act. The value must not be a secret.
    pub fn note(&self, name: &str, value: Value) {
        self.edit(|draft| add(&mut draft.changes, name, value));
    }

    /// Notes several, see [`Self::note`].
    pub fn note_all(&self, facts: Map<String, Value>) {
        self.edit(|draft| {
            for (name, value) in facts {
                add(&mut draft.changes, &name, value);
            }
        });
    }

    /// Notes that the act was done or, with a status and a code, why not. For answers whose own status
    /// does not say it.
    pub fn settle(&self, failure: Option<(u16, &str)>) {
        self.0.is_settled.store(true, Ordering::Release);
        if let Some((status, code)) = failure {
            self.edit(|draft| {
                draft.status = Some(status);
                draft.code = Some(bounded(code));
            });
        }
    }

    /// Whether [`Self::settle`] was called.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.0.is_settled.load(Ordering::Acquire)
    }

    /// Leaves the end of the act to the caller: the answer to its request decides nothing.
    pub fn defer(&self) {
        self.0.is_deferred.store(true, Ordering::Release);
    }

    /// Whether [`Self::defer`] was called.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.0.is_deferred.load(Ordering::Acquire)
    }

    /// Records the act with the answer to its request.
    pub fn finish(&self, status: u16, code: Option<&str>) {
        let mut draft = self.0.locked();
        if let Some(mut entry) = draft.take() {
            let status = *entry.status.get_or_insert(status);
            entry.outcome = AuditOutcome::of_status(status);
            if entry.code.is_none() {
                entry.code = code.map(bounded);
            }
            self.0.record(entry);
        }
    }

    fn edit(&self, edit: impl FnOnce(&mut AuditEntry)) {
        if let Some(draft) = self.0.locked().as_mut() {
            edit(draft);
        }
    }
}

impl Inner {
    fn locked(&self) -> MutexGuard<'_, Option<AuditEntry>> {
        // An entry is whole after every operation, so a panic elsewhere does not spoil it.
        self.draft.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, mut entry: AuditEntry) {
        entry.at = now();
        self.trail.record(entry);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(mut entry) = self.locked().take() {
            match std::thread::panicking() {
                true => entry.status = Some(500),
                false => entry.code = Some(entry.code.unwrap_or_else(|| UNANSWERED.to_owned())),
            }
            self.record(entry);
        }
    }
}

/// Adds a member unless the sum would become too large; then says so.
fn add(changes: &mut Map<String, Value>, name: &str, value: Value) {
    let size = |value: &Value| value.to_string().len();
    let known: usize = changes.iter().map(|(name, it)| name.len() + size(it)).sum();
    if known + name.len() + size(&value) <= CHANGES_MAX {
        changes.insert(name.to_owned(), value);
    } else {
        changes.insert("omitted".to_owned(), Value::Bool(true));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn changes_are_bounded_together() {
        let mut changes = Map::new();
        for number in 0..1_000 {
            add(&mut changes, &format!("key-{number}"), json!("some value"));
        }
        add(&mut changes, "large", json!("x".repeat(1 << 20)));
        let size = Value::Object(changes.clone()).to_string().len();
        assert!(size < 2 * CHANGES_MAX, "{size}");
        assert_eq!(changes["omitted"], json!(true));
        assert_eq!(changes["key-0"], json!("some value"));
    }
}
