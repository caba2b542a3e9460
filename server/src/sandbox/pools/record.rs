//! What the store has of a claim.

use std::{collections::BTreeMap, fmt, sync::Arc};

use osb_protocol::WireTime;
use osb_runtime::{Claim, CreateSpec, Expiry, Origin};
use serde::{Deserialize, Serialize};

/// What a client asked for, as the store has it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::sandbox) struct ClaimRecord {
    claim_id: String,
    created_at: WireTime,
    entrypoint: Vec<String>,
    env: BTreeMap<String, Option<String>>,
    metadata: BTreeMap<String, String>,
    extensions: BTreeMap<String, String>,
    expires_at: Option<WireTime>,
    renew_extend_seconds: Option<u32>,
    tenant: Option<String>,
    owner: Option<String>,
}

/// Omits the values of the environment, which may contain secrets.
impl fmt::Debug for ClaimRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimRecord")
            .field("claim_id", &self.claim_id)
            .field("env", &self.env.keys())
            .finish_non_exhaustive()
    }
}

impl ClaimRecord {
    pub(super) fn of(spec: &CreateSpec) -> Self {
        let origin = &spec.origin;
        Self {
            claim_id: uuid::Uuid::new_v4().to_string(),
            created_at: origin.created_at,
            entrypoint: origin.entrypoint.clone(),
            env: spec.env.clone(),
            metadata: origin.metadata.clone(),
            extensions: origin.extensions.clone(),
            expires_at: match origin.expiry {
                Expiry::At(at) => Some(at),
                Expiry::Manual | Expiry::Unknown => None,
            },
            renew_extend_seconds: origin.renew_extend_seconds,
            tenant: origin.tenant.as_deref().map(str::to_owned),
            owner: origin.owner.as_deref().map(str::to_owned),
        }
    }

    /// The record with this text; `None` if it is damaged.
    pub(super) fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(super) fn text(&self) -> String {
        serde_json::to_string(self).expect("maps have string keys, so this serialises")
    }

    /// What the sandbox is for its client: what the member was started with, and what was claimed.
    pub(super) fn origin(&self, member: &Origin) -> Origin {
        Origin {
            created_at: self.created_at,
            entrypoint: self.entrypoint.clone(),
            metadata: self.metadata.clone(),
            extensions: self.extensions.clone(),
            expiry: self.expires_at.map_or(Expiry::Manual, Expiry::At),
            renew_extend_seconds: self.renew_extend_seconds,
            tenant: self.tenant.as_deref().map(Arc::from),
            owner: self.owner.as_deref().map(Arc::from),
            ..member.clone()
        }
    }

    /// When it was claimed.
    pub(in crate::sandbox) fn created_at(&self) -> WireTime {
        self.created_at
    }

    /// The tenant whose sandbox it is.
    pub(in crate::sandbox) fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    pub(super) fn claim(&self) -> Claim {
        Claim {
            id: self.claim_id.clone(),
            entrypoint: self.entrypoint.clone(),
            env: self.env.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use osb_runtime::{Source, new_token};

    use super::*;

    #[test]
    fn a_claim_is_read_back_and_makes_the_member_its_clients() {
        let at = |us| WireTime::from_unix_us(us).unwrap();
        let source = Source::Image("debian:12".into());
        let member = Origin {
            token: Some(new_token()),
            pool: Some("p".into()),
            ..Origin::new("a", source, at(1))
        };
        let mut spec = CreateSpec::new(Origin {
            created_at: at(5),
            entrypoint: vec!["sleep".into(), "9".into()],
            metadata: [("k".to_owned(), "v".to_owned())].into(),
            expiry: Expiry::At(at(9)),
            renew_extend_seconds: Some(300),
            tenant: Some("team-a".into()),
            owner: Some("user:1".into()),
            ..member.clone()
        });
        spec.env = [
            ("A".to_owned(), Some("1".to_owned())),
            ("B".to_owned(), None),
        ]
        .into();
        let record = ClaimRecord::of(&spec);
        assert_eq!(ClaimRecord::read(&record.text()), Some(record.clone()));
        let origin = record.origin(&member);
        assert_eq!(format!("{origin:?}"), format!("{:?}", spec.origin));
        assert_eq!(record.claim().env, spec.env);
        let another = ClaimRecord::of(&spec);
        assert_ne!(another.claim().id, record.claim().id);
        for damaged in ["", "{}", "[]"] {
            assert!(ClaimRecord::read(damaged).is_none(), "{damaged}");
        }
    }
}
