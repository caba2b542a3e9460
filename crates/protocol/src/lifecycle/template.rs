//! Templates: images that were made ready, with what sandboxes from them run (contract: lifecycle §A3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::PaginationInfo;
use crate::WireTime;

/// Phase of a template (contract: lifecycle §A3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum TemplatePhase {
    /// It was accepted.
    Pending,
    /// It is being made.
    Building,
    /// Sandboxes can be created from it.
    Succeeded,
    /// It could not be made.
    Failed,
    /// It was deleted, and its image is not removed yet. For clients of the API it is gone.
    Deleting,
}

impl TemplatePhase {
    /// All phases.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Building,
        Self::Succeeded,
        Self::Failed,
        Self::Deleting,
    ];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Building => "Building",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Deleting => "Deleting",
        }
    }

    /// The phase with this name, compared with case.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }
}

impl std::fmt::Display for TemplatePhase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Phase with what is known about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateStatus {
    /// The phase.
    pub phase: TemplatePhase,
    /// What the runtime calls the image that was made ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_ref: Option<String>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// When a sandbox from a template counts as ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateReadiness {
    /// What must succeed, such as `tcp://127.0.0.1:44772`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<String>,
    /// Seconds that it then has to settle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warmup_seconds: Option<u64>,
}

/// Form of a template's published image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "lowercase")]
pub enum TemplateFormat {
    /// As the image is.
    Native,
    /// Blocks that are loaded when they are read.
    #[default]
    Overlaybd,
}

/// Addition to the contract: what the image of a template is built from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateBuild {
    /// Text of the Dockerfile, when the request had no context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// Size of the context in bytes, when the request had one. The context itself is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<u64>,
}

/// Addition to the contract: what a request gives to build an image from. Exactly one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateBuildRequest {
    /// Text of a Dockerfile that copies no files.
    #[serde(default)]
    pub dockerfile: Option<String>,
    /// A tar archive with a `Dockerfile` at its root, in base64. It may be compressed with gzip.
    #[serde(default)]
    pub context: Option<String>,
}

/// Body of `POST /templates`. Other members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTemplateRequest {
    /// The image. Required unless `build` is given.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub image: Option<String>,
    /// Addition to the contract: builds the image, if the operator allows builds.
    #[serde(default)]
    pub build: Option<TemplateBuildRequest>,
    /// Limits of its sandboxes: `cpu`, `memory`, `disk`.
    #[serde(default)]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What its sandboxes run; `tail -f /dev/null` when absent.
    #[serde(default)]
    pub entrypoint: Option<Vec<String>>,
    /// Environment of its sandboxes.
    #[serde(default)]
    pub env: Option<BTreeMap<String, String>>,
    /// Labels of the template.
    #[serde(default)]
    pub metadata: Option<BTreeMap<String, String>>,
    /// When a sandbox from it counts as ready.
    #[serde(default)]
    pub readiness: Option<TemplateReadiness>,
    /// Where the image is published, for runtimes that publish it.
    #[cfg_attr(feature = "openapi", schema(min_length = 1))]
    pub publish: String,
    /// Form of the published image.
    #[serde(default)]
    pub format: TemplateFormat,
}

/// What a template is made from, and what its sandboxes run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct TemplateSpec {
    /// The image. Of one that is built, the API shows the template's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub image: Option<String>,
    /// Addition to the contract: what the image is built from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<TemplateBuild>,
    /// Limits of its sandboxes: `cpu`, `memory`, `disk`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_limits: Option<BTreeMap<String, String>>,
    /// What its sandboxes run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<Vec<String>>,
    /// Environment of its sandboxes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// When a sandbox from it counts as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<TemplateReadiness>,
    /// Where the image is published, for runtimes that publish it.
    pub publish: String,
    /// Form of the published image.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(required = true))]
    pub format: TemplateFormat,
}

/// One template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Template {
    /// Its id: `tpl-` and a UUID.
    pub template_id: String,
    /// As it was requested.
    #[serde(flatten)]
    pub spec: TemplateSpec,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Phase with what is known about it.
    pub status: TemplateStatus,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Since when it is in its phase.
    pub updated_at: WireTime,
}

/// Answer of `GET /templates`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ListTemplatesResponse {
    /// Newest first.
    pub items: Vec<Template>,
    /// Where this page stands.
    pub pagination: PaginationInfo,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_shows_what_was_requested_and_no_more() {
        let spec = json!({"image": "python:3.12", "publish": "s3://b/p"});
        let spec: TemplateSpec = serde_json::from_value(spec).unwrap();
        let at = WireTime::parse("2031-05-01T10:00:00.000001Z").unwrap();
        let template = Template {
            template_id: "tpl-1".into(),
            spec,
            metadata: BTreeMap::new(),
            status: TemplateStatus {
                phase: TemplatePhase::Pending,
                manifest_ref: None,
                message: None,
            },
            created_at: at,
            updated_at: at,
        };
        let want = json!({
            "templateId": "tpl-1", "image": "python:3.12", "publish": "s3://b/p",
            "format": "overlaybd", "status": {"phase": "Pending"},
            "createdAt": "2031-05-01T10:00:00.000001Z",
            "updatedAt": "2031-05-01T10:00:00.000001Z",
        });
        assert_eq!(serde_json::to_value(&template).unwrap(), want);
        assert_eq!(serde_json::from_value::<Template>(want).unwrap(), template);
    }

    #[test]
    fn a_phase_has_its_name() {
        for phase in TemplatePhase::ALL {
            assert_eq!(TemplatePhase::of(phase.as_str()), Some(phase));
            assert_eq!(serde_json::to_value(phase).unwrap(), phase.as_str());
        }
        assert_eq!(TemplatePhase::of("pending"), None);
    }
}
