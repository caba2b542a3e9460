//! The grammar of image references: `[host[:port]/]path[:tag][@digest]`.
//!
//! It is checked before a reference reaches an engine's API, where it becomes part of a path.

/// Longest reference, in bytes.
const REFERENCE_MAX: usize = 4096;
/// Longest name without tag and digest, in bytes.
const NAME_MAX: usize = 255;
/// Longest tag, in bytes.
const TAG_MAX: usize = 128;

/// A text that is no image reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an image reference such as debian:12 or registry.example.org/team/app:1.0")]
pub struct NotAnImage;

/// Checks a reference.
///
/// # Errors
/// When it does not follow the grammar.
pub fn check(reference: &str) -> Result<(), NotAnImage> {
    let (rest, digest) = match reference.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (reference, None),
    };
    let path_start = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match rest[path_start..].split_once(':') {
        Some((last, tag)) => (&rest[..path_start + last.len()], Some(tag)),
        None => (rest, None),
    };
    let valid = reference.len() <= REFERENCE_MAX
        && is_name(name)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    if valid { Ok(()) } else { Err(NotAnImage) }
}

fn is_name(name: &str) -> bool {
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => {
            (Some(first), rest)
        }
        _ => (None, name),
    };
    name.len() <= NAME_MAX && host.is_none_or(is_host) && path.split('/').all(is_component)
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (host, None),
    };
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    name.split('.').all(label) && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Lower-case words with `.`, `_`, `__` or dashes between them.
fn is_component(component: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = component.as_bytes();
    let ends = bytes.first().copied().is_some_and(word) && bytes.last().copied().is_some_and(word);
    let separators = bytes
        .chunk_by(|a, b| !word(*a) && !word(*b))
        .all(|run| match run {
            [b] if word(*b) => true,
            b"." | b"_" | b"__" => true,
            run => run.iter().all(|b| *b == b'-'),
        });
    ends && separators
}

fn is_tag(tag: &str) -> bool {
    let bytes = tag.as_bytes();
    let word = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    bytes.len() <= TAG_MAX
        && bytes.first().is_some_and(word)
        && bytes.iter().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

fn is_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        algorithm
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'.' | b'-' | b'_'))
            && !algorithm.is_empty()
            && hex.len() >= 32
            && hex.bytes().all(|b| b.is_ascii_hexdigit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_that_engines_take_pass() {
        let digest = format!("debian@sha256:{}", "0f".repeat(32));
        for good in [
            "debian",
            "debian:12",
            "debian:bookworm-slim",
            "opensandbox/base:latest",
            "a/b/c_d__e-f---g.h:V1.2_x",
            "localhost/x",
            "localhost:5000/x:1",
            "Registry.Example.org:443/team/app",
            "no-such-registry.invalid/no/such:image",
            &digest,
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
    }

    #[test]
    fn nothing_becomes_a_path_of_the_engine() {
        for bad in [
            "",
            " ",
            "a b",
            "../events?x=",
            "../images/get?names=big&x=",
            "a/../b",
            "a//b",
            "/a",
            "a/",
            "UPPER/x",
            "a:",
            "a:b:c",
            "a:b/c?d",
            "a%2e",
            "a@sha256:xyz",
            "a@",
            "host:99999/x",
            "ä",
            "a#b",
        ] {
            assert_eq!(check(bad), Err(NotAnImage), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn what_passes_is_safe_in_a_path(text in ".{0,40}") {
            if check(&text).is_ok() {
                proptest::prop_assert!(!text.contains("..") && !text.contains(['?', '#', '%', ' ']));
            }
        }
    }
}
