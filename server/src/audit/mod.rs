//! The audit trail: who did what to which object, from where and with which outcome.
//!
//! ```text
//!  request ─▶ Act ── finished, or dropped ──┐
//!  refusal, use ─▶ Repeats (summed up) ─────┼─▶ queue ─▶ one writer ─▶ store
//!  expiry, sweep, command line ─────────────┘
//! ```
//!
//! Reads are not recorded. An entry is made when the act is over and written off its path, in batches;
//! [`trail`] says what is promised.

pub mod act;
pub mod action;
mod clock;
pub mod facts;
mod repeats;
pub mod trail;

pub use act::{Act, ActOrigin, UNANSWERED};
pub use action::Action;
pub use trail::{AuditBacklog, AuditLimits, AuditTrail};

use osb_protocol::audit::{AuditActor, AuditActorKind, AuditEntry, AuditObject, AuditOutcome};
use serde_json::{Map, Value};

use crate::identity::{Principal, redact_keys};

/// Longest text in an entry, in bytes.
const TEXT_MAX: usize = 256;

/// The actor that a principal is.
#[must_use]
pub fn actor(principal: &Principal) -> AuditActor {
    AuditActor {
        kind: principal.kind.into(),
        id: bounded(&principal.id),
        name: bounded(&principal.name),
        role: Some(principal.role),
        tenant: principal.scope.tenant().map(bounded),
    }
}

/// The server itself.
#[must_use]
pub fn system() -> AuditActor {
    nameless(AuditActorKind::System, "system")
}

/// A client that proved no identity, with the name that it gave.
#[must_use]
pub fn unknown(name: &str) -> AuditActor {
    AuditActor {
        name: bounded(name),
        ..nameless(AuditActorKind::Unknown, "")
    }
}

fn nameless(kind: AuditActorKind, id: &str) -> AuditActor {
    AuditActor {
        kind,
        id: id.to_owned(),
        name: id.to_owned(),
        role: None,
        tenant: None,
    }
}

/// An entry of an act that is over now, without what only some acts have.
#[must_use]
pub fn entry(action: Action, actor: AuditActor, outcome: AuditOutcome) -> AuditEntry {
    AuditEntry {
        id: uuid::Uuid::new_v4().to_string(),
        at: now(),
        action: action.name().to_owned(),
        outcome,
        status: None,
        code: None,
        tenant: actor.tenant.clone(),
        actor,
        object: AuditObject {
            kind: action.object().to_owned(),
            id: String::new(),
        },
        address: None,
        request_id: None,
        count: 1,
        changes: Map::new(),
    }
}

/// A change of one value.
#[must_use]
pub fn change(before: Value, after: Value) -> Value {
    let mut change = Map::new();
    for (name, value) in [("before", before), ("after", after)] {
        if !value.is_null() {
            change.insert(name.to_owned(), value);
        }
    }
    Value::Object(change)
}

/// The text without the secrets of API keys, cut to [`TEXT_MAX`] bytes.
#[must_use]
pub fn bounded(text: &str) -> String {
    let text = redact_keys(text);
    if text.len() <= TEXT_MAX {
        return text.into_owned();
    }
    let end = text.floor_char_boundary(TEXT_MAX - '…'.len_utf8());
    format!("{}…", &text[..end])
}

fn now() -> osb_protocol::WireTime {
    osb_protocol::WireTime::new(jiff::Timestamp::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("short"), "short");
        let cut = bounded(&"ä".repeat(1_000));
        assert!(cut.len() <= TEXT_MAX && cut.ends_with("ä…"), "{cut}");
    }

    #[test]
    fn no_text_has_the_secret_of_a_key() {
        let secret = format!("osb_{}", "0123456789abcdef".repeat(4));
        assert_eq!(bounded(&secret), "osb_01234567…");
        let far = format!("{}{secret}", "x".repeat(TEXT_MAX - 20));
        assert!(!bounded(&far).contains("osb_012345678"));
    }

    #[test]
    fn a_change_names_what_there_is() {
        let json = |before, after| change(before, after).to_string();
        assert_eq!(json(1.into(), 2.into()), r#"{"after":2,"before":1}"#);
        assert_eq!(json(Value::Null, 2.into()), r#"{"after":2}"#);
        assert_eq!(json(1.into(), Value::Null), r#"{"before":1}"#);
    }
}
