//! Image pulls (contract: lifecycle §17.3).

use std::time::Duration;

use bollard::{Docker, auth::DockerCredentials, query_parameters::CreateImageOptionsBuilder};
use futures::StreamExt;
use osb_protocol::{
    Feature,
    lifecycle::{ImageAuth, Platform},
};

use super::{KIND, error};
use crate::{Progress, RuntimeError, Source};

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

/// Pulls an image and reports the progress of its layers. `patience` is the longest wait for the next
/// message.
pub(super) async fn pull(
    docker: &Docker,
    image: &str,
    auth: Option<&ImageAuth>,
    platform: Option<&Platform>,
    progress: &dyn Progress,
    patience: Duration,
) -> Result<(), RuntimeError> {
    let (name, tag) = split_reference(image);
    let mut options = CreateImageOptionsBuilder::default()
        .from_image(name)
        .tag(tag);
    let wanted = platform.map(|platform| format!("{}/{}", platform.os, platform.arch));
    if let Some(wanted) = &wanted {
        options = options.platform(wanted);
    }
    let credentials = auth.map(|auth| DockerCredentials {
        username: Some(auth.username.clone()),
        password: Some(auth.password.clone()),
        ..DockerCredentials::default()
    });
    let mut steps = docker.create_image(Some(options.build()), None, credentials);
    // The engine responds with 200 before it pulls. A failure is a later item of the stream.
    loop {
        let step = match tokio::time::timeout(patience, steps.next()).await {
            Ok(Some(step)) => step,
            Ok(None) => return Ok(()),
            Err(_) => {
                let reason = format!(
                    "the engine reported no progress for {} seconds",
                    patience.as_secs()
                );
                return Err(RuntimeError::ImagePull {
                    image: image.to_owned(),
                    reason,
                });
            }
        };
        let step = step.map_err(|error| {
            let failed = || RuntimeError::ImagePull {
                image: image.to_owned(),
                reason: error::reason(&error),
            };
            error::unavailable(&error).unwrap_or_else(failed)
        })?;
        if let Some(detail) = step.error_detail {
            let reason = detail
                .message
                .unwrap_or_else(|| "the engine reported no reason".to_owned());
            return Err(RuntimeError::ImagePull {
                image: image.to_owned(),
                reason,
            });
        }
        if let (Some(status), id) = (step.status, step.id.unwrap_or_default()) {
            progress.note(format!("{status} {id}").trim());
        }
    }
}

/// Splits a reference into name and tag or digest. The default tag is `latest`: with an empty tag,
/// the engine would pull every tag.
fn split_reference(image: &str) -> (&str, &str) {
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
