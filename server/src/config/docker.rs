//! `[docker]` (contract: lifecycle §14.4).

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    time::Duration,
};

use osb_runtime::docker::{DockerConfig, LogLimit, NetworkMode, StorageConfig};
use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use super::{
    EgressSection, SecureRuntimeSection, mask,
    seccomp::{self, SeccompError},
};

/// Where execd lies in every sandbox.
const EXECD_MOUNT: &str = "/opt/opensandbox/.dist";
/// Capabilities that a sandbox has no use for.
const DROPPED: [&str; 9] = [
    "AUDIT_WRITE",
    "MKNOD",
    "NET_ADMIN",
    "NET_RAW",
    "SYS_ADMIN",
    "SYS_MODULE",
    "SYS_PTRACE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
];

/// `api_timeout` where the file has none, in seconds.
pub(super) const API_TIMEOUT_SECONDS: u64 = 180;

/// `[docker]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct DockerSection {
    /// `host`, `bridge` (a network of ours) or the name of a network.
    pub network_mode: String,
    /// Longest wait for an answer of the engine, in seconds.
    pub api_timeout: Option<u64>,
    /// Public host of endpoints when the server itself runs in a container.
    pub host_ip: Option<String>,
    /// Capabilities that sandboxes do not get.
    pub drop_capabilities: Vec<String>,
    /// `AppArmor` profile.
    pub apparmor_profile: Option<String>,
    /// Whether set-uid programs are without effect.
    pub no_new_privileges: bool,
    /// Seccomp profile: its text, a file with it, `unconfined` or `builtin`.
    pub seccomp_profile: Option<String>,
    /// Size at which a log file of a sandbox is rotated, as the engine writes it; empty leaves the
    /// log to the engine.
    pub log_max_size: String,
    /// Most log files of a sandbox.
    pub log_max_files: u32,
    /// Most processes and threads of a sandbox.
    pub pids_limit: i64,
    /// First port to publish on.
    pub port_range_min: u16,
    /// Last port to publish on.
    pub port_range_max: u16,
    /// IPv4 address to publish on.
    pub publish_host: String,
    /// Environment of every sandbox.
    #[serde(serialize_with = "mask::mask_values")]
    pub sandbox_env: BTreeMap<String, String>,
    /// Binds of every sandbox.
    pub sandbox_binds: Vec<String>,
    /// Whether sandboxes that another release made are taken over.
    pub take_over: bool,
}

impl Default for DockerSection {
    fn default() -> Self {
        Self {
            network_mode: "host".to_owned(),
            api_timeout: None,
            host_ip: None,
            drop_capabilities: DROPPED.map(str::to_owned).to_vec(),
            apparmor_profile: None,
            no_new_privileges: true,
            seccomp_profile: None,
            log_max_size: "10m".to_owned(),
            log_max_files: 2,
            pids_limit: 4096,
            port_range_min: 40000,
            port_range_max: 60000,
            publish_host: "0.0.0.0".to_owned(),
            sandbox_env: BTreeMap::new(),
            sandbox_binds: Vec::new(),
            take_over: true,
        }
    }
}

impl DockerSection {
    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let rule = |key: &str, rule: &str| Err(ConfigError::rule(file, key, rule));
        if self.network_mode.trim().is_empty() {
            return rule("docker.network_mode", "must name a network");
        }
        if self.api_timeout == Some(0) {
            return rule("docker.api_timeout", "must be at least 1 second");
        }
        let size = self.log_max_size.trim();
        if !size.is_empty() && !is_log_size(size) {
            let text = "must be a whole number above 0 with k, m, g or no unit, or empty";
            return rule("docker.log_max_size", text);
        }
        if self.log_max_files < 1 {
            return rule("docker.log_max_files", "must be at least 1");
        }
        if self.pids_limit < 1 {
            return rule("docker.pids_limit", "must be at least 1");
        }
        if self.port_range_min < 1024 {
            return rule("docker.port_range_min", "must be between 1024 and 65535");
        }
        if self.port_range_max < self.port_range_min.saturating_add(100) {
            let text = "must be at least 100 above docker.port_range_min";
            return rule("docker.port_range_max", text);
        }
        if let Some(Err(error)) = self.seccomp() {
            return rule("docker.seccomp_profile", &error.to_string());
        }
        let is_name = |name: &String| !name.is_empty() && !name.contains(['=', '\0']);
        if !self.sandbox_env.keys().all(is_name) {
            let text = "names must not be empty or contain '=' or NUL characters";
            return rule("docker.sandbox_env", text);
        }
        if !self.sandbox_binds.iter().all(|bind| is_bind(bind)) {
            let text = "must be src:dst or src:dst:mode, with an absolute dst outside of \
                        /opt/opensandbox/.dist";
            return rule("docker.sandbox_binds", text);
        }
        if self.publish_address().is_none() {
            return rule("docker.publish_host", "must be an IPv4 address");
        }
        Ok(())
    }

    /// Whether what listens in a sandbox can be reached from other machines.
    pub(super) fn opens_ports(&self) -> bool {
        let loopback = self.publish_address().is_some_and(|it| it.is_loopback());
        !self.publishes() || !loopback
    }

    /// Whether ports of sandboxes are published, rather than the machine's own.
    pub(super) fn publishes(&self) -> bool {
        self.network() != NetworkMode::Host
    }

    fn network(&self) -> NetworkMode {
        match self.network_mode.trim() {
            mode if mode.eq_ignore_ascii_case("host") => NetworkMode::Host,
            mode if mode.eq_ignore_ascii_case("bridge") => NetworkMode::Bridge,
            name => NetworkMode::Named(name.to_owned()),
        }
    }

    fn seccomp(&self) -> Option<Result<String, SeccompError>> {
        let given = self.seccomp_profile.as_deref()?;
        (!given.trim().is_empty()).then(|| seccomp::profile(given))
    }

    fn publish_address(&self) -> Option<Ipv4Addr> {
        match self.publish_host.trim() {
            "" => Some(Ipv4Addr::UNSPECIFIED),
            address => address.parse().ok(),
        }
    }

    /// Settings of the Docker back end.
    ///
    /// # Errors
    /// When the file of the seccomp profile cannot be read any more.
    pub fn runtime_config(
        &self,
        instance: String,
        execd: PathBuf,
        has_route: bool,
        secure: &SecureRuntimeSection,
        egress: &EgressSection,
        storage: StorageConfig,
    ) -> Result<DockerConfig, SeccompError> {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
        Ok(DockerConfig {
            instance,
            execd,
            network: self.network(),
            has_route,
            api_timeout: Duration::from_secs(self.api_timeout.unwrap_or(API_TIMEOUT_SECONDS)),
            drop_capabilities: self.drop_capabilities.clone(),
            apparmor_profile: given(&self.apparmor_profile),
            seccomp_profile: self.seccomp().transpose()?,
            no_new_privileges: self.no_new_privileges,
            log_limit: Some(self.log_max_size.trim())
                .filter(|size| !size.is_empty())
                .map(|size| LogLimit {
                    max_size: size.to_owned(),
                    max_files: self.log_max_files,
                }),
            pids_limit: self.pids_limit,
            port_min: self.port_range_min,
            port_max: self.port_range_max,
            publish_host: self.publish_address().unwrap_or(Ipv4Addr::UNSPECIFIED),
            sandbox_env: self.sandbox_env.clone(),
            sandbox_binds: self.sandbox_binds.clone(),
            sidecars: Vec::new(),
            egress: egress.runtime_config(),
            storage,
            take_over: self.take_over,
            secure_runtime: secure.runtime(),
        })
    }
}

/// Whether the engine takes it for a bind that leaves execd's own mount alone.
fn is_bind(bind: &str) -> bool {
    let parts: Vec<&str> = bind.split(':').collect();
    let ([source, target] | [source, target, _]) = parts.as_slice() else {
        return false;
    };
    let target = Path::new(target);
    !source.is_empty() && target.is_absolute() && !target.starts_with(EXECD_MOUNT)
}

/// Whether the engine takes it for a size: digits and a unit.
fn is_log_size(text: &str) -> bool {
    let digits = text
        .strip_suffix(['k', 'm', 'g', 'K', 'M', 'G'])
        .unwrap_or(text);
    digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.parse().is_ok_and(|size: u32| size > 0)
}
