//! Settings of the Docker back end (contract: lifecycle §14.4).

use std::{collections::BTreeMap, ffi::OsString, net::Ipv4Addr, path::PathBuf, time::Duration};

use sha2::{Digest, Sha256};

use crate::{Role, SecureRuntime};

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

/// The sidecar of sandboxes with a network policy (contract: lifecycle §14.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressConfig {
    /// Image to start. Its entry point runs the sidecar.
    pub image: String,
    /// What is enforced: `dns` or `dns+nft`.
    pub mode: String,
    /// Whether IPv6 is off in the sandbox's network.
    pub disable_ipv6: bool,
    /// Collector of the sidecar's metrics.
    pub otlp_endpoint: Option<String>,
    /// Name servers that the sidecar asks, each with or without a port; empty for those of this
    /// host. Never the engine's own resolver: it forwards queries from within the sandbox's network,
    /// where the sidecar would get them again.
    pub dns_upstreams: Vec<String>,
    /// Longest wait for the rules.
    pub readiness_timeout: Duration,
    /// Sidecars that are started before a create needs them.
    pub warm: usize,
}

/// Volumes of sandboxes (contract: lifecycle §14.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageConfig {
    /// Directories of the host that sandboxes may get, with what is below. Empty: none.
    pub allowed_host_paths: Vec<PathBuf>,
    /// Whether directories are mounted by path that another sandbox could replace just before.
    pub allow_racy_paths: bool,
    /// Directory below which buckets are mounted.
    pub ossfs_mount_root: PathBuf,
    /// Whether this process sees the files of the engine's host, at the same paths.
    pub sees_host: bool,
    /// Whether this process runs in a container of its own.
    pub in_container: bool,
    /// Where the programs that mount buckets are, like `PATH`; `None` for this process's `PATH`.
    pub programs: Option<OsString>,
}

impl Default for StorageConfig {
    fn default() -> Self {
        Self {
            allowed_host_paths: Vec::new(),
            allow_racy_paths: false,
            ossfs_mount_root: PathBuf::from("/mnt/ossfs"),
            sees_host: true,
            in_container: false,
            programs: None,
        }
    }
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
    /// Sidecar of sandboxes with a network policy. Without it, policies are refused.
    pub egress: Option<EgressConfig>,
    /// Volumes of sandboxes.
    pub storage: StorageConfig,
    /// Whether sandboxes of another server, without an installation label, are taken over.
    pub take_over: bool,
    /// OCI runtime of main containers, such as gVisor's; the engine's default when absent. Sidecars
    /// and helpers always have the engine's default.
    pub secure_runtime: Option<SecureRuntime>,
}

impl DockerConfig {
    /// Whether the kernel can filter the packets of sandboxes: not on the host's network, and not where
    /// a secure runtime takes them past the kernel's filter. gVisor has a network stack of its own, and
    /// Kata Containers hands packets from the virtual machine to the interface.
    pub(super) fn has_filter(&self) -> bool {
        self.network != NetworkMode::Host && self.secure_runtime.is_none()
    }

    /// SHA-256 of the settings that containers get when they are created, in hexadecimal digits.
    pub(super) fn digest(&self) -> String {
        let egress = self.egress.as_ref().map(|egress| {
            let EgressConfig {
                image,
                mode,
                disable_ipv6,
                otlp_endpoint,
                dns_upstreams,
                // They change no sandbox.
                readiness_timeout: _,
                warm: _,
            } = egress;
            (image, mode, disable_ipv6, otlp_endpoint, dns_upstreams)
        });
        let privileges = (
            &self.secure_runtime,
            &self.drop_capabilities,
            &self.apparmor_profile,
            &self.seccomp_profile,
            self.no_new_privileges,
            self.pids_limit,
        );
        let surroundings = (
            &self.network,
            self.publish_host,
            &self.sandbox_env,
            &self.sandbox_binds,
            &self.sidecars,
            egress,
        );
        // Texts are quoted in this form, so that no two settings look the same.
        let digest = Sha256::digest(format!("{privileges:?} {surroundings:?}"));
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SecureKind, docker::fake_engine::config};

    #[test]
    fn the_digest_depends_on_what_containers_get() {
        let same = DockerConfig {
            api_timeout: Duration::from_secs(99),
            take_over: false,
            port_max: 50_000,
            ..config()
        };
        let digest = config().digest();
        assert_eq!(digest.len(), 64);
        assert_eq!(same.digest(), digest);
        let egress = EgressConfig {
            image: "egress".to_owned(),
            mode: "dns".to_owned(),
            disable_ipv6: true,
            otlp_endpoint: None,
            dns_upstreams: Vec::new(),
            readiness_timeout: Duration::from_secs(1),
            warm: 0,
        };
        let changes: [fn(&mut DockerConfig); 9] = [
            |it| it.secure_runtime = Some(SecureRuntime::usual(SecureKind::Gvisor)),
            |it| it.drop_capabilities.push("CHOWN".to_owned()),
            |it| it.apparmor_profile = Some("other".to_owned()),
            |it| it.seccomp_profile = Some("other".to_owned()),
            |it| it.no_new_privileges ^= true,
            |it| it.network = NetworkMode::Named("other".to_owned()),
            |it| drop(it.sandbox_env.insert("A".to_owned(), "1".to_owned())),
            |it| it.sandbox_binds.push("/a:/a".to_owned()),
            |it| it.publish_host = Ipv4Addr::UNSPECIFIED,
        ];
        let mut seen = vec![digest];
        for change in changes {
            let mut other = config();
            change(&mut other);
            seen.push(other.digest());
        }
        for mode in ["dns", "dns+nft"] {
            let mode = mode.to_owned();
            let egress = Some(EgressConfig {
                mode,
                ..egress.clone()
            });
            seen.push(DockerConfig { egress, ..config() }.digest());
        }
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count);
    }
}
