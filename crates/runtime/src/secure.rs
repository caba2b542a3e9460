//! OCI runtimes that keep sandboxes further from the host's kernel (contract: lifecycle §18).

use std::fmt;

/// What stands between a sandbox and the kernel of its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SecureKind {
    /// gVisor: system calls are answered by a kernel in user space.
    Gvisor,
    /// Kata Containers: each sandbox has a virtual machine with a kernel of its own.
    Kata,
}

impl SecureKind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Gvisor, Self::Kata];

    /// Its name for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gvisor => "gVisor",
            Self::Kata => "Kata Containers",
        }
    }

    /// Name that engines usually know it by (contract: lifecycle §18).
    #[must_use]
    pub fn usual_runtime(self) -> &'static str {
        match self {
            Self::Gvisor => "runsc",
            Self::Kata => "kata-runtime",
        }
    }

    /// Whether execd can isolate sessions there. gVisor lacks some of the mounts and namespaces that
    /// sessions consist of.
    #[must_use]
    pub fn isolates_sessions(self) -> bool {
        self == Self::Kata
    }
}

impl fmt::Display for SecureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A secure runtime as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecureRuntime {
    /// What it is.
    pub kind: SecureKind,
    /// What the engine calls it, such as `runsc`.
    pub name: String,
}

impl SecureRuntime {
    /// The kind under its usual name.
    #[must_use]
    pub fn usual(kind: SecureKind) -> Self {
        Self {
            kind,
            name: kind.usual_runtime().to_owned(),
        }
    }
}

impl fmt::Display for SecureRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secure_runtime_is_shown_with_the_engines_name() {
        let usual = SecureKind::ALL.map(|kind| SecureRuntime::usual(kind).to_string());
        assert_eq!(usual, ["gVisor (runsc)", "Kata Containers (kata-runtime)"]);
    }
}
