//! Secrets and signatures, as Standard Webhooks defines them, so that its libraries verify messages.

use base64::{Engine, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use rand::RngExt;
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

/// Beginning of every secret.
const PREFIX: &str = "whsec_";
/// Bytes of a secret.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;
/// Version of the signatures.
const VERSION: &str = "v1";
/// The rule for secrets, in words. It does not repeat the secret.
pub(crate) const RULE: &str = "must be whsec_ followed by 24 to 64 bytes in Base64";

/// What signs messages to one receiver. Not shown by `Debug`.
#[derive(Clone)]
pub struct SigningKey(Hmac<Sha256>);

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// The key of a secret; `None` when the secret breaks [`RULE`].
    #[must_use]
    pub fn of(secret: &SecretString) -> Option<Self> {
        let encoded = secret.expose_secret().trim().strip_prefix(PREFIX)?;
        let key = BASE64_STANDARD.decode(encoded).ok()?;
        if !BYTES.contains(&key.len()) {
            return None;
        }
        Hmac::new_from_slice(&key).ok().map(Self)
    }

    /// The value of the header `webhook-signature`; `timestamp` is in Unix seconds.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac = self.0.clone();
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body.as_bytes());
        let signature = BASE64_STANDARD.encode(mac.finalize().into_bytes());
        format!("{VERSION},{signature}")
    }
}

/// A new secret.
pub(super) fn generate() -> SecretString {
    let random: [u8; 32] = rand::rng().random();
    format!("{PREFIX}{}", BASE64_STANDARD.encode(random)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // Computed with Python's hmac and base64 modules.
        let secret = SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = SigningKey::of(&secret).unwrap().sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_have_a_form_and_are_not_shown() {
        let key = |text: &str| SigningKey::of(&SecretString::from(text));
        let (one, other) = (generate(), generate());
        assert_ne!(one.expose_secret(), other.expose_secret());
        assert_eq!(format!("{:?}", SigningKey::of(&one).unwrap()), "SigningKey");
        let encoded = |bytes: usize| format!("whsec_{}", BASE64_STANDARD.encode(vec![7; bytes]));
        assert!(key(&encoded(24)).is_some() && key(&encoded(64)).is_some());
        for bad in [
            "",
            "whsec_",
            "whsec_!",
            "secret",
            &encoded(23),
            &encoded(65),
            &encoded(32)[6..],
        ] {
            assert!(key(bad).is_none(), "{bad}");
        }
    }
}
