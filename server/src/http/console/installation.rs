//! What the page about settings shows of this installation, as far as HTTP does not know it itself.

use std::sync::Arc;

use async_trait::async_trait;
use osb_app::view::{ConfigView, StoreView};
use tokio::sync::Mutex;

/// The configuration, the store and the support bundle of the running server. What it returns has no
/// secrets.
#[async_trait]
pub trait Installation: Send + Sync {
    /// The configuration in force.
    fn config(&self) -> ConfigView;

    /// Looks through the whole store for damage.
    ///
    /// # Errors
    /// Why it cannot be read, in words.
    async fn check_store(&self) -> Result<StoreView, String>;

    /// What a report about a problem needs: the name of an archive, and the archive.
    ///
    /// # Errors
    /// Why there is none, in words.
    async fn support_bundle(&self) -> Result<(String, Vec<u8>), String>;
}

/// An installation whose slow answers are made one at a time. Clones share it.
#[derive(Clone)]
pub(super) struct SharedInstallation {
    /// The installation.
    pub(super) installation: Arc<dyn Installation>,
    /// Held while an answer is made.
    pub(super) turn: Arc<Mutex<()>>,
}

impl From<Arc<dyn Installation>> for SharedInstallation {
    fn from(installation: Arc<dyn Installation>) -> Self {
        Self {
            installation,
            turn: Arc::default(),
        }
    }
}
