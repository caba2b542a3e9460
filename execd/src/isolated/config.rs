//! How sessions are made (contract: execd A8): a TOML file, every key of which has a default.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde::Deserialize;

/// Variable that names the file.
pub const ENV_CONFIG: &str = "EXECD_ISOLATION_CONFIG";

/// System calls that are refused unless the file says otherwise (contract: execd A6.5). From
/// `fsopen` on they are ours: newer ways to do what `mount` does.
pub(super) const DENIED: &[&str] = &[
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
];

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file is there and cannot be read.
    #[error("cannot read the isolation configuration {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The file breaks the grammar or a type.
    #[error("isolation configuration {path}: {message}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Which key breaks which rule.
        message: String,
    },
}

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Config {
    /// Where uppers live.
    pub(super) upper_root: PathBuf,
    /// Bytes of all uppers together; 0 is no limit.
    pub(super) upper_max_bytes: u64,
    /// Bytes that one commit may apply.
    pub(super) diff_max_bytes: u64,
    /// What may be made writable or bound, with all that is below.
    pub(super) allowed_writable: Vec<PathBuf>,
    pub(super) seccomp: Seccomp,
}

/// The filter of system calls.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Seccomp {
    pub(super) deny: Vec<String>,
}

impl Default for Seccomp {
    fn default() -> Self {
        let deny = DENIED.iter().map(|&name| name.to_owned()).collect();
        Self { deny }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            upper_root: "/var/lib/execd/isolation".into(),
            upper_max_bytes: 8 << 30,
            diff_max_bytes: 4 << 30,
            allowed_writable: ["/workspace", "/mnt", "/media", "/data"]
                .map(PathBuf::from)
                .into(),
            seccomp: Seccomp::default(),
        }
    }
}

/// Keys of layers that this release does not have (contract: execd A8).
const LATER: [&str; 3] = ["hardening", "landlock", "ebpf"];

impl Config {
    /// Reads the file, if there is one. Says which of its keys mean nothing here.
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
        let told = |error: toml::de::Error| error.to_string().trim_end().to_owned();
        let mut unknown = Vec::new();
        let document = toml::Deserializer::parse(text).map_err(told)?;
        let config: Self = serde_ignored::deserialize(document, |path| {
            unknown.push(path.to_string());
        })
        .map_err(told)?;
        // They protect, so a request for them must not pass unnoticed.
        let table: toml::Table = text.parse().map_err(told)?;
        for layer in LATER {
            let enabled = table.get(layer).and_then(|layer| layer.get("enabled"));
            match enabled {
                None | Some(toml::Value::Boolean(false)) => {}
                Some(toml::Value::Boolean(true)) => {
                    return Err(format!("{layer}.enabled: this release has no {layer}"));
                }
                Some(_) => return Err(format!("{layer}.enabled: expected true or false")),
            }
        }
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
        match self
            .seccomp
            .deny
            .iter()
            .find(|name| NEEDED.contains(&name.as_str()))
        {
            Some(name) => Err(format!("seccomp.deny: no session works without {name}")),
            None => Ok(()),
        }
    }
}

/// Calls without which nothing starts.
const NEEDED: [&str; 5] = ["execve", "clone", "exit_group", "read", "write"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_a_default_and_lists_replace() {
        let (config, unknown) = Config::parse("").unwrap();
        assert_eq!((config, unknown.len()), (Config::default(), 0));
        let text = "upper_max_bytes = 1\nallowed_writable = []\ncolour = 1\n\
                    [seccomp]\ndeny = [\"socket\"]\n[hardening]\nenabled = false\n";
        let (config, unknown) = Config::parse(text).unwrap();
        assert_eq!(config.upper_max_bytes, 1);
        assert!(config.allowed_writable.is_empty());
        assert_eq!(config.seccomp.deny, ["socket"]);
        assert_eq!(unknown, ["colour", "hardening"]);
        assert_eq!(config.upper_root, Config::default().upper_root);
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
            ("[landlock]\nenabled = true", "landlock.enabled"),
            ("[ebpf]\nenabled = 1", "ebpf.enabled"),
            ("= 1", "1"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(key), "{text}: {error}");
        }
        let absent = Config::load(Some(Path::new("/nonexistent/x.toml"))).unwrap();
        assert_eq!(absent.0, Config::default());
        assert!(Config::load(Some(Path::new("/"))).is_err());
    }
}
