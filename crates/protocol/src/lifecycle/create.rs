//! What a client sends to make a sandbox (contract: lifecycle §4.1, §A2).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Volume;

/// Body of `POST /sandboxes`. Types and ranges are checked against a JSON Schema before this is
/// filled, so that a client learns of every wrong field at once; `null` means absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CreateSandboxRequest {
    /// Container image to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageSpec>,
    /// Snapshot to start from instead of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<String>,
    /// Wanted platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Seconds until the sandbox is removed, at least 60; absent means it stays until deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<i64>,
    /// Most the sandbox may use: `cpu`, `memory`, `gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What the scheduler reserves (Kubernetes only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_requests: Option<BTreeMap<String, String>>,
    /// Environment of every process in the sandbox; a null value removes a configured default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Option<String>>,
    /// Labels to find the sandbox by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Command the sandbox lives as long as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Which names and addresses the sandbox may reach; absent means any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicy>,
    /// Injects credentials into outgoing requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_proxy: Option<CredentialProxy>,
    /// Endpoints need a token (Kubernetes gateway only).
    #[serde(default, skip_serializing_if = "is_false")]
    pub secure_access: bool,
    /// Storage to mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<Volume>,
    /// Hooks: `preStart` runs before the entry point, `periodic` ones on a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleHooks>,
    /// Template to start from (Kubernetes only).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_id: Option<String>,
    /// Extra switches as strings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extensions: BTreeMap<String, String>,
}

/// Programs that run in a sandbox beside its entry point.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LifecycleHooks {
    /// Runs before the entry point, which starts only when it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_start: Option<PreStartHook>,
    /// Run on a schedule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub periodic: Option<Vec<PeriodicHook>>,
}

/// Hook that runs once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PreStartHook {
    /// Program and arguments.
    pub command: Vec<String>,
    /// Longest run in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 10800))]
    pub timeout_seconds: Option<u32>,
}

/// Hook that runs on a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PeriodicHook {
    /// Name, unique within the request.
    pub name: String,
    /// Five fields of cron, a descriptor such as `@daily`, or `@every` and a duration.
    pub schedule: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Longest run in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 300))]
    pub timeout_seconds: Option<u32>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if wants a reference"
)]
fn is_false(value: &bool) -> bool {
    !value
}

/// A container image and how to pull it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageSpec {
    /// Reference such as `debian:12` or `registry.example.org/team/app@sha256:…`.
    pub uri: String,
    /// Credentials of the registry; used for one pull, never stored, never answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth: Option<ImageAuth>,
}

/// Credentials of a registry.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ImageAuth {
    /// User name.
    pub username: String,
    /// Password or token.
    pub password: String,
}

impl std::fmt::Debug for ImageAuth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageAuth").finish_non_exhaustive()
    }
}

/// Operating system and processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Platform {
    /// `linux` or `windows`.
    pub os: String,
    /// `amd64` or `arm64`.
    pub arch: String,
}

/// Egress rules (contract: lifecycle §4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicy {
    /// `allow` or `deny` for what no rule names; deny when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_action: Option<String>,
    /// Rules, first match wins.
    #[serde(default)]
    pub egress: Vec<NetworkRule>,
}

/// One egress rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NetworkRule {
    /// `allow` or `deny`.
    pub action: String,
    /// Domain, wildcard domain, address or CIDR.
    pub target: String,
}

/// Answer about the egress rules of a sandbox (contract: egress §5.3–5.6).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyStatus {
    /// `ok`.
    pub status: String,
    /// `deny_all` and `allow_all` without rules, `enforcing` with rules.
    pub mode: String,
    /// What is enforced: names (`dns`), or names and addresses (`dns+nft`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enforcement_mode: Option<String>,
    /// Why nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Number of rules that a DELETE removed. Older sidecars do not count them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
    /// Targets of a DELETE that no rule had.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<String>,
    /// The policy, when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<NetworkPolicy>,
}

/// Switch of the credential proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CredentialProxy {
    /// On or off.
    #[serde(default)]
    pub enabled: bool,
}
