//! Which images are on the host, and what else it has for a sandbox.

use std::collections::BTreeMap;

use osb_protocol::resources::ResourceLimits;

use super::{defaults::BASE_IMAGE, presets::PRESETS};
use crate::{ui::Unit, view::HostImages};

/// Whether an image is on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// The server does not say.
    Unknown,
    /// It is, and has this many bytes.
    Here(u64),
    /// It is not.
    Absent,
}

/// Whether an image is on the host, by what the server said about it.
pub(super) fn presence(known: &HostImages, image: &str) -> Presence {
    let Some(images) = &known.images else {
        return Presence::Unknown;
    };
    let wanted = normal(image);
    // The list has names with tags only.
    if wanted.is_empty() || wanted.contains('@') {
        return Presence::Unknown;
    }
    let found = images.iter().find(|it| normal(&it.reference) == wanted);
    match found {
        Some(image) => Presence::Here(image.bytes),
        None if known.of_presets_only && !PRESETS.iter().any(|it| it.image == wanted) => {
            Presence::Unknown
        }
        None => Presence::Absent,
    }
}

/// A reference as the engine lists it: without the default registry, with the default tag.
fn normal(image: &str) -> String {
    let image = image.trim();
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    let image = image.strip_prefix("library/").unwrap_or(image);
    let name = image.rsplit('/').next().unwrap_or_default();
    match name.contains([':', '@']) || name.is_empty() {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

/// What is said about an image below its field.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(super) fn note(known: &HostImages, image: &str) -> String {
    match presence(known, image) {
        Presence::Unknown => "An image that is not on the host is pulled first.".to_owned(),
        Presence::Here(0) => "On this host.".to_owned(),
        Presence::Here(bytes) => format!("On this host, {}.", Unit::Bytes.text(bytes as f64)),
        Presence::Absent if normal(image) == BASE_IMAGE => {
            "Not on this host: cargo xtask up builds it.".to_owned()
        }
        Presence::Absent => {
            "Not on this host: it is pulled first, which can take minutes.".to_owned()
        }
    }
}

/// Help of the field with the limit of memory. Engines accept a limit above what the host has.
#[expect(clippy::cast_precision_loss, reason = "shown with two digits")]
pub(super) fn memory_note(known: &HostImages, limit: &str) -> String {
    let limits = BTreeMap::from([("memory".to_owned(), limit.trim().to_owned())]);
    let limit = ResourceLimits::parse(&limits).ok();
    let limit = limit.and_then(|limits| u64::try_from(limits.memory_bytes?).ok());
    match (limit, known.memory_bytes) {
        (Some(limit), Some(all)) if limit > all => format!(
            "More than this host has ({}): the limit will not hold the sandbox back.",
            Unit::Bytes.text(all as f64)
        ),
        _ => "512Mi, 2Gi … Empty: no limit.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::HostImage;

    fn known(of_presets_only: bool) -> HostImages {
        let image = |reference: &str, bytes| HostImage {
            reference: reference.to_owned(),
            bytes,
        };
        HostImages {
            images: Some(vec![
                image("debian:bookworm-slim", 100),
                image("debian:latest", 0),
                image("r.example:5000/a/b:1", 1_048_576),
            ]),
            of_presets_only,
            memory_bytes: Some(1 << 30),
        }
    }

    #[test]
    fn a_limit_above_the_memory_of_the_host_is_pointed_out() {
        for limit in ["1025Mi", " 2Gi ", "1073741825"] {
            let note = memory_note(&known(false), limit);
            assert!(note.contains("this host has (1.0 GiB)"), "{limit}: {note}");
            assert!(memory_note(&HostImages::default(), limit).starts_with("512Mi"));
        }
        for limit in ["", "1Gi", "512Mi", "lots", "-1"] {
            assert!(
                memory_note(&known(false), limit).starts_with("512Mi"),
                "{limit}"
            );
        }
    }

    #[test]
    fn images_are_known_by_every_spelling() {
        for (image, want) in [
            ("debian:bookworm-slim", Presence::Here(100)),
            (
                " docker.io/library/debian:bookworm-slim ",
                Presence::Here(100),
            ),
            ("debian", Presence::Here(0)),
            ("r.example:5000/a/b:1", Presence::Here(1_048_576)),
            ("r.example:5000/a/b", Presence::Absent),
            ("debian@sha256:00", Presence::Unknown),
            ("", Presence::Unknown),
        ] {
            assert_eq!(presence(&known(false), image), want, "{image}");
            assert_eq!(presence(&HostImages::default(), image), Presence::Unknown);
        }
    }

    #[test]
    fn what_a_tenant_does_not_see_is_not_called_absent() {
        assert_eq!(presence(&known(true), "other:1"), Presence::Unknown);
        assert_eq!(presence(&known(true), BASE_IMAGE), Presence::Absent);
    }

    #[test]
    fn an_image_is_described_in_words() {
        let note = |image| note(&known(false), image);
        assert_eq!(note("r.example:5000/a/b:1"), "On this host, 1.0 MiB.");
        assert_eq!(note("debian"), "On this host.");
        assert!(note(BASE_IMAGE).contains("cargo xtask up"));
        assert!(note("other:1").contains("pulled first"));
        assert!(note("").contains("pulled first"));
    }
}
