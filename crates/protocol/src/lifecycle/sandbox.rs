//! Sandboxes in answers to clients (contract: lifecycle §4.6).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Allocation, Platform};
use crate::{SandboxId, WireTime};

/// State of a sandbox (contract: lifecycle §12). Clients tolerate unknown ones, so does this type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SandboxState {
    /// Accepted, not running yet.
    Pending,
    /// The entry point runs.
    Running,
    /// On the way to paused.
    Pausing,
    /// Frozen.
    Paused,
    /// On the way back to running.
    Resuming,
    /// Being removed.
    Stopping,
    /// The entry point ended with status 0.
    Terminated,
    /// The entry point ended otherwise, or the sandbox could not be made or removed.
    Failed,
    /// The runtime reports something else.
    Unknown,
    /// A state that this version does not know.
    Other(String),
}

impl SandboxState {
    /// All states this version reports.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Running,
        Self::Pausing,
        Self::Paused,
        Self::Resuming,
        Self::Stopping,
        Self::Terminated,
        Self::Failed,
        Self::Unknown,
    ];

    /// The name on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Pausing => "Pausing",
            Self::Paused => "Paused",
            Self::Resuming => "Resuming",
            Self::Stopping => "Stopping",
            Self::Terminated => "Terminated",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
            Self::Other(name) => name,
        }
    }
}

impl std::fmt::Display for SandboxState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&str> for SandboxState {
    fn from(name: &str) -> Self {
        let known = Self::ALL.into_iter().find(|state| state.as_str() == name);
        known.unwrap_or_else(|| Self::Other(name.to_owned()))
    }
}

impl Serialize for SandboxState {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for SandboxState {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        Ok(Self::from(name.as_ref()))
    }
}

#[cfg(feature = "openapi")]
impl utoipa::PartialSchema for SandboxState {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
        use utoipa::openapi::schema::{ObjectBuilder, Type};
        let names = Self::ALL.iter().map(|state| state.as_str().to_owned());
        ObjectBuilder::new()
            .schema_type(Type::String)
            .examples(names)
            .into()
    }
}
#[cfg(feature = "openapi")]
impl utoipa::ToSchema for SandboxState {}

/// State with its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SandboxStatus {
    /// The state.
    pub state: SandboxState,
    /// Machine name of the reason, such as `CONTAINER_RUNNING`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The reason in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_at: Option<WireTime>,
}

/// Image of a sandbox, without credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageRef {
    /// The reference as requested.
    pub uri: String,
}

/// One sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sandbox {
    /// Its name.
    pub id: SandboxId,
    /// Image it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageRef>,
    /// Snapshot it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Requested platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// State with reason.
    pub status: SandboxStatus,
    /// User labels; left out when there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// `opensandbox.extensions.*` of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, String>,
    /// How it came from a pool; absent on other sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Allocation>,
    /// Command the sandbox lives as long as. Always present: SDKs fail without it.
    #[serde(default)]
    pub entrypoint: Vec<String>,
    /// When it is removed; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WireTime>,
    /// When it was accepted.
    pub created_at: WireTime,
}

/// Answer of `POST /sandboxes`: a [`Sandbox`] without image and snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxResponse {
    /// Its name.
    pub id: SandboxId,
    /// State with reason.
    pub status: SandboxStatus,
    /// User labels; left out when there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// `opensandbox.extensions.*` of the request.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, String>,
    /// Requested platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// When it is removed; absent means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<WireTime>,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Command the sandbox lives as long as.
    pub entrypoint: Vec<String>,
}

impl From<Sandbox> for CreateSandboxResponse {
    fn from(sandbox: Sandbox) -> Self {
        Self {
            id: sandbox.id,
            status: sandbox.status,
            metadata: sandbox.metadata,
            extensions: sandbox.extensions,
            platform: sandbox.platform,
            expires_at: sandbox.expires_at,
            created_at: sandbox.created_at,
            entrypoint: sandbox.entrypoint,
        }
    }
}

/// Where a page stands in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PaginationInfo {
    /// This page, from 1.
    pub page: usize,
    /// Most items of a page.
    pub page_size: usize,
    /// Items of all pages.
    pub total_items: usize,
    /// Pages; 0 when there are no items.
    pub total_pages: usize,
    /// Whether a further page exists.
    pub has_next_page: bool,
}

impl PaginationInfo {
    /// Computes the page figures. `page` counts from 1, `page_size` is at least 1.
    #[must_use]
    pub fn new(page: usize, page_size: usize, total_items: usize) -> Self {
        let total_pages = total_items.div_ceil(page_size.max(1));
        Self {
            page,
            page_size,
            total_items,
            total_pages,
            has_next_page: page < total_pages,
        }
    }
}

/// Answer of `GET /sandboxes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListSandboxesResponse {
    /// Newest first.
    pub items: Vec<Sandbox>,
    /// Where this page stands.
    pub pagination: PaginationInfo,
}

/// Where a port of a sandbox is reached (contract: lifecycle §6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Endpoint {
    /// Host, port and possibly a path; never a scheme.
    pub endpoint: String,
    /// Headers to send with every request to it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

/// Body of `POST /sandboxes/{id}/renew-expiration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewRequest {
    /// When the sandbox is deleted.
    pub expires_at: WireTime,
}

/// Answer of `POST /sandboxes/{id}/renew-expiration`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RenewResponse {
    /// When the sandbox will be removed, in UTC.
    pub expires_at: WireTime,
}

/// Body of `POST /v1/metrics/events` (contract: lifecycle §A5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClientMetricsEvent {
    /// Always `sandbox.create`.
    pub event_type: String,
    /// Milliseconds from the call to a ready sandbox, as the SDK saw them.
    pub create_duration_ms: i64,
    /// Whether the create succeeded.
    pub success: bool,
    /// Which sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Image, snapshot or template it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// Answer of `GET /health` and `GET /ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `healthy`: the process serves requests. `ready`: sandboxes can be made.
    pub status: String,
    /// What an operator should look at; only from `GET /ready`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of `GET /version`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Version {
    /// Release of the running server.
    pub version: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_members_are_left_out_but_entrypoint_stays() {
        let sandbox = Sandbox {
            id: "a".into(),
            image: None,
            snapshot_id: None,
            platform: None,
            status: SandboxStatus {
                state: SandboxState::Running,
                reason: None,
                message: None,
                last_transition_at: None,
            },
            metadata: BTreeMap::new(),
            extensions: BTreeMap::new(),
            allocation: None,
            entrypoint: Vec::new(),
            expires_at: None,
            created_at: WireTime::from_unix_us(0).unwrap(),
        };
        assert_eq!(
            serde_json::to_string(&sandbox).unwrap(),
            r#"{"id":"a","status":{"state":"Running"},"entrypoint":[],"createdAt":"1970-01-01T00:00:00Z"}"#
        );
    }

    #[test]
    fn pages_are_counted_as_the_contract_says() {
        let empty = PaginationInfo::new(1, 20, 0);
        assert_eq!((empty.total_pages, empty.has_next_page), (0, false));
        let first = PaginationInfo::new(1, 2, 3);
        assert_eq!((first.total_pages, first.has_next_page), (2, true));
        assert!(!PaginationInfo::new(9, 2, 3).has_next_page);
    }

    #[test]
    fn unknown_states_survive() {
        let state: SandboxState = serde_json::from_str("\"Allocated\"").unwrap();
        assert_eq!(state, SandboxState::Other("Allocated".into()));
        assert_eq!(SandboxState::from("Paused"), SandboxState::Paused);
    }
}
