//! The images on the host.

use std::time::Duration;

use osb_runtime::LocalImage;
use osb_service::ErrorChain;
use tokio::time::timeout;
use tracing::debug;

use super::Service;

/// Longest wait for the list: a page without it is more useful than no page.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the images on the host take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageUse {
    /// How many there are, by their names.
    pub count: usize,
    /// Their sizes together, in bytes. Layers that several have count for each.
    pub bytes: u64,
    /// How many of them nothing uses and a registry has.
    pub unused: usize,
    /// The sizes of these, in bytes.
    pub unused_bytes: u64,
    /// Whether the server removes these.
    pub is_collected: bool,
}

impl Service {
    /// What the images on the host take; `None` if the runtime does not list them, or not in time.
    pub async fn image_use(&self) -> Option<ImageUse> {
        let images = self.images().await?;
        let runtime = self.inner.runtime.images()?;
        let unused = timeout(PATIENCE, runtime.list_unused()).await.ok()?.ok()?;
        Some(ImageUse {
            count: images.len(),
            bytes: images.iter().map(|image| image.bytes).sum(),
            unused: unused.len(),
            unused_bytes: unused.iter().map(|image| image.bytes).sum(),
            is_collected: self.inner.limits.image_gc.is_some(),
        })
    }

    /// Lists the images that need no pull. `None` if the runtime has no list, or does not answer in
    /// time.
    pub async fn images(&self) -> Option<Vec<LocalImage>> {
        self.available().ok()?;
        let images = self.inner.runtime.images()?;
        match timeout(PATIENCE, images.list_images()).await {
            Ok(Ok(images)) => Some(images),
            Ok(Err(error)) => {
                debug!(error = %ErrorChain(&error), "the images of the host are not known");
                None
            }
            Err(_) => {
                debug!("the runtime takes too long to list its images");
                None
            }
        }
    }
}
