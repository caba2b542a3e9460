//! `[templates]`: images that are made ready for sandboxes.

use std::{path::Path, time::Duration};

use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::TemplateLimits;

/// Longest build, in seconds.
const BUILD_MAX: u64 = 7200;
/// Largest context, in bytes. Those of several builds wait in memory.
const CONTEXT_MAX: usize = 64 << 20;

/// `[templates]`: an addition to the contract.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TemplatesSection {
    /// Whether clients may have images built. The engine runs the steps of a Dockerfile as root, in
    /// containers of its own that have neither the limits nor the network of a sandbox, so a client
    /// that may add templates gets more than a sandbox gives.
    pub allow_builds: bool,
    /// Whether keys and users of a tenant may have images built, too. A Dockerfile can start from any image
    /// on the host, also from other tenants' snapshots.
    pub allow_tenant_builds: bool,
    /// Longest time that a build may take.
    pub build_timeout_seconds: u64,
    /// Largest archive that a build may be given.
    pub max_context_bytes: usize,
    /// Most templates of a tenant.
    pub max_templates: u64,
}

impl Default for TemplatesSection {
    fn default() -> Self {
        let TemplateLimits {
            allow_builds,
            allow_tenant_builds,
            build_time,
            max_context_bytes,
            max_templates,
        } = TemplateLimits::default();
        Self {
            allow_builds,
            allow_tenant_builds,
            build_timeout_seconds: build_time.as_secs(),
            max_context_bytes,
            max_templates,
        }
    }
}

impl TemplatesSection {
    /// As the domain takes them.
    #[must_use]
    pub fn limits(&self) -> TemplateLimits {
        TemplateLimits {
            allow_builds: self.allow_builds,
            allow_tenant_builds: self.allow_tenant_builds,
            build_time: Duration::from_secs(self.build_timeout_seconds),
            max_context_bytes: self.max_context_bytes,
            max_templates: self.max_templates,
        }
    }

    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        if self.allow_tenant_builds && !self.allow_builds {
            let key = "templates.allow_tenant_builds";
            return Err(ConfigError::rule(file, key, "needs templates.allow_builds"));
        }
        if !(1..=BUILD_MAX).contains(&self.build_timeout_seconds) {
            let key = "templates.build_timeout_seconds";
            let rule = format!("must be 1 to {BUILD_MAX}");
            return Err(ConfigError::rule(file, key, rule));
        }
        if !(1..=CONTEXT_MAX).contains(&self.max_context_bytes) {
            let key = "templates.max_context_bytes";
            let rule = format!("must be 1 to {CONTEXT_MAX}");
            return Err(ConfigError::rule(file, key, rule));
        }
        Ok(())
    }
}
