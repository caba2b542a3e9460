//! `[quotas]`: what the sandboxes of a tenant, a user or a stored API key may use together.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
};

use osb_protocol::resources::ResourceLimits;
use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::quota::{Quota, QuotaGroup, Quotas};

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
    /// Its disk, in the notation of `resourceLimits`.
    pub disk: Option<String>,
    /// Of some tenants, by name.
    pub tenants: HashMap<String, QuotaEntry>,
    /// Of each user without an entry of its own.
    pub user: QuotaEntry,
    /// Of some users, by name.
    pub users: HashMap<String, QuotaEntry>,
    /// Of each stored API key without an entry of its own.
    pub key: QuotaEntry,
    /// Of some stored API keys, by name.
    pub keys: HashMap<String, QuotaEntry>,
}

/// Limits of one tenant, user or API key; an absent one is none.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaEntry {
    /// Sandboxes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandboxes: Option<u64>,
    /// Processors, in the notation of `resourceLimits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory, in the notation of `resourceLimits`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Disk, in the notation of `resourceLimits` for memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk: Option<String>,
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
        let disk = self
            .disk
            .iter()
            .map(|disk| ("memory".to_owned(), disk.clone()));
        let disk = ResourceLimits::parse(&disk.collect()).map_err(|_| "disk")?;
        Ok(Quota {
            sandboxes: self.sandboxes,
            nano_cpus: limits.nano_cpus,
            memory_bytes: limits.memory_bytes,
            disk_bytes: disk.memory_bytes,
        })
    }
}

impl QuotasSection {
    fn default_entry(&self) -> QuotaEntry {
        QuotaEntry {
            sandboxes: self.sandboxes,
            cpu: self.cpu.clone(),
            memory: self.memory.clone(),
            disk: self.disk.clone(),
        }
    }

    /// The quotas. The check at the start refuses a value that cannot be read.
    #[must_use]
    pub fn quotas(&self) -> Quotas {
        let [tenants, users, keys] = self.groups().map(|(section, default, named)| {
            let named = named.iter();
            let named = named.map(|(name, entry)| {
                let quota = entry.read().unwrap_or_default();
                (written(section, name), quota)
            });
            QuotaGroup {
                default: default.read().unwrap_or_default(),
                named: named.collect(),
            }
        });
        Quotas {
            tenants,
            users,
            keys,
        }
    }

    /// The entries for each kind of subject, with the key of the section that has those of single ones.
    fn groups(&self) -> [(&'static str, QuotaEntry, &HashMap<String, QuotaEntry>); 3] {
        [
            ("tenants", self.default_entry(), &self.tenants),
            ("users", self.user.clone(), &self.users),
            ("keys", self.key.clone(), &self.keys),
        ]
    }

    /// Checks that amounts can be read, and that no name is there twice.
    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let refuse = |key: String| {
            let rule = "must be an amount such as \"1500m\" or \"2\" for cpu, \"16Gi\" for memory and disk";
            Err(ConfigError::rule(file, key, rule))
        };
        for (section, default, named) in self.groups() {
            if let Err(key) = default.read() {
                let section = match section {
                    "users" => "user.",
                    "keys" => "key.",
                    _ => "",
                };
                return refuse(format!("quotas.{section}{key}"));
            }
            let mut names = HashSet::new();
            for (name, entry) in named {
                if !names.insert(written(section, name)) {
                    let key = format!("quotas.{section}.{name}");
                    let rule = "must not be there in several spellings";
                    return Err(ConfigError::rule(file, key, rule));
                }
                if let Err(key) = entry.read() {
                    return refuse(format!("quotas.{section}.{name}.{key}"));
                }
            }
        }
        Ok(())
    }
}

/// A name as accounts have it: users sign in with capital letters, too.
fn written(section: &str, name: &str) -> String {
    let name = name.trim();
    match section {
        "users" => name.to_ascii_lowercase(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_users_are_found_however_they_are_written() {
        let read = |text: &str| toml::from_str::<QuotasSection>(text).unwrap();
        let section = read("[users.' Zoe']\nsandboxes = 2\n[tenants.Team]\nsandboxes = 3");
        section.check(Path::new("c.toml")).unwrap();
        let quotas = section.quotas();
        assert!(quotas.users.named.contains_key("zoe"), "{quotas:?}");
        assert!(quotas.tenants.named.contains_key("Team"), "{quotas:?}");
        let twice = read("[users.Zoe]\nsandboxes = 2\n[users.zoe]\nsandboxes = 3");
        let error = twice.check(Path::new("c.toml")).unwrap_err().to_string();
        assert!(error.contains("quotas.users."), "{error}");
    }
}
