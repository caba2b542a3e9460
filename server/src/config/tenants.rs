//! `[tenants]` (contract: lifecycle A7, A13).

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use osb_service::config::ConfigError;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use crate::identity::tenants::{HttpOptions, Provider};

/// Path of the file of tenants; [`DEFAULT_FILE`] when absent.
pub const ENV_TENANTS: &str = "SANDBOX_TENANTS_CONFIG_PATH";
/// The file of tenants when the environment names none.
pub(super) const DEFAULT_FILE: &str = "~/.opensandbox/tenants.toml";
/// Longest of the times: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// Where keys of tenants come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TenantProvider {
    /// A file.
    #[default]
    File,
    /// An HTTP service.
    Http,
}

/// `[tenants]`. Its presence limits each API key to one tenant.
#[derive(Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TenantsSection {
    /// Where keys of tenants come from.
    pub provider: TenantProvider,
    /// Address of the HTTP service.
    #[serde(serialize_with = "super::mask::mask_address")]
    pub endpoint: Option<String>,
    /// Seconds for which an expired answer serves while the service fails.
    pub max_stale_seconds: f64,
    /// Seconds that one answer may take.
    pub timeout_seconds: f64,
    /// Further header of each request to the service.
    pub auth_header: Option<String>,
    /// Its value.
    #[serde(serialize_with = "super::mask::mask_key")]
    pub auth_token: Option<SecretString>,
    /// The file of tenants, which only the environment names.
    #[serde(skip)]
    pub file: PathBuf,
}

impl Default for TenantsSection {
    fn default() -> Self {
        Self {
            provider: TenantProvider::File,
            endpoint: None,
            max_stale_seconds: 300.0,
            timeout_seconds: 5.0,
            auth_header: None,
            auth_token: None,
            file: PathBuf::from(DEFAULT_FILE),
        }
    }
}

impl TenantsSection {
    /// Where keys of tenants come from.
    #[must_use]
    pub fn provider(&self) -> Provider {
        let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        match self.provider {
            TenantProvider::File => Provider::File(self.file.clone()),
            TenantProvider::Http => Provider::Http(HttpOptions {
                endpoint: self.endpoint.clone().unwrap_or_default().trim().to_owned(),
                timeout: seconds(self.timeout_seconds),
                max_stale: seconds(self.max_stale_seconds),
                auth: self.auth_header.clone().zip(self.auth_token.clone()),
            }),
        }
    }

    /// Rules that types do not express.
    pub(super) fn check(&self, has_key: bool, file: &Path) -> Result<(), ConfigError> {
        let rule = |key: &str, rule: &str| Err(ConfigError::rule(file, key, rule));
        if has_key {
            return rule(
                "server.api_key",
                "must be empty with [tenants], whose keys replace it",
            );
        }
        let seconds = 0.0..=LONGEST_SECONDS;
        if !seconds.contains(&self.max_stale_seconds) {
            return rule("tenants.max_stale_seconds", "must be 0 to 86400 seconds");
        }
        if self.timeout_seconds == 0.0 || !seconds.contains(&self.timeout_seconds) {
            let text = "must be more than 0 and at most 86400 seconds";
            return rule("tenants.timeout_seconds", text);
        }
        if self.provider != TenantProvider::Http {
            return Ok(());
        }
        let endpoint = self.endpoint.as_deref().unwrap_or_default().trim();
        if !endpoint.starts_with("https://") && !endpoint.starts_with("http://") {
            let text = "must be an http:// or https:// address with provider = \"http\"";
            return rule("tenants.endpoint", text);
        }
        let header = self.auth_header.as_deref().unwrap_or("x");
        if header.parse::<http::HeaderName>().is_err() {
            return rule("tenants.auth_header", "must be the name of a header");
        }
        Ok(())
    }
}
