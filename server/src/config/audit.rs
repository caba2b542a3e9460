//! `[audit]`: who did what.

use std::path::Path;

use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::audit::AuditLimits;

/// Longest time that entries are kept, in days.
const DAYS_MAX: u32 = 36_500;
/// Least number of entries that are kept.
const ENTRIES_MIN: u64 = 1_000;

/// `[audit]`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AuditSection {
    /// Whether acts are recorded.
    pub enabled: bool,
    /// Days after which an entry is deleted.
    pub retention_days: u32,
    /// Most entries that are kept.
    pub max_entries: u64,
}

impl Default for AuditSection {
    fn default() -> Self {
        let AuditLimits {
            enabled,
            retention_days,
            max_entries,
        } = AuditLimits::default();
        Self {
            enabled,
            retention_days,
            max_entries,
        }
    }
}

impl AuditSection {
    /// As the trail takes them.
    #[must_use]
    pub fn limits(&self) -> AuditLimits {
        AuditLimits {
            enabled: self.enabled,
            retention_days: self.retention_days,
            max_entries: self.max_entries,
        }
    }

    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        if !(1..=DAYS_MAX).contains(&self.retention_days) {
            let rule = format!("must be 1 to {DAYS_MAX}");
            return Err(ConfigError::rule(file, "audit.retention_days", rule));
        }
        if self.max_entries < ENTRIES_MIN {
            let rule = format!("must be at least {ENTRIES_MIN}");
            return Err(ConfigError::rule(file, "audit.max_entries", rule));
        }
        Ok(())
    }
}
