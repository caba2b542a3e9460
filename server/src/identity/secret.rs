//! Secrets of API keys: 256 random bits. The store and the memory have their SHA-256 digests; without
//! structure in a secret a slow hash would add nothing.

use std::fmt::Write as _;

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

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

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
