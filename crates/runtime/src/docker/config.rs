//! What the Docker back end needs to know (contract: lifecycle §14.4).

use std::{collections::BTreeMap, net::Ipv4Addr, path::PathBuf, time::Duration};

use crate::Role;

/// Where sandboxes are attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkMode {
    /// The host's own network: no isolation, one sandbox per host in practice.
    Host,
    /// A bridge network of ours, made on first use, on which sandboxes cannot reach each other.
    Bridge,
    /// A network that the operator made.
    Named(String),
}

/// How much of a container's log the engine keeps, where its logging driver can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLimit {
    /// Size of one file, in the engine's notation: `10m`.
    pub max_size: String,
    /// Number of files.
    pub max_files: u32,
}

/// A sidecar of every sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SidecarConfig {
    /// What it is for.
    pub role: Role,
    /// Image to start.
    pub image: String,
    /// Command; the image's own when empty.
    pub entrypoint: Vec<String>,
    /// Capabilities that it needs beyond the engine's own.
    pub add_capabilities: Vec<String>,
}

/// Settings of the Docker back end.
#[derive(Clone, Debug)]
pub struct DockerConfig {
    /// Id of this installation; containers carry it.
    pub instance: String,
    /// Static execd binary to provide to sandboxes.
    pub execd: PathBuf,
    /// Where sandboxes are attached.
    pub network: NetworkMode,
    /// Whether this process reaches containers at their own addresses, not only at published ports.
    pub has_route: bool,
    /// Longest wait for an answer of the engine.
    pub api_timeout: Duration,
    /// Capabilities that sandboxes do not get.
    pub drop_capabilities: Vec<String>,
    /// `AppArmor` profile of sandboxes.
    pub apparmor_profile: Option<String>,
    /// Seccomp profile of sandboxes.
    pub seccomp_profile: Option<String>,
    /// Whether set-uid programs are without effect.
    pub no_new_privileges: bool,
    /// When a container's log is rotated, and how many files of it are kept; `None` leaves both to
    /// the engine.
    pub log_limit: Option<LogLimit>,
    /// Most processes and threads of a sandbox.
    pub pids_limit: i64,
    /// First port to publish on.
    pub port_min: u16,
    /// Last port to publish on.
    pub port_max: u16,
    /// Address to publish on.
    pub publish_host: Ipv4Addr,
    /// Environment of every sandbox, below the request's.
    pub sandbox_env: BTreeMap<String, String>,
    /// Binds of every sandbox.
    pub sandbox_binds: Vec<String>,
    /// Sidecars of every sandbox. The first of them owns the network, which the others and the main
    /// container join.
    pub sidecars: Vec<SidecarConfig>,
    /// OCI runtime such as `runsc`; the engine's default when absent.
    pub oci_runtime: Option<String>,
}
