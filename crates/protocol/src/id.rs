//! Ids as types, so that a sandbox id cannot be passed where a command id belongs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Name of one sandbox. New ones are `UUIDv4` with dashes; the shape of incoming ones is never
/// checked, an unknown id is simply not found (contract: lifecycle §3).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(transparent)]
pub struct SandboxId(String);

impl SandboxId {
    /// Takes a string as an id.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first eight characters: enough to distinguish sandboxes in a list.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0
            .char_indices()
            .nth(8)
            .map_or(self.0.as_str(), |(end, _)| &self.0[..end])
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for SandboxId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_never_splits_a_character() {
        assert_eq!(SandboxId::from("0b6c1f2e-aaaa").short(), "0b6c1f2e");
        assert_eq!(SandboxId::from("äöüäöüäöü").short(), "äöüäöüäö");
        assert_eq!(SandboxId::from("x").short(), "x");
    }
}
