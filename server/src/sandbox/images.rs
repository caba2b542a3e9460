//! The images on the host.

use std::time::Duration;

use osb_runtime::LocalImage;
use osb_service::ErrorChain;
use tokio::time::timeout;
use tracing::debug;

use super::Service;

/// Longest wait for the list: a page without it is more useful than no page.
const PATIENCE: Duration = Duration::from_secs(2);

impl Service {
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
