//! `[[webhooks]]` and `[webhooks_delivery]`: receivers of events.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use osb_service::config::ConfigError;
use reqwest::Certificate;
use secrecy::SecretString;
use serde::{Deserialize, Serialize, Serializer};

use super::mask;
use crate::webhooks::{ConfiguredWebhook, OpenNetworks, Options, Schedule, SigningKey, rules};

/// Most pauses between attempts.
const PAUSES_MAX: usize = 20;
/// Longest pause between attempts, in seconds: a day.
const PAUSE_MAX: u64 = 86_400;
/// Longest time that deliveries are kept, in hours: a year.
const KEEP_MAX: u64 = 8760;
/// Longest time of an attempt, in seconds.
const TIMEOUT_MAX: u64 = 60;
/// Most messages that may wait for one receiver.
const PENDING_MAX: u64 = 1_000_000;

/// `[[webhooks]]`: a receiver.
#[derive(Debug, Deserialize, Serialize)]
pub struct WebhookEntry {
    /// Name, by which the entry is found again.
    pub name: String,
    /// Where messages go. Its path and query may be secret.
    #[serde(serialize_with = "show_origin")]
    pub url: String,
    /// What signs messages.
    #[serde(default, serialize_with = "mask::mask_key")]
    pub secret: Option<SecretString>,
    /// File that contains the secret.
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Types of events; all when empty.
    #[serde(default)]
    pub events: Vec<String>,
    /// The tenant about whose sandboxes it is; all when absent.
    #[serde(default)]
    pub tenant: Option<String>,
}

/// `[webhooks_delivery]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct WebhooksDeliverySection {
    /// Whether messages may be sent to any address.
    pub allow_private: bool,
    /// Networks, beside the public Internet, that messages may be sent to.
    pub allow_networks: Vec<String>,
    /// File of the certificates of authorities that are trusted besides those of the machine, in PEM.
    pub ca_file: Option<PathBuf>,
    /// Seconds that a receiver has to answer.
    pub timeout_seconds: u64,
    /// Seconds between attempts.
    pub retry_seconds: Vec<u64>,
    /// Hours for which delivered messages are kept.
    pub keep_delivered_hours: u64,
    /// Hours for which messages are kept that were given up.
    pub keep_dead_hours: u64,
    /// Most messages that wait for one receiver.
    pub max_pending: u64,
}

impl Default for WebhooksDeliverySection {
    fn default() -> Self {
        let Options {
            timeout,
            schedule,
            keep_delivered,
            keep_dead,
            max_pending,
            ..
        } = Options::default();
        let hours = |time: Duration| time.as_secs() / 3600;
        Self {
            allow_private: false,
            allow_networks: Vec::new(),
            ca_file: None,
            timeout_seconds: timeout.as_secs(),
            retry_seconds: schedule.pauses.iter().map(Duration::as_secs).collect(),
            keep_delivered_hours: hours(keep_delivered),
            keep_dead_hours: hours(keep_dead),
            max_pending,
        }
    }
}

impl WebhookEntry {
    /// The secret in force.
    fn read_secret(&self) -> Result<SecretString, (&'static str, String)> {
        let (key, secret) = match (&self.secret, &self.secret_file) {
            (Some(secret), None) => ("secret", secret.clone()),
            (None, Some(file)) => {
                let text = fs::read_to_string(file).map_err(|error| {
                    ("secret_file", format!("cannot be read: {}", error.kind()))
                })?;
                ("secret_file", SecretString::from(text.trim()))
            }
            (Some(_), Some(_)) => {
                let rule = "must not be set together with secret";
                return Err(("secret_file", rule.to_owned()));
            }
            (None, None) => return Err(("secret", "must be set, or secret_file".to_owned())),
        };
        match SigningKey::of(&secret) {
            Some(_) => Ok(secret),
            None => Err((key, rules::SECRET_RULE.to_owned())),
        }
    }

    /// The checked entry, or the key that breaks a rule.
    fn read(&self) -> Result<ConfiguredWebhook, (&'static str, String)> {
        let tenant = self.tenant.as_deref().map(rules::tenant).transpose();
        Ok(ConfiguredWebhook {
            name: rules::name(&self.name).map_err(|rule| ("name", rule))?,
            url: rules::url(&self.url).map_err(|rule| ("url", rule))?.into(),
            secret: self.read_secret()?,
            events: rules::events(&self.events).map_err(|rule| ("events", rule))?,
            tenant: tenant.map_err(|rule| ("tenant", rule))?,
        })
    }
}

impl WebhooksDeliverySection {
    /// The networks that are opened; `None` when one cannot be read.
    fn networks(&self) -> Option<Vec<IpNet>> {
        let networks = self.allow_networks.iter();
        networks.map(|text| text.parse().ok()).collect()
    }

    /// Authorities that are trusted besides those of the machine, or the rule that the file breaks.
    fn authorities(&self) -> Result<Vec<Certificate>, String> {
        let Some(file) = &self.ca_file else {
            return Ok(Vec::new());
        };
        let pem = fs::read(file).map_err(|error| format!("cannot be read: {}", error.kind()))?;
        rules::authorities(&pem)
    }

    /// How webhooks work, with these receivers. The check at the start refuses what cannot be read.
    #[must_use]
    pub fn options(&self, entries: &[WebhookEntry]) -> Options {
        let hours = |hours: u64| Duration::from_secs(hours.saturating_mul(3600));
        let read = |entry: &WebhookEntry| entry.read().ok();
        let pauses = self.retry_seconds.iter().copied();
        Options {
            configured: entries.iter().filter_map(read).collect(),
            open: OpenNetworks {
                all: self.allow_private,
                networks: self.networks().unwrap_or_default(),
            },
            authorities: self.authorities().unwrap_or_default(),
            timeout: Duration::from_secs(self.timeout_seconds),
            schedule: Schedule {
                pauses: pauses.map(Duration::from_secs).collect(),
                ..Schedule::default()
            },
            keep_delivered: hours(self.keep_delivered_hours),
            keep_dead: hours(self.keep_dead_hours),
            max_pending: self.max_pending,
        }
    }

    pub(super) fn check(&self, entries: &[WebhookEntry], file: &Path) -> Result<(), ConfigError> {
        for (index, entry) in entries.iter().enumerate() {
            let refuse = |key: &str, rule: String| {
                let key = format!("webhooks[{index}].{key}");
                ConfigError::rule(file, key, rule)
            };
            entry.read().map_err(|(key, rule)| refuse(key, rule))?;
            let is_same = |other: &WebhookEntry| other.name.trim() == entry.name.trim();
            if entries[..index].iter().any(is_same) {
                return Err(refuse("name", "must be unique".to_owned()));
            }
        }
        if entries.len() > rules::WEBHOOKS_MAX {
            let rule = format!("must have at most {} entries", rules::WEBHOOKS_MAX);
            return Err(ConfigError::rule(file, "webhooks", rule));
        }
        let rule = |key: &str, rule: String| {
            let key = format!("webhooks_delivery.{key}");
            Err(ConfigError::rule(file, key, rule))
        };
        if self.networks().is_none() {
            let text = "must be a list of networks such as \"10.0.0.0/8\"";
            return rule("allow_networks", text.to_owned());
        }
        if let Err(text) = self.authorities() {
            return rule("ca_file", text);
        }
        if !(1..=TIMEOUT_MAX).contains(&self.timeout_seconds) {
            return rule("timeout_seconds", format!("must be 1 to {TIMEOUT_MAX}"));
        }
        let pauses = &self.retry_seconds;
        let in_range = |pause: &u64| (1..=PAUSE_MAX).contains(pause);
        if pauses.len() > PAUSES_MAX || !pauses.iter().all(in_range) {
            let text = format!("must be at most {PAUSES_MAX} times of 1 to {PAUSE_MAX} seconds");
            return rule("retry_seconds", text);
        }
        for (key, hours) in [
            ("keep_delivered_hours", self.keep_delivered_hours),
            ("keep_dead_hours", self.keep_dead_hours),
        ] {
            if hours > KEEP_MAX {
                return rule(key, format!("must be at most {KEEP_MAX}"));
            }
        }
        if !(1..=PENDING_MAX).contains(&self.max_pending) {
            return rule("max_pending", format!("must be 1 to {PENDING_MAX}"));
        }
        Ok(())
    }
}

/// Scheme, host and port of a URL. The rest may be secret.
fn show_origin<S: Serializer>(url: &str, to: S) -> Result<S::Ok, S::Error> {
    let origin = rules::url(url).map(|url| url.origin().ascii_serialization());
    to.serialize_str(&origin.unwrap_or_default())
}
