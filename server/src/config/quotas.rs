//! `[quotas]`: what the sandboxes of a tenant may use together.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
};

use osb_protocol::resources::ResourceLimits;
use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::quota::{Quota, Quotas};

/// `[quotas]`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotasSection {
    /// Sandboxes of a tenant without an entry of its own.
    pub sandboxes: Option<u64>,
    /// Its processors, in the notation of `resourceLimits`.
    pub cpu: Option<String>,
    /// Its memory, in the notation of `resourceLimits`.
    pub memory: Option<String>,
    /// Of some tenants, by name.
    pub tenants: HashMap<String, QuotaEntry>,
}

/// Limits of one tenant; an absent one is none.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaEntry {
    /// Sandboxes.
    pub sandboxes: Option<u64>,
    /// Processors, in the notation of `resourceLimits`.
    pub cpu: Option<String>,
    /// Memory, in the notation of `resourceLimits`.
    pub memory: Option<String>,
}

impl QuotaEntry {
    /// `None` with the key whose value breaks the grammar.
    fn read(&self) -> Result<Quota, &'static str> {
        let named = [("cpu", &self.cpu), ("memory", &self.memory)];
        let named = named.into_iter().filter_map(|(key, value)| {
            let value = value.as_ref()?;
            Some((key.to_owned(), value.clone()))
        });
        let named: BTreeMap<String, String> = named.collect();
        let limits = ResourceLimits::parse(&named);
        let limits = limits.map_err(|wrong| wrong.first().map_or("cpu", |error| error.key))?;
        Ok(Quota {
            sandboxes: self.sandboxes,
            nano_cpus: limits.nano_cpus,
            memory_bytes: limits.memory_bytes,
        })
    }
}

impl QuotasSection {
    fn default_entry(&self) -> QuotaEntry {
        QuotaEntry {
            sandboxes: self.sandboxes,
            cpu: self.cpu.clone(),
            memory: self.memory.clone(),
        }
    }

    /// The quotas. The check at the start refuses a value that cannot be read.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        let tenants = self.tenants.iter();
        let tenants = tenants.map(|(name, entry)| (name.clone(), entry.read().unwrap_or_default()));
        Quotas {
            default: self.default_entry().read().unwrap_or_default(),
            tenants: tenants.collect(),
        }
    }

    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let refuse = |key: String| {
            let rule = "must be an amount such as \"1500m\" or \"2\" for cpu, \"16Gi\" for memory";
            Err(ConfigError::rule(file, key, rule))
        };
        if let Err(key) = self.default_entry().read() {
            return refuse(format!("quotas.{key}"));
        }
        for (tenant, entry) in &self.tenants {
            if let Err(key) = entry.read() {
                return refuse(format!("quotas.tenants.{tenant}.{key}"));
            }
        }
        Ok(())
    }
}
