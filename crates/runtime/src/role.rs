//! The containers that make up a sandbox.

use std::fmt;

/// What a container of a sandbox is for. A sandbox is a small group of containers that are made,
/// frozen and removed as one; which roles it has is the runtime's decision for each create.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the entry point and execd. Each sandbox has one, and its state is the sandbox's.
    Main,
    /// Enforces the network policy. The sandbox must not run without it.
    Egress,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 2] = [Self::Main, Self::Egress];

    /// Lower-case name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Main => "main",
            Self::Egress => "egress",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
