//! Isolation file (contract: execd A8): a TOML file that configures isolated sessions and the
//! hardening of the user's other processes. Every key has a default.

mod capability;
mod hardening;

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

pub(crate) use capability::{capabilities_of, capability_names};
use hardening::{Ebpf, Hardening, Landlock};

/// System calls refused by default (contract: execd A6.5). Those from `fsopen` on go beyond the
/// contract: newer alternatives to `mount`, then what the filter of engines refuses as well. A sandbox
/// that was created for isolated sessions is without that filter. Names of other architectures are
/// skipped.
pub(crate) const DENIED: &[&str] = &[
    "mount",
    "umount2",
    "chroot",
    "pivot_root",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "kcmp",
    "init_module",
    "finit_module",
    "delete_module",
    "bpf",
    "seccomp",
    "personality",
    "add_key",
    "request_key",
    "keyctl",
    "iopl",
    "ioperm",
    "reboot",
    "syslog",
    "swapon",
    "swapoff",
    "setns",
    "unshare",
    "name_to_handle_at",
    "open_by_handle_at",
    "userfaultfd",
    "kexec_load",
    "kexec_file_load",
    "acct",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "mount_setattr",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "perf_event_open",
    "pidfd_getfd",
    "quotactl",
    "quotactl_fd",
    "settimeofday",
    "clock_settime",
    "clock_settime64",
    "lookup_dcookie",
    "migrate_pages",
    "move_pages",
];

/// Reason why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file exists but cannot be read.
    #[error("cannot read the isolation configuration {path}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The file violates the grammar or a type.
    #[error("isolation configuration {path}: {message}")]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// Key and broken rule.
        message: String,
    },
}

/// Contents of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IsolationConfig {
    /// Directory that holds the upper directories.
    pub(crate) upper_root: PathBuf,
    /// Maximum size of all upper directories together in bytes; 0 means no limit.
    pub(crate) upper_max_bytes: u64,
    /// Maximum size of one commit in bytes.
    pub(crate) diff_max_bytes: u64,
    /// Paths that may be made writable or bound, with everything below them.
    pub(crate) allowed_writable: Vec<PathBuf>,
    pub(crate) seccomp: Seccomp,
    pub(crate) hardening: Hardening,
    pub(crate) landlock: Landlock,
    pub(crate) ebpf: Ebpf,
}

/// System call filter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Seccomp {
    pub(crate) deny: Vec<String>,
}

impl Default for Seccomp {
    fn default() -> Self {
        let deny = DENIED.iter().map(|&name| name.to_owned()).collect();
        Self { deny }
    }
}

impl Default for IsolationConfig {
    fn default() -> Self {
        Self {
            upper_root: "/var/lib/execd/isolation".into(),
            upper_max_bytes: 8 << 30,
            diff_max_bytes: 4 << 30,
            allowed_writable: ["/workspace", "/mnt", "/media", "/data"]
                .map(PathBuf::from)
                .into(),
            seccomp: Seccomp::default(),
            hardening: Hardening::default(),
            landlock: Landlock::default(),
            ebpf: Ebpf::default(),
        }
    }
}

impl IsolationConfig {
    /// Loads the file, if there is one. Also returns its unknown keys.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(path: Option<&Path>) -> Result<(Self, Vec<String>), ConfigError> {
        let Some(path) = path else {
            return Ok(Default::default());
        };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(source) => {
                let path = path.to_owned();
                return Err(ConfigError::Read { path, source });
            }
        };
        Self::parse(&text).map_err(|message| ConfigError::Invalid {
            path: path.to_owned(),
            message,
        })
    }

    fn parse(text: &str) -> Result<(Self, Vec<String>), String> {
        let message = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let mut unknown = Vec::new();
        let document = toml::Deserializer::parse(text).map_err(message)?;
        let config: Self = serde_ignored::deserialize(document, |path| {
            unknown.push(path.to_string());
        })
        .map_err(message)?;
        config.check()?;
        Ok((config, unknown))
    }

    fn check(&self) -> Result<(), String> {
        let absolute = |key: &str, path: &Path| match path.is_absolute() {
            true => Ok(()),
            false => Err(format!("{key}: expected absolute paths")),
        };
        absolute("upper_root", &self.upper_root)?;
        if self.upper_root == Path::new("/") {
            return Err("upper_root: expected a directory of its own".to_owned());
        }
        self.allowed_writable
            .iter()
            .try_for_each(|path| absolute("allowed_writable", path))?;
        self.hardening.check()?;
        self.landlock.check()?;
        self.ebpf.check()?;
        match self
            .seccomp
            .deny
            .iter()
            .find(|name| NEEDED.contains(&name.as_str()))
        {
            Some(name) => Err(format!(
                "seccomp.deny: nothing can be started without {name}"
            )),
            None => Ok(()),
        }
    }
}

/// Calls that every program needs to start.
const NEEDED: [&str; 5] = ["execve", "clone", "exit_group", "read", "write"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_default_and_lists_replace() {
        let (config, unknown) = IsolationConfig::parse("").unwrap();
        assert_eq!((config, unknown.len()), (IsolationConfig::default(), 0));
        let text = "upper_max_bytes = 1\nallowed_writable = []\ncolour = 1\n\
                    [seccomp]\ndeny = [\"socket\"]\n[hardening]\nenabled = true\n\
                    keep_capabilities = [\"CAP_CHOWN\"]\n[landlock]\nreadable = []\n";
        let (config, unknown) = IsolationConfig::parse(text).unwrap();
        assert_eq!(config.upper_max_bytes, 1);
        assert!(config.allowed_writable.is_empty());
        assert_eq!(config.seccomp.deny, ["socket"]);
        assert!(config.hardening.enabled && !config.landlock.enabled);
        assert_eq!(config.hardening.keep_capabilities, ["CAP_CHOWN"]);
        assert_eq!(unknown, ["colour", "landlock.readable"]);
        assert_eq!(config.upper_root, IsolationConfig::default().upper_root);
    }

    #[test]
    fn mistakes_name_their_key() {
        for (text, key) in [
            ("upper_root = 1", "upper_root"),
            ("upper_root = \"a\"", "upper_root"),
            ("upper_root = \"/\"", "upper_root"),
            ("upper_max_bytes = -1", "upper_max_bytes"),
            ("allowed_writable = [\"a\"]", "allowed_writable"),
            ("[seccomp]\ndeny = [\"execve\"]", "seccomp.deny"),
            ("[hardening]\nenabled = 1", "enabled = 1"),
            (
                "[hardening]\nkeep_capabilities = [\"CAP_X\"]",
                "hardening.keep_capabilities",
            ),
            (
                "[landlock]\nextra_writable = [\"a\"]",
                "landlock.extra_writable",
            ),
            (
                "[landlock]\nextra_readable = [\"a\"]",
                "landlock.extra_readable",
            ),
            ("[ebpf]\nobserve = [\"x\"]", "ebpf.observe"),
            ("[ebpf]\naudit_file = \"a\"", "ebpf.audit_file"),
            ("= 1", "1"),
        ] {
            let error = IsolationConfig::parse(text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
        let absent = IsolationConfig::load(Some(Path::new("/nonexistent/x.toml"))).unwrap();
        assert_eq!(absent.0, IsolationConfig::default());
        assert!(IsolationConfig::load(Some(Path::new("/"))).is_err());
    }
}
