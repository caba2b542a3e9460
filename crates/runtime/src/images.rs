//! The images that sandboxes can be created from without a pull.

use async_trait::async_trait;

use crate::RuntimeError;

/// Lists the images on the host of a back end.
#[async_trait]
pub trait Images: Send + Sync {
    /// Lists all images with a name, sorted by name.
    async fn list_images(&self) -> Result<Vec<LocalImage>, RuntimeError>;
}

/// An image on the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocalImage {
    /// Name and tag, as a create request names it.
    pub reference: String,
    /// Size of its layers in bytes. Images may share layers.
    pub bytes: u64,
}
