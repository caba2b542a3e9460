//! The images that sandboxes can be created from without a pull.

use std::time::Duration;

use async_trait::async_trait;
use osb_protocol::WireTime;

use crate::RuntimeError;

/// Lists and removes the images on the host of a back end.
#[async_trait]
pub trait Images: Send + Sync {
    /// Lists all images with a name, sorted by name.
    async fn list_images(&self) -> Result<Vec<LocalImage>, RuntimeError>;

    /// Lists the images that nothing uses and that can be pulled again. Those of snapshots and templates,
    /// of this project, and those that were made on the host are none of them.
    async fn list_unused(&self) -> Result<Vec<UnusedImage>, RuntimeError>;

    /// The name of an image in full, as [`UnusedImage::names`] has it.
    fn full_name(&self, reference: &str) -> String;

    /// Removes an image, unless something uses it by now. Returns whether this call removed it.
    ///
    /// # Errors
    /// When the back end does not remove it for another reason.
    async fn remove_unused(&self, image: &UnusedImage) -> Result<bool, RuntimeError>;

    /// Removes what builds have kept and have not used for a time. Returns how many bytes that was.
    ///
    /// # Errors
    /// When the back end does not do so.
    async fn prune_build_cache(&self, unused_for: Duration) -> Result<u64, RuntimeError>;
}

/// An image on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalImage {
    /// Name and tag, as a create request names it.
    pub reference: String,
    /// Size of its layers in bytes. Images may share layers.
    pub bytes: u64,
}

/// An image that nothing uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedImage {
    /// The back end's id of it.
    pub id: String,
    /// Its names in full: with the tag or the digest, and without what a short name lacks.
    pub names: Vec<String>,
    /// Size of its layers in bytes. Images may share layers.
    pub bytes: u64,
    /// When it got its latest name, by the back end's clock. `None` if it does not say: many engines do
    /// not for a pull.
    pub named_at: Option<WireTime>,
}
