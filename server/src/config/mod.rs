//! The server's configuration: TOML with the contract's keys (contract: lifecycle §14, A13).
//!
//! One struct per concern. Every value knows a default; a wrong one stops the start with file, key
//! and rule. `docs/configuration.md` lists the keys for people.

mod audit;
#[cfg(test)]
mod contract_tests;
mod docker;
mod egress;
mod image_gc;
mod init;
mod known;
mod load;
mod mask;
mod pools;
mod quotas;
mod renewal;
mod rules;
mod seccomp;
mod sections;
mod show;
mod snapshots;
mod storage;
mod templates;
mod tenants;
#[cfg(test)]
mod tests;
mod webhooks;

pub use audit::AuditSection;
pub use docker::DockerSection;
pub use egress::{DefaultPolicy, EgressMode, EgressSection, UpstreamProxySection};
pub use image_gc::ImageGcSection;
pub use init::{InitError, write_example};
pub use load::{LoadedConfig, load};
pub use pools::PoolsSection;
pub use quotas::{QuotaEntry, QuotasSection};
pub use renewal::{RenewIntentSection, RenewRedisSection};
pub use seccomp::SeccompError;
pub use sections::{
    ConsoleSection, HistorySection, LogSection, MetricsSection, OtelSection, PostgresqlSection,
    ProxySection, RuntimeSection, RuntimeType, SecureRuntimeSection, ServerSection, StoreSection,
    StoreType, TlsSection,
};
pub use snapshots::SnapshotsSection;
pub use storage::{StorageSection, StorageView};
pub use templates::TemplatesSection;
pub use tenants::{ENV_TENANTS, TenantProvider, TenantsSection};
pub use webhooks::{WebhookEntry, WebhooksDeliverySection};

pub use show::{Setting, ShownConfig, ValueOrigin};

use serde::Deserialize;

/// Overrides `server.api_key`, also when it is set to nothing.
pub const ENV_API_KEY: &str = "OPENSANDBOX_SERVER_API_KEY";
/// Overrides `store.postgresql.dsn`, also when it is set to nothing.
pub const ENV_POSTGRESQL_DSN: &str = "OPENSANDBOX_STORE_POSTGRESQL_DSN";
/// Signing keys of the gateway, which replace those of `ingress.secure_access`.
pub const ENV_SECURE_ACCESS_KEYS: &str = "OPENSANDBOX_SECURE_ACCESS_KEYS";
/// Which of [`ENV_SECURE_ACCESS_KEYS`] signs.
pub const ENV_SECURE_ACCESS_ACTIVE_KEY: &str = "OPENSANDBOX_SECURE_ACCESS_ACTIVE_KEY";
/// Path of the configuration when no `--config` is given.
pub const ENV_CONFIG: &str = "SANDBOX_CONFIG_PATH";
/// `YES` lets the server start without an API key.
pub const ENV_INSECURE: &str = "OPENSANDBOX_INSECURE_SERVER";
/// Path of the execd binary; beside the server's own executable when absent.
pub const ENV_EXECD: &str = "OPENSANDBOX_EXECD_PATH";

/// Environment variables, as a function so that tests need not touch the process's.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Everything that can be configured.
#[derive(Debug, Deserialize)]
pub struct Config {
    /// Listener and authentication.
    #[serde(default)]
    pub server: ServerSection,
    /// The log.
    #[serde(default)]
    pub log: LogSection,
    /// Which back end.
    pub runtime: RuntimeSection,
    /// The Docker back end.
    #[serde(default)]
    pub docker: DockerSection,
    /// The reverse proxy.
    #[serde(default)]
    pub proxy: ProxySection,
    /// Accesses that renew sandboxes.
    #[serde(default)]
    pub renew_intent: RenewIntentSection,
    /// The console.
    #[serde(default)]
    pub console: ConsoleSection,
    /// Metrics for Prometheus.
    #[serde(default)]
    pub metrics: MetricsSection,
    /// Metrics and traces for a collector.
    #[serde(default)]
    pub otel: OtelSection,
    /// What is kept of sandboxes.
    #[serde(default)]
    pub history: HistorySection,
    /// Where state is kept.
    #[serde(default)]
    pub store: StoreSection,
    /// The sidecar of sandboxes with a network policy.
    #[serde(default)]
    pub egress: EgressSection,
    /// Volumes of sandboxes.
    #[serde(default)]
    pub storage: StorageSection,
    /// OCI runtime of sandboxes.
    #[serde(default)]
    pub secure_runtime: SecureRuntimeSection,
    /// Keys that are limited to one tenant each; `None` without the section.
    #[serde(default)]
    pub tenants: Option<TenantsSection>,
    /// What the sandboxes of a tenant may use together.
    #[serde(default)]
    pub quotas: QuotasSection,
    /// Sandboxes that are started before they are needed.
    #[serde(default)]
    pub pools: PoolsSection,
    /// Stored file systems of sandboxes.
    #[serde(default)]
    pub snapshots: SnapshotsSection,
    /// Images that are made ready for sandboxes.
    #[serde(default)]
    pub templates: TemplatesSection,
    /// Removal of images that nothing uses.
    #[serde(default)]
    pub image_gc: ImageGcSection,
    /// Who did what.
    #[serde(default)]
    pub audit: AuditSection,
    /// Receivers of events.
    #[serde(default)]
    pub webhooks: Vec<WebhookEntry>,
    /// How events are sent.
    #[serde(default)]
    pub webhooks_delivery: WebhooksDeliverySection,
    /// Sections that other runtimes or later releases read; checked for conflicts only.
    #[serde(flatten)]
    pub others: toml::Table,
}

impl Config {
    /// What the file asks for that this release does otherwise, or that opens a hole.
    #[must_use]
    pub fn notes(&self) -> Vec<&'static str> {
        let mut notes = Vec::new();
        if self.runtime.execd_image.is_some() {
            notes.push("runtime.execd_image is set; this release provides its own execd instead");
        }
        let has_ports = self.runtime.kind == RuntimeType::Docker && self.docker.opens_ports();
        if has_ports && !self.server.is_https() {
            notes.push(
                "sandbox ports are open to other machines (docker.publish_host, or \
                 docker.network_mode = \"host\") and the console has no HTTPS: cookies know no \
                 ports, so a page of a sandbox can get the console's; publish on 127.0.0.1, or \
                 serve HTTPS (server.tls, or a proxy and server.eip = \"https://...\")",
            );
        }
        let is_behind_proxy = self.server.is_behind_https() && self.server.tls.files().is_none();
        if is_behind_proxy && self.server.trusted_proxies.is_empty() {
            notes.push(
                "server.eip begins with https://, so there is a proxy in front of this server, but \
                 server.trusted_proxies does not name it: all clients count as one, in limits and \
                 in the log",
            );
        }
        if self.storage.allows_root() {
            notes.push(
                "storage.allowed_host_paths has \"/\": a sandbox can get every file of this machine, \
                 and so become root on it",
            );
        }
        if self.runtime.kind == RuntimeType::Docker
            && self.docker.publishes()
            && self.server.publishes_ipv6_host()
        {
            notes.push(
                "server.host is an IPv6 address and the host of endpoints, but sandbox ports are \
                 published on IPv4 only (docker.publish_host): clients that do not use the server \
                 proxy cannot reach them; name a host that has both with server.eip",
            );
        }
        if self.runtime.kind == RuntimeType::Docker && self.secure_runtime.runtime().is_some() {
            if self.egress.image.is_some() {
                notes.push(
                    "egress.image has no effect with secure_runtime.type: the sidecar's rules do not \
                     hold under a secure runtime, so a create with networkPolicy gets 400",
                );
            }
            if !self.docker.publishes() {
                notes.push(
                    "docker.network_mode = \"host\" with secure_runtime.type: sandboxes under such a \
                     runtime may not get the host's network, and cannot be reached then; use \
                     \"bridge\"",
                );
            }
        }
        notes
    }
}
