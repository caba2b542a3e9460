//! Roles of the containers of a sandbox.

use std::fmt;

/// Purpose of a container within a sandbox. A sandbox is a small group of containers that are
/// created, frozen and removed together. The runtime decides at each create which roles it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Runs the entry point and execd. Each sandbox has one, whose state is the sandbox's state.
    Main,
    /// Enforces the network policy. The sandbox must not run without it.
    Egress,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 2] = [Self::Main, Self::Egress];

    /// Name in lower case.
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
