//! A sandbox that tests an installation.

use serde_json::{Value, json};

use super::{
    defaults::{IDLE, PUBLIC_IMAGE},
    host_images::{Presence, presence},
    presets::PRESETS,
    words,
};
use crate::{
    backend::ConsoleBackend,
    error::ConsoleError,
    view::{HostImages, TestSandbox},
};

/// The shortest life that the server allows, in seconds: it outlives a page that was closed.
const LIFE: i64 = 60;

/// Creates one from an image that is on the host, if a preset has such an image.
///
/// # Errors
/// The domain's.
pub async fn start_trial(backend: &dyn ConsoleBackend) -> Result<TestSandbox, ConsoleError> {
    let image = image(&backend.images().await);
    let id = backend.create(request(image)).await?;
    Ok(TestSandbox {
        id,
        image: image.to_owned(),
    })
}

/// The image of the first preset that is on the host.
fn image(known: &HostImages) -> &'static str {
    let images = PRESETS.iter().map(|preset| preset.image);
    let is_here = |image: &&str| matches!(presence(known, image), Presence::Here(_));
    images.clone().find(is_here).unwrap_or(PUBLIC_IMAGE)
}

fn request(image: &str) -> Value {
    json!({
        "image": { "uri": image },
        "entrypoint": words::split(IDLE).unwrap_or_default(),
        "timeout": LIFE,
        "resourceLimits": { "cpu": "500m", "memory": "128Mi" },
        "metadata": { "name": "test-sandbox" },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::HostImage;

    #[test]
    fn an_image_on_the_host_is_preferred() {
        let known = |reference: &str| HostImages {
            images: Some(vec![HostImage {
                reference: reference.to_owned(),
                bytes: 1,
            }]),
            of_presets_only: false,
            memory_bytes: None,
        };
        assert_eq!(
            image(&known("opensandbox/base:latest")),
            "opensandbox/base:latest"
        );
        assert_eq!(image(&known("other:1")), PUBLIC_IMAGE);
        assert_eq!(image(&HostImages::default()), PUBLIC_IMAGE);
    }
}
