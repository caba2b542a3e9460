//! Hardening section of the TOML file (contract: execd A8).

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::capabilities_of;

/// Hardening of ordinary commands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Hardening {
    pub(crate) enabled: bool,
    /// `CAP_*` names of capabilities to keep.
    pub(crate) keep_capabilities: Vec<String>,
}

/// Files that the user's processes may access.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Landlock {
    pub(crate) enabled: bool,
    /// In addition to the paths that every program needs and those that isolated sessions may be
    /// allowed to write.
    pub(crate) extra_writable: Vec<PathBuf>,
    /// In addition to the paths that every program needs.
    pub(crate) extra_readable: Vec<PathBuf>,
}

/// Audit settings.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Ebpf {
    pub(crate) enabled: bool,
    pub(crate) observe: Vec<String>,
    pub(crate) audit_file: PathBuf,
}

/// Event types that can be audited.
const OBSERVABLE: [&str; 3] = ["exec", "connect", "privilege"];

impl Default for Ebpf {
    fn default() -> Self {
        Self {
            enabled: false,
            observe: OBSERVABLE.map(str::to_owned).into(),
            audit_file: "/var/log/opensandbox/ebpf-audit.jsonl".into(),
        }
    }
}

impl Hardening {
    /// Names the key that breaks a rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        match capabilities_of(&self.keep_capabilities) {
            Ok(_) => Ok(()),
            Err(name) => Err(format!(
                "hardening.keep_capabilities: no capability is called {name:?}"
            )),
        }
    }
}

impl Landlock {
    /// Names the key that breaks a rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        absolute("landlock.extra_writable", &self.extra_writable)?;
        absolute("landlock.extra_readable", &self.extra_readable)
    }
}

impl Ebpf {
    /// Names the key that breaks a rule.
    pub(crate) fn check(&self) -> Result<(), String> {
        let known = |kind: &String| OBSERVABLE.contains(&kind.as_str());
        if !self.observe.iter().all(known) {
            let list = OBSERVABLE.join(", ");
            return Err(format!("ebpf.observe: expected some of {list}"));
        }
        absolute("ebpf.audit_file", std::slice::from_ref(&self.audit_file))
    }
}

/// These paths refer to the whole sandbox.
fn absolute(key: &str, paths: &[PathBuf]) -> Result<(), String> {
    match paths.iter().all(|path| Path::is_absolute(path)) {
        true => Ok(()),
        false => Err(format!("{key}: expected absolute paths")),
    }
}
