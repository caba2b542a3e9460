//! Keys of tenants (contract: lifecycle A7): from a file, or asked of an HTTP service.

mod file;
mod http;

use std::{path::PathBuf, sync::Arc, time::Duration};

use osb_service::Supervisor;
use secrecy::SecretString;

pub use self::file::TenantFileError;
use self::{file::FileTenants, http::HttpTenants};
use super::Principal;

/// Where keys of tenants come from.
#[derive(Clone, Debug)]
pub enum Provider {
    /// A TOML file.
    File(PathBuf),
    /// An HTTP service.
    Http(HttpOptions),
}

/// How an HTTP service is asked.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Address that is asked for each unknown key.
    pub endpoint: String,
    /// Longest time of one answer.
    pub timeout: Duration,
    /// How long an answer that has expired serves while the service fails.
    pub max_stale: Duration,
    /// Further header of each request, with its value.
    pub auth: Option<(String, SecretString)>,
}

/// Why there are no tenants.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    /// The file is wrong.
    #[error(transparent)]
    File(#[from] TenantFileError),
    /// No HTTP client can be made.
    #[error("cannot ask {endpoint} for tenants")]
    Client {
        /// The service.
        endpoint: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Keys of tenants.
#[derive(Debug)]
pub enum Tenants {
    /// From a file.
    #[doc(hidden)]
    File(FileTenants),
    /// From an HTTP service.
    #[doc(hidden)]
    Http(HttpTenants),
}

impl Tenants {
    /// Reads the file, which is followed until the tasks stop, or prepares to ask the service.
    ///
    /// # Errors
    /// When the file is missing or wrong, or the service cannot be asked.
    pub fn start(provider: Provider, tasks: &Supervisor) -> Result<Self, TenantError> {
        Ok(match provider {
            Provider::File(path) => Self::File(FileTenants::start(path, tasks)?),
            Provider::Http(options) => Self::Http(HttpTenants::new(options, tasks)?),
        })
    }

    /// The tenant of a key of the file.
    pub(super) fn find_in_file(&self, key: &[u8]) -> Option<Arc<Principal>> {
        match self {
            Self::File(file) => file.find(key),
            Self::Http(_) => None,
        }
    }

    /// The same by the digest of the key. An HTTP service is asked by the key itself.
    pub(super) fn find_by_digest(&self, digest: &[u8; 32]) -> Option<Arc<Principal>> {
        match self {
            Self::File(file) => file.find_by_digest(digest),
            Self::Http(_) => None,
        }
    }
}
