//! What can go wrong with a template.

use osb_protocol::lifecycle::TemplatePhase;

use super::{disk_full::DiskFull, too_many::TooMany};

/// Why something was not done with a template (contract: lifecycle §A3, §13).
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// No template by that id.
    #[error("template {0} not found")]
    NotFound(String),
    /// Others are being made or wait.
    #[error(
        "{0} templates are being made or wait, the most that this server accepts: try again when one is \
         made"
    )]
    Busy(usize),
    /// Others of the tenant are being made or wait.
    #[error(
        "{0} templates of the tenant are being made or wait, the most that this server accepts of one \
         tenant: try again when one is made"
    )]
    TenantBusy(usize),
    /// A quota for disk is used up.
    #[error(transparent)]
    DiskFull(DiskFull),
    /// The tenant has as many as it may have.
    #[error(transparent)]
    TooMany(TooMany),
    /// The runtime does not remove its image, because sandboxes use it.
    #[error(
        "template {id} is in use: {reason}. It stays Deleting, and is removed when the sandboxes that \
         were created from it are gone"
    )]
    InUse {
        /// Which template.
        id: String,
        /// What the runtime said.
        reason: String,
    },
    /// A create names a template that does not exist.
    #[error("templateId: template {0} not found")]
    NoSource(String),
    /// A create names a template that was not made.
    #[error("templateId: template {id} is {phase}, not Succeeded")]
    NotMade {
        /// Which template.
        id: String,
        /// Its phase.
        phase: TemplatePhase,
    },
}

impl TemplateError {
    /// Whether the same request may succeed later.
    #[must_use]
    pub fn retryable(&self) -> bool {
        match self {
            Self::Busy(_) | Self::TenantBusy(_) | Self::InUse { .. } => true,
            Self::NotMade { phase, .. } => {
                matches!(phase, TemplatePhase::Pending | TemplatePhase::Building)
            }
            Self::NotFound(_) | Self::DiskFull(_) | Self::TooMany(_) | Self::NoSource(_) => false,
        }
    }

    /// Whether it is about the field `templateId` of a create.
    #[must_use]
    pub fn is_about_source(&self) -> bool {
        matches!(self, Self::NoSource(_) | Self::NotMade { .. })
    }
}
