//! Settings of the Docker back end (contract: lifecycle §14.4).

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use crate::Role;

/// Network that sandboxes are attached to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// The host's own network: no isolation, one sandbox per host in practice.
    Host,
    /// The server's own bridge network, created on first use, on which sandboxes cannot reach each
    /// other.
    Bridge,
    /// A network that the operator created.
    Named(String),
}

/// Limit of a container's log, for logging drivers that support one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLimit {
    /// Size of one file, in the engine's notation: `10m`.
    pub max_size: String,
    /// Number of files.
    pub max_files: u32,
}

/// A sidecar container of every sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarConfig {
    /// Purpose.
    pub role: Role,
    /// Image to start.
    pub image: String,
    /// Entry point; the image's own when empty.
    pub entrypoint: Vec<String>,
    /// Capabilities beyond the engine's defaults.
    pub add_capabilities: Vec<String>,
}

/// Settings of the Docker back end.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// Id of this installation, which labels its containers.
    pub instance: String,
    /// Static execd binary that is mounted into sandboxes.
    pub execd: PathBuf,
    /// Network that sandboxes are attached to.
    pub network: NetworkMode,
    /// Whether this process reaches containers at their own addresses, not only at published ports.
    pub has_route: bool,
    /// Longest wait for a response of the engine.
    pub api_timeout: Duration,
    /// Capabilities that sandboxes lack.
    pub drop_capabilities: Vec<String>,
    /// `AppArmor` profile of sandboxes.
    pub apparmor_profile: Option<String>,
    /// Seccomp profile of sandboxes.
    pub seccomp_profile: Option<String>,
    /// Whether set-uid bits are ignored.
    pub no_new_privileges: bool,
    /// Limit of each container's log. `None` leaves it to the engine.
    pub log_limit: Option<LogLimit>,
    /// Most processes and threads of a sandbox.
    pub pids_limit: i64,
    /// First port to publish on.
    pub port_min: u16,
    /// Last port to publish on.
    pub port_max: u16,
    /// Address to publish on.
    pub publish_host: Ipv4Addr,
    /// Environment of every sandbox, which requests may override.
    pub sandbox_env: BTreeMap<String, String>,
    /// Binds of every sandbox.
    pub sandbox_binds: Vec<String>,
    /// Sidecars of every sandbox. The first one owns the network, which the others and the main
    /// container join.
    pub sidecars: Vec<SidecarConfig>,
    /// Whether sandboxes of another server, without an installation label, are taken over.
    pub take_over: bool,
    /// OCI runtime such as `runsc`; the engine's default when absent.
    pub oci_runtime: Option<String>,
}
