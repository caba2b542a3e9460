//! The grammar of metadata keys and values, and the list filter over them
//! (contract: lifecycle §4.4, §5.3).

use std::collections::BTreeMap;

/// Prefix of the extensions that a sandbox echoes (contract: lifecycle §4.1).
pub const ECHOED_EXTENSION_PREFIX: &str = "opensandbox.extensions.";
/// Keys under this prefix belong to the platform.
pub const RESERVED_PREFIX: &str = "opensandbox.io/";

/// Longest label value and longest name part of a key, in bytes.
const NAME_MAX: usize = 63;
/// Longest prefix part of a key, in bytes.
const PREFIX_MAX: usize = 253;

/// Which rule a metadata entry broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// The key belongs to the platform.
    #[error("metadata key {0:?} is reserved: keys must not begin with {RESERVED_PREFIX:?}")]
    Reserved(String),
    /// The key does not follow the label grammar.
    #[error(
        "metadata key {0:?} is not a valid label key: [prefix/]name, the name 1 to 63 of \
         [A-Za-z0-9._-] beginning and ending alphanumeric, the prefix a lower-case DNS subdomain"
    )]
    Key(String),
    /// The value does not follow the label grammar.
    #[error(
        "metadata value of {key:?} is not a valid label value: empty, or 1 to 63 of [A-Za-z0-9._-] \
         beginning and ending alphanumeric"
    )]
    Value {
        /// Whose value it is; the value itself is not repeated.
        key: String,
    },
}

impl LabelError {
    /// Key of the entry.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::Reserved(key) | Self::Key(key) | Self::Value { key } => key,
        }
    }
}

/// Checks one key.
///
/// # Errors
/// [`LabelError::Reserved`] or [`LabelError::Key`].
pub fn check_key(key: &str) -> Result<(), LabelError> {
    if key.starts_with(RESERVED_PREFIX) {
        return Err(LabelError::Reserved(key.to_owned()));
    }
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    let valid = is_name(name) && prefix.is_none_or(is_dns_subdomain);
    if valid {
        Ok(())
    } else {
        Err(LabelError::Key(key.to_owned()))
    }
}

/// Checks one value.
///
/// # Errors
/// [`LabelError::Value`].
pub fn check_value(key: &str, value: &str) -> Result<(), LabelError> {
    let valid = value.is_empty() || is_name(value);
    if valid {
        Ok(())
    } else {
        Err(LabelError::Value {
            key: key.to_owned(),
        })
    }
}

/// Checks every entry; all that fail are reported, in order of their keys.
#[must_use]
pub fn check_all(metadata: &BTreeMap<String, String>) -> Vec<LabelError> {
    metadata
        .iter()
        .filter_map(|(key, value)| check_key(key).and_then(|()| check_value(key, value)).err())
        .collect()
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else {
        return false;
    };
    bytes.len() <= NAME_MAX
        && first.is_ascii_alphanumeric()
        && last.is_ascii_alphanumeric()
        && bytes
            .iter()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn is_dns_subdomain(text: &str) -> bool {
    let label = |part: &str| {
        let bytes = part.as_bytes();
        let alnum = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        bytes.first().is_some_and(alnum)
            && bytes.last().is_some_and(alnum)
            && bytes.iter().all(|b| alnum(b) || *b == b'-')
    };
    !text.is_empty() && text.len() <= PREFIX_MAX && text.split('.').all(label)
}

/// A list filter: every entry must match exactly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataFilter(Vec<(String, String)>);

/// A filter segment without `=`.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("metadata filter must be key=value pairs joined by '&', but {0:?} has no '='")]
pub struct FilterError(String);

impl MetadataFilter {
    /// Reads the value of the `metadata` query parameter after URL decoding: `k=v` pairs joined by
    /// `&`. Each key and value is form-decoded until no escape is left: SDKs of generation 1.1
    /// encode once before URL encoding, those of 0.1 twice. No label contains a `%`.
    ///
    /// # Errors
    /// When a segment has no `=`.
    pub fn parse(text: &str) -> Result<Self, FilterError> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for segment in text.split('&').filter(|segment| !segment.is_empty()) {
            let (key, value) = segment
                .split_once('=')
                .ok_or_else(|| FilterError(segment.to_owned()))?;
            let (key, value) = (decode_fully(key), decode_fully(value));
            pairs.retain(|(known, _)| *known != key);
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    /// Reads pairs like [`Self::parse`], and leaves out segments without `=` and those without a key
    /// or a value, as lists of templates do (contract: lifecycle §A3).
    #[must_use]
    pub fn readable_pairs(text: &str) -> BTreeMap<String, String> {
        let pairs = text
            .split('&')
            .filter_map(|segment| segment.split_once('='));
        let pairs = pairs.map(|(key, value)| (decode_fully(key), decode_fully(value)));
        pairs
            .filter(|(key, value)| !key.trim().is_empty() && !value.trim().is_empty())
            .collect()
    }

    /// Whether all pairs are in the metadata.
    #[must_use]
    pub fn matches(&self, metadata: &BTreeMap<String, String>) -> bool {
        self.0
            .iter()
            .all(|(key, value)| metadata.get(key) == Some(value))
    }

    /// Whether the filter lets everything pass.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Layers of encoding that any known client adds, and one more.
const LAYERS_MAX: usize = 3;

/// Decodes layer by layer.
fn decode_fully(text: &str) -> String {
    let mut text = form_decode(text);
    for _ in 1..LAYERS_MAX {
        if !text.contains('%') {
            break;
        }
        text = form_decode(&text);
    }
    text
}

/// Decodes `+` and `%XX`; what is not a valid escape stays as it is.
fn form_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], escape) {
            (_, Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (b'+', None) => {
                out.push(b' ');
                at += 1;
            }
            (byte, None) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_follow_the_label_grammar() {
        for good in [
            "team",
            "a",
            "A.b_c-9",
            "example.com/team",
            "x.opensandbox.io/a",
            &"k".repeat(63),
        ] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "-a",
            "a-",
            "a b",
            "a/b/c",
            "/a",
            "A.com/a",
            "a\n",
            "ä",
            &"k".repeat(64),
            "a./b",
        ] {
            assert!(matches!(check_key(bad), Err(LabelError::Key(_))), "{bad}");
        }
        assert!(matches!(
            check_key("opensandbox.io/id"),
            Err(LabelError::Reserved(_))
        ));
    }

    #[test]
    fn values_may_be_empty_but_never_end_in_a_newline() {
        for good in ["", "a", "1.2_3-4"] {
            assert_eq!(check_value("k", good), Ok(()), "{good}");
        }
        for bad in ["a\n", "a b", "-", &"v".repeat(64)] {
            assert!(check_value("k", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn filters_decode_both_sdk_encodings() {
        let both = MetadataFilter::parse("team=core&env=prod").unwrap();
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect()
        };
        assert!(both.matches(&map(&[("team", "core"), ("env", "prod"), ("x", "y")])));
        assert!(!both.matches(&map(&[("team", "core")])));
        let twice = MetadataFilter::parse("k=a%3Db%26c").unwrap();
        assert!(twice.matches(&map(&[("k", "a=b&c")])));
        let thrice = MetadataFilter::parse("example.com%252Fk=a%253Db").unwrap();
        assert!(thrice.matches(&map(&[("example.com/k", "a=b")])));
        let blank = MetadataFilter::parse("note=").unwrap();
        assert!(blank.matches(&map(&[("note", "")])));
        assert!(!blank.matches(&map(&[])));
        assert!(MetadataFilter::parse("").unwrap().is_empty());
        assert!(MetadataFilter::parse("novalue").is_err());
        let last = MetadataFilter::parse("k=1&k=2").unwrap();
        assert!(last.matches(&map(&[("k", "2")])));
    }

    proptest::proptest! {
        #[test]
        fn filter_parsing_never_panics(text in ".*") {
            let _ = MetadataFilter::parse(&text);
        }
    }

    #[test]
    fn only_whole_pairs_are_read_leniently() {
        let pairs = MetadataFilter::readable_pairs("a=b&c&=d&e=&f=%20&g%2Fh=i%2Bj&a=k");
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(pairs, [("a", "k"), ("g/h", "i+j")]);
    }
}
