//! `[pools]`: sandboxes that are started before they are needed.

use std::{path::Path, time::Duration};

use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::PoolLimits;

/// Longest wait of a create, in seconds.
const WAIT_MAX: u64 = 3600;

/// `[pools]`: an addition to the contract.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolsSection {
    /// Longest time that a create waits for a sandbox of its pool.
    pub acquisition_timeout_seconds: u64,
    /// Whether a create that names no pool gets a sandbox that waits and is what it would make.
    pub serve_plain_creates: bool,
    /// Most pools of a tenant.
    pub max_pools: u64,
    /// Most sandboxes that wait in the pools of a tenant without a quota for sandboxes.
    pub max_waiting: u32,
}

impl Default for PoolsSection {
    fn default() -> Self {
        let PoolLimits {
            acquisition,
            serves_plain_creates,
            max_pools,
            max_waiting,
        } = PoolLimits::default();
        Self {
            acquisition_timeout_seconds: acquisition.as_secs(),
            serve_plain_creates: serves_plain_creates,
            max_pools,
            max_waiting,
        }
    }
}

impl PoolsSection {
    /// As the domain takes them.
    #[must_use]
    pub fn limits(&self) -> PoolLimits {
        PoolLimits {
            acquisition: Duration::from_secs(self.acquisition_timeout_seconds),
            serves_plain_creates: self.serve_plain_creates,
            max_pools: self.max_pools,
            max_waiting: self.max_waiting,
        }
    }

    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        if !(1..=WAIT_MAX).contains(&self.acquisition_timeout_seconds) {
            let key = "pools.acquisition_timeout_seconds";
            let rule = format!("must be 1 to {WAIT_MAX}");
            return Err(ConfigError::rule(file, key, rule));
        }
        Ok(())
    }
}
