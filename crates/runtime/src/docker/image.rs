//! References of images.

use osb_protocol::Feature;

use super::KIND;
use crate::{RuntimeError, Source};

/// Returns the image that a sandbox is created from.
pub(super) fn reference(source: &Source) -> Result<&str, RuntimeError> {
    let unsupported = |feature| RuntimeError::Unsupported {
        feature,
        runtime: KIND,
    };
    match source {
        Source::Image(image) => Ok(image),
        Source::Snapshot(_) => Err(unsupported(Feature::Snapshots)),
        Source::Pool(_) => Err(unsupported(Feature::Pools)),
    }
}

/// Splits a reference into name and tag or digest. The default tag is `latest`: with an empty tag,
/// the engine would pull every tag.
pub(super) fn split_reference(image: &str) -> (&str, &str) {
    if let Some((name, digest)) = image.split_once('@') {
        return (name, digest);
    }
    let path = image.rfind('/').map_or(0, |slash| slash + 1);
    match image[path..].find(':') {
        Some(colon) => (&image[..path + colon], &image[path + colon + 1..]),
        None => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::split_reference;

    #[test]
    fn references_are_split_at_tag_or_digest() {
        for (image, want) in [
            ("debian", ("debian", "latest")),
            ("debian:12", ("debian", "12")),
            ("r.example:5000/a/b", ("r.example:5000/a/b", "latest")),
            ("r.example:5000/a/b:1.2", ("r.example:5000/a/b", "1.2")),
            ("a/b@sha256:00ff", ("a/b", "sha256:00ff")),
        ] {
            assert_eq!(split_reference(image), want, "{image}");
        }
    }
}
