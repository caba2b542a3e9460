//! Secrets of API keys: 256 random bits. The store and the memory have their SHA-256 digests; without
//! structure in a secret a slow hash would add nothing.

use std::{borrow::Cow, fmt::Write as _};

use rand::RngExt;
use secrecy::SecretString;
use sha2::{Digest, Sha256};

/// Beginning of every secret, by which scanners of leaked secrets recognise it.
pub(super) const PREFIX: &str = "osb_";
/// Characters of a secret that are shown, the prefix included: 32 bits.
const SHOWN: usize = PREFIX.len() + 8;

/// A new secret with the beginning that may be shown.
pub(super) fn generate() -> (SecretString, String) {
    let random: [u8; 32] = rand::rng().random();
    let mut text = String::with_capacity(PREFIX.len() + 2 * random.len());
    text.push_str(PREFIX);
    for byte in random {
        let _ = write!(text, "{byte:02x}");
    }
    let shown = text[..SHOWN].to_owned();
    (text.into(), shown)
}

/// What a secret is recognised by.
pub(super) fn digest(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The text with every secret of an API key in it cut to the beginning that may be shown. For texts of
/// clients that are logged or recorded: a client may send a secret where an id belongs.
#[must_use]
pub fn redact_keys(text: &str) -> Cow<'_, str> {
    let Some((plain, mut rest)) = text.split_once(PREFIX) else {
        return Cow::Borrowed(text);
    };
    let mut redacted = plain.to_owned();
    loop {
        redacted.push_str(PREFIX);
        let is_outside = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        let (secret, after) = rest.split_at(rest.find(is_outside).unwrap_or(rest.len()));
        match secret.get(..SHOWN - PREFIX.len()) {
            Some(shown) if shown.len() < secret.len() => {
                redacted.push_str(shown);
                redacted.push('…');
            }
            _ => redacted.push_str(secret),
        }
        match after.split_once(PREFIX) {
            Some((between, next)) => {
                redacted.push_str(between);
                rest = next;
            }
            None => {
                redacted.push_str(after);
                return Cow::Owned(redacted);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn secrets_in_a_text_are_cut_to_what_may_be_shown() {
        let (secret, shown) = generate();
        let secret = secret.expose_secret();
        assert_eq!(redact_keys(secret), format!("{shown}…"));
        let path = format!("/v1/{secret}/a/{secret}?{shown}");
        let expected = format!("/v1/{shown}…/a/{shown}…?{shown}");
        assert_eq!(redact_keys(&path), expected);
        for harmless in [
            "",
            "none",
            "osb_",
            "osb_ä",
            "osb_1234abcd",
            "osb_1234abcd/x",
        ] {
            assert_eq!(redact_keys(harmless), harmless);
        }
        assert_eq!(redact_keys("osb_osb_123456789"), "osb_osb_1234…");
    }

    #[test]
    fn secrets_are_long_and_differ() {
        let ((one, shown), (other, _)) = (generate(), generate());
        let one = one.expose_secret();
        assert_eq!(one.len(), PREFIX.len() + 64);
        assert!(one.starts_with(&shown) && shown.len() == SHOWN);
        assert_ne!(one, other.expose_secret());
        assert_eq!(digest(one.as_bytes()), digest(one.as_bytes()));
        assert_ne!(digest(one.as_bytes()), digest(shown.as_bytes()));
    }
}
