//! Public ids of the console's sessions.

use sha2::{Digest, Sha256};

/// Bytes of a session's public id.
const PUBLIC_ID_BYTES: usize = 16;
/// Bytes that are shown of a text that is no public id.
const SHOWN_OF_ID: usize = 4;

/// The id of a session as a client sent it, for the audit trail. What is no public id may be the one in
/// the cookie, which opens the session, and is cut.
#[must_use]
pub fn shown(given: &str) -> String {
    let is_hex = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
    let is_public = given.len() == 2 * PUBLIC_ID_BYTES && given.bytes().all(is_hex);
    if is_public || given.len() <= 2 * SHOWN_OF_ID {
        return given.to_owned();
    }
    format!("{}…", &given[..given.floor_char_boundary(SHOWN_OF_ID)])
}

/// Name of a session that opens nothing: the session's own id is the cookie.
#[must_use]
pub fn public(id: &str) -> String {
    let digest = Sha256::digest(id.as_bytes());
    let bytes = digest.iter().take(PUBLIC_ID_BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
