//! Snapshots: file systems of sandboxes, kept to start others from (contract: lifecycle §9).

use serde::{Deserialize, Serialize};

use super::PaginationInfo;
use crate::{SandboxId, WireTime};

/// State of a snapshot (contract: lifecycle §9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum SnapshotState {
    /// It is being taken.
    Creating,
    /// Sandboxes can be created from it.
    Ready,
    /// It could not be taken.
    Failed,
    /// It was deleted, and what it keeps is being removed.
    Deleting,
}

impl SnapshotState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Creating, Self::Ready, Self::Failed, Self::Deleting];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "Creating",
            Self::Ready => "Ready",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
        }
    }

    /// The state with this name, compared with case (contract: lifecycle §9.1).
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl std::fmt::Display for SnapshotState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// State with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SnapshotStatus {
    /// The state.
    pub state: SnapshotState,
    /// Machine name of the reason, such as `snapshot_accepted`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<WireTime>,
}

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Its id, a UUID.
    pub id: String,
    /// The sandbox that it was taken of, which may be gone.
    pub sandbox_id: SandboxId,
    /// The name that its creator gave. Several snapshots may have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// State with reason.
    pub status: SnapshotStatus,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Addition to the contract: bytes on disk that only it takes, without the image or the snapshot
    /// that its sandbox was created from. Absent while it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Addition to the contract: the snapshot that its sandbox was created from, which may be gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_snapshot_id: Option<String>,
}

/// Body of `POST /sandboxes/{id}/snapshots`, which may be absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CreateSnapshotRequest {
    /// A name to find it by, at least one character long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub name: Option<String>,
}

/// Answer of `GET /snapshots`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListSnapshotsResponse {
    /// Newest first.
    pub items: Vec<Snapshot>,
    /// Where this page stands.
    pub pagination: PaginationInfo,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_members_are_left_out() {
        let snapshot = Snapshot {
            id: "s".into(),
            sandbox_id: "a".into(),
            name: None,
            status: SnapshotStatus {
                state: SnapshotState::Creating,
                reason: None,
                message: None,
                last_transition_at: None,
            },
            created_at: WireTime::from_unix_us(0).unwrap(),
            size_bytes: None,
            source_snapshot_id: None,
        };
        assert_eq!(
            serde_json::to_string(&snapshot).unwrap(),
            r#"{"id":"s","sandboxId":"a","status":{"state":"Creating"},"createdAt":"1970-01-01T00:00:00Z"}"#
        );
    }

    #[test]
    fn states_have_the_names_of_the_contract() {
        for state in SnapshotState::ALL {
            assert_eq!(SnapshotState::of(state.as_str()), Some(state));
            let json = serde_json::to_value(state).unwrap();
            assert_eq!(json, state.as_str());
        }
        assert_eq!(SnapshotState::of("ready"), None);
    }
}
