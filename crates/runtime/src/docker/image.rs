//! References of images.

use std::borrow::Cow;

use bollard::errors::Error;
use osb_protocol::{Feature, lifecycle::Platform};

use super::{KIND, error};
use crate::{RuntimeError, Source};

/// Name of the images that hold snapshots (contract: lifecycle §17.2). The tag is the snapshot's id.
pub(super) const SNAPSHOTS: &str = "opensandbox-snapshots";
/// Folder of the images of templates. The name in it is the installation's id, the tag the template's.
const TEMPLATES: &str = "opensandbox-templates";
/// Name before the digits of an image's id.
const ID_ALGORITHM: &str = "sha256";
/// The registry and the folder that the engine adds to a name without them.
const DEFAULT_PREFIXES: [&str; 3] = ["docker.io/", "index.docker.io/", "library/"];

/// Returns the image that a sandbox of an installation is created from, always with a tag or a digest: the engine also takes
/// a text without one for the beginning of an image's id, and so of any snapshot's.
///
/// # Errors
/// [`RuntimeError::Refused`] for an id of an image, and for a name of a snapshot's or template's.
pub(super) fn reference<'a>(
    source: &'a Source,
    instance: &str,
) -> Result<Cow<'a, str>, RuntimeError> {
    match source {
        Source::Image(image) => {
            if let Some((what, instead)) = forbidden(image) {
                return Err(RuntimeError::Refused {
                    runtime: KIND,
                    reason: format!("image.uri: {what}; {instead}").into(),
                });
            }
            Ok(match split_reference(image) {
                (name, tag) if name.len() == image.len() => Cow::Owned(format!("{name}:{tag}")),
                _ => Cow::Borrowed(image),
            })
        }
        Source::Snapshot(id) => Ok(Cow::Owned(of_snapshot(id))),
        Source::Template(id) => Ok(Cow::Owned(of_template(instance, id))),
        Source::Pool(_) => Err(RuntimeError::Unsupported {
            feature: Feature::Pools,
            runtime: KIND,
        }),
    }
}

/// Why clients must not name an image like this, and what a create names instead. `None` if they may.
pub(super) fn forbidden(image: &str) -> Option<(&'static str, &'static str)> {
    // Whose snapshot or template it is shows only in the store.
    if is_snapshot(image) {
        Some(("it names a snapshot", "use snapshotId"))
    } else if is_template(image) {
        Some(("it names a template", "use templateId"))
    } else if split_reference(image).0 == ID_ALGORITHM {
        Some(("it is the id of an image", "use the image's name"))
    } else {
        None
    }
}

/// The image that holds a snapshot.
pub(super) fn of_snapshot(id: &str) -> String {
    format!("{SNAPSHOTS}:{id}")
}

/// The images of an installation's templates, without a tag. Engines take no capital letters in names,
/// and few signs: an id with any is written in hexadecimal digits.
pub(super) fn templates_of(instance: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if !instance.is_empty() && instance.bytes().all(is_plain) {
        return format!("{TEMPLATES}/{instance}");
    }
    let digits = instance.bytes().map(|byte| format!("{byte:02x}"));
    format!("{TEMPLATES}/x{}", digits.collect::<String>())
}

/// The image of a template.
pub(super) fn of_template(instance: &str, id: &str) -> String {
    format!("{}:{id}", templates_of(instance))
}

/// Whether an image is named like those that hold snapshots.
pub(super) fn is_snapshot(image: &str) -> bool {
    bare_name(image) == SNAPSHOTS
}

/// Whether an image is named like those of templates, of any installation.
pub(super) fn is_template(image: &str) -> bool {
    let (folder, _) = bare_name(image).split_once('/').unwrap_or_default();
    folder == TEMPLATES
}

/// The name of an image without what the engine adds to it, and without tag and digest.
fn bare_name(image: &str) -> &str {
    let (mut name, _) = split_reference(image);
    // A digest may follow a tag.
    (name, _) = split_reference(name);
    for prefix in DEFAULT_PREFIXES {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    name
}

/// The name of an image with its tag or digest, and without what the engine adds to a short one.
pub(super) fn full_name(image: &str) -> String {
    let (_, tag) = split_reference(image);
    let sign = if image.contains('@') { '@' } else { ':' };
    format!("{}{sign}{tag}", bare_name(image))
}

/// Why a snapshot or a template cannot be started, from the engine's error that there is no such image.
/// It is never pulled: no registry has it. `None` for any other source.
pub(super) fn not_startable(source: &Source, failure: &Error) -> Option<RuntimeError> {
    let gone = match source {
        Source::Snapshot(id) => RuntimeError::NoSnapshot(id.clone()),
        Source::Template(id) => RuntimeError::NoTemplate(id.clone()),
        Source::Image(_) | Source::Pool(_) => return None,
    };
    let reason = error::reason(failure);
    Some(match is_of_another_platform(&reason) {
        true => RuntimeError::Refused {
            runtime: KIND,
            reason: format!("platform: {source} is for another one: {reason}").into(),
        },
        false => gone,
    })
}

/// Whether the engine has an image, but not for the requested platform.
fn is_of_another_platform(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    let is_found =
        reason.starts_with("image with reference ") && reason.contains(" was found but ");
    // An engine that keeps images in containerd.
    is_found
        || reason.starts_with("no match for platform")
        || reason.contains(": no match for platform")
}

/// Returns the engine's name of a platform.
pub(super) fn platform_name(platform: &Platform) -> String {
    format!("{}/{}", platform.os, platform.arch)
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
    use super::*;

    const US: &str = "us";

    #[test]
    fn a_template_is_no_image_under_any_of_its_names() {
        let source = Source::Template("tpl-1".to_owned());
        let named = reference(&source, US).unwrap();
        assert_eq!(named, "opensandbox-templates/us:tpl-1");
        assert_eq!(templates_of("t.A"), "opensandbox-templates/x742e41");
        for image in [
            &*named,
            "opensandbox-templates/other",
            "docker.io/opensandbox-templates/us:tpl-1",
            "opensandbox-templates/us:tpl-1@sha256:00ff",
        ] {
            let refused = reference(&Source::Image(image.to_owned()), US).unwrap_err();
            assert!(refused.to_string().contains("templateId"), "{refused}");
        }
        for image in [
            "opensandbox-templates:1",
            "r:5000/opensandbox-templates/a:1",
        ] {
            assert_eq!(
                reference(&Source::Image(image.to_owned()), US).unwrap(),
                image
            );
        }
    }

    #[test]
    fn a_snapshot_is_no_image_under_any_of_its_names() {
        let id = "9f1c2ab4-77d1-4b6e-8f1e-2f6f5d1c0a11";
        let source = Source::Snapshot(id.to_owned());
        let named = reference(&source, US).unwrap();
        assert_eq!(named, format!("opensandbox-snapshots:{id}"));
        for image in [
            &*named,
            "opensandbox-snapshots",
            "opensandbox-snapshots@sha256:00ff",
            "opensandbox-snapshots:a@sha256:00ff",
            "docker.io/library/opensandbox-snapshots:a",
            "index.docker.io/opensandbox-snapshots:a",
        ] {
            let refused = reference(&Source::Image(image.to_owned()), US).unwrap_err();
            assert!(refused.to_string().contains("snapshotId"), "{refused}");
        }
        let digits = "3f2a".repeat(16);
        for image in [
            "sha256:3f2a",
            "sha256",
            &format!("sha256:{digits}"),
            &format!("sha256@sha256:{digits}"),
        ] {
            let refused = reference(&Source::Image(image.to_owned()), US).unwrap_err();
            assert!(refused.to_string().contains("id of an image"), "{refused}");
        }
        for (image, want) in [
            ("a/opensandbox-snapshots:1", "a/opensandbox-snapshots:1"),
            (
                "r:5000/opensandbox-snapshots",
                "r:5000/opensandbox-snapshots:latest",
            ),
            // Without the tag, these would be ids.
            ("3f2a", "3f2a:latest"),
            (&*digits, &*format!("{digits}:latest")),
            ("a@sha256:00ff", "a@sha256:00ff"),
            ("a:1@sha256:00ff", "a:1@sha256:00ff"),
        ] {
            let source = Source::Image(image.to_owned());
            assert_eq!(reference(&source, US).unwrap(), want);
        }
    }

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
