//! How a server shows that it is the one of a store, without showing anything else: it answers a random
//! challenge with a digest of it and of the id that only the store and its server know.

use std::fmt::Write as _;

use rand::RngExt;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Request header with a challenge.
pub const CHALLENGE: &str = "opensandbox-challenge";
/// Response header with the proof.
pub const PROOF: &str = "opensandbox-proof";
/// Bytes of a challenge, which is written in hexadecimal digits.
const CHALLENGE_BYTES: usize = 32;
/// Keeps the digest from meaning anything elsewhere.
const PURPOSE: &[u8] = b"opensandbox server proof\0";

/// A new challenge.
#[must_use]
pub fn challenge() -> String {
    hexadecimal(&rand::rng().random::<[u8; CHALLENGE_BYTES]>())
}

/// The answer to a challenge; `None` for a text that is none.
#[must_use]
pub fn answer(instance: &str, challenge: &[u8]) -> Option<String> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if challenge.len() != 2 * CHALLENGE_BYTES || !challenge.iter().all(is_digit) {
        return None;
    }
    let digest = Sha256::new().chain_update(PURPOSE);
    let digest = digest.chain_update(challenge).chain_update(instance);
    Some(hexadecimal(&digest.finalize()))
}

/// Whether an answer proves that a server knows the id of this store.
#[must_use]
pub fn proves(instance: &str, challenge: &str, given: &[u8]) -> bool {
    let wanted = answer(instance, challenge.as_bytes());
    wanted.is_some_and(|wanted| wanted.as_bytes().ct_eq(given).into())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_server_of_the_store_answers() {
        let (one, other) = (challenge(), challenge());
        assert_ne!(one, other);
        let proof = answer("id", one.as_bytes()).unwrap();
        assert!(proves("id", &one, proof.as_bytes()));
        assert!(!proves("id", &other, proof.as_bytes()), "a replay");
        assert!(!proves("another", &one, proof.as_bytes()));
        assert!(!proves("id", &one, b""));
        assert!(!proof.contains("id") && proof.len() == 64);
        for bad in ["", "ab", &one[1..], &"g".repeat(64)] {
            assert_eq!(answer("id", bad.as_bytes()), None, "{bad}");
        }
    }
}
