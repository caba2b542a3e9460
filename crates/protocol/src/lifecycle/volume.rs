//! Storage of a sandbox (contract: lifecycle §4.3).

use serde::{Deserialize, Serialize};

/// One mount; exactly one of `host`, `pvc` and `ossfs` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Volume {
    /// Name, unique within the request.
    pub name: String,
    /// Directory of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostVolume>,
    /// Named volume of the runtime.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pvc: Option<ClaimVolume>,
    /// Object storage bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub ossfs: Option<serde_json::Value>,
    /// Absolute path in the sandbox.
    pub mount_path: String,
    /// Mounts without write access.
    #[serde(default)]
    pub read_only: bool,
    /// Directory below the volume's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

/// A directory of the host; only below the configured allow-list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct HostVolume {
    /// Absolute path on the host.
    pub path: String,
}

/// A named volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ClaimVolume {
    /// Name of the Docker volume or claim.
    pub claim_name: String,
    /// Makes the volume when it is missing.
    #[serde(default = "yes")]
    pub create_if_not_exists: bool,
    /// Removes the volume with the sandbox, when this request made it.
    #[serde(default)]
    pub delete_on_sandbox_termination: bool,
    /// Kubernetes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class: Option<String>,
    /// Kubernetes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
    /// Kubernetes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}
