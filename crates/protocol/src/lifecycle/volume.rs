//! Storage of a sandbox (contract: lifecycle §4.3).

use serde::{Deserialize, Serialize};

/// One mount; exactly one of `host`, `pvc` and `ossfs` is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    pub ossfs: Option<OssfsVolume>,
    /// Absolute path in the sandbox.
    pub mount_path: String,
    /// Mounts without write access.
    #[serde(default)]
    pub read_only: bool,
    /// Directory below the volume's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
}

impl Volume {
    /// Returns the volume without credentials: what may be stored and shown.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        let mut volume = self.clone();
        if let Some(bucket) = &mut volume.ossfs {
            bucket.access_key_id.clear();
            bucket.access_key_secret.clear();
        }
        volume
    }
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

/// A bucket of an object storage, which the server mounts with the program `ossfs` or `ossfs2`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OssfsVolume {
    /// Name of the bucket.
    pub bucket: String,
    /// Address of the object storage; `https://` is added when it has no scheme.
    pub endpoint: String,
    /// Release of the program that mounts it: `1.0` or `2.0`.
    #[serde(default)]
    pub version: OssfsVersion,
    /// Options of that program, without a leading dash: `allow_other`, `uid=1000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Vec<String>>,
    /// Name of the key. No answer contains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub access_key_id: String,
    /// The key. No answer contains it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub access_key_secret: String,
}

/// Omits the credentials.
impl std::fmt::Debug for OssfsVolume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OssfsVolume")
            .field("bucket", &self.bucket)
            .field("endpoint", &self.endpoint)
            .field("version", &self.version)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// Release of the program that mounts a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum OssfsVersion {
    /// `ossfs`.
    #[serde(rename = "1.0")]
    V1,
    /// `ossfs2`.
    #[default]
    #[serde(rename = "2.0")]
    V2,
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn credentials_are_neither_printed_nor_kept() {
        let volume: Volume = serde_json::from_value(json!({
            "name": "a", "mountPath": "/a", "ossfs": {
                "bucket": "data", "endpoint": "oss.example", "options": ["ro"],
                "accessKeyId": "hunter1", "accessKeySecret": "hunter2",
            },
        }))
        .unwrap();
        assert_eq!(volume.ossfs.as_ref().unwrap().version, OssfsVersion::V2);
        assert!(!format!("{volume:?}").contains("hunter"), "{volume:?}");
        let kept = volume.without_credentials();
        let text = serde_json::to_string(&kept).unwrap();
        assert!(text.contains("data") && !text.contains("hunter"), "{text}");
        assert!(!text.contains("accessKey"), "{text}");
        assert_eq!(serde_json::from_str::<Volume>(&text).unwrap(), kept);
    }
}
