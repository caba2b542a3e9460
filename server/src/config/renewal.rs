//! `[renew_intent]` (contract: lifecycle §14.8, §20).

use std::path::Path;

use osb_service::config::ConfigError;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::mask;

/// Schemes of addresses of Redis.
const SCHEMES: [&str; 4] = ["redis://", "rediss://", "redis+unix://", "unix://"];

/// `[renew_intent]`: accesses that renew sandboxes.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct RenewIntentSection {
    /// Whether accesses renew sandboxes that ask for it.
    pub enabled: bool,
    /// Least seconds between two renewals of one sandbox.
    pub min_interval_seconds: u64,
    /// Accesses that gateways report.
    pub redis: RenewRedisSection,
}

/// `[renew_intent.redis]`: a list in which gateways report accesses.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct RenewRedisSection {
    /// Whether to read it.
    pub enabled: bool,
    /// Address of Redis, which may contain a password.
    #[serde(serialize_with = "mask::mask_key")]
    pub dsn: Option<SecretString>,
    /// Key of the list.
    pub queue_key: String,
    /// Readers of the list, and renewals at once.
    pub consumer_concurrency: usize,
}

impl Default for RenewIntentSection {
    fn default() -> Self {
        Self {
            enabled: false,
            min_interval_seconds: 60,
            redis: RenewRedisSection::default(),
        }
    }
}

impl Default for RenewRedisSection {
    fn default() -> Self {
        Self {
            enabled: false,
            dsn: None,
            queue_key: "opensandbox:renew:intent".to_owned(),
            consumer_concurrency: 8,
        }
    }
}

impl RenewIntentSection {
    /// The list to read, if there is one.
    #[must_use]
    pub fn queue(&self) -> Option<&RenewRedisSection> {
        (self.enabled && self.redis.enabled).then_some(&self.redis)
    }

    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let rule = |key: &str, rule: &str| {
            let key = format!("renew_intent.{key}");
            Err(ConfigError::rule(file, &key, rule))
        };
        if self.min_interval_seconds == 0 {
            return rule("min_interval_seconds", "must be at least 1 second");
        }
        if self.redis.queue_key.is_empty() {
            return rule("redis.queue_key", "must not be empty");
        }
        if self.redis.consumer_concurrency == 0 {
            return rule("redis.consumer_concurrency", "must be at least 1");
        }
        if !self.redis.enabled {
            return Ok(());
        }
        let dsn = self.redis.dsn.as_ref().map(ExposeSecret::expose_secret);
        let dsn = dsn.unwrap_or_default().trim();
        if dsn.is_empty() {
            return rule("redis.dsn", "must be set when redis is enabled");
        }
        if !SCHEMES.iter().any(|scheme| dsn.starts_with(scheme)) {
            return rule(
                "redis.dsn",
                "must begin with redis://, rediss:// or unix://",
            );
        }
        Ok(())
    }
}
