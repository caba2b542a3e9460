//! Sections that every runtime reads.

use std::{
    net::{IpAddr, Ipv6Addr},
    path::{Path, PathBuf},
    time::Duration,
};

use ipnet::IpNet;
use osb_runtime::{SecureKind, SecureRuntime};
use osb_service::log_file::LogFileOptions;
use osb_store::{Location, PostgresOptions};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::mask;

/// `[server]` (contract: lifecycle §14.1).
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct ServerSection {
    /// Address to listen on.
    pub host: String,
    /// Port to listen on.
    pub port: u16,
    /// The API key; empty means none.
    #[serde(serialize_with = "mask::mask_key")]
    pub api_key: Option<SecretString>,
    /// Public host of endpoints, possibly with port and path.
    pub eip: Option<String>,
    /// Longest `timeout` of a create, in seconds.
    pub max_sandbox_timeout_seconds: Option<i64>,
    /// Networks of proxies whose word about the client counts, such as `10.0.0.0/8`.
    pub trusted_proxies: Vec<String>,
    /// Seconds a connection may idle.
    pub timeout_keep_alive: u64,
    /// Requests of each kind served at once; more get 503. 0: as many as descriptors allow.
    pub limit_concurrency: usize,
    /// Proxied requests without a key of one client served at once; more get 429. 0: no limit.
    pub limit_keyless_per_client: usize,
    /// Seconds that requests under way get at shutdown.
    pub timeout_graceful_shutdown: u64,
    /// Connections waiting to be accepted.
    pub backlog: u32,
    /// TLS of the listener.
    pub tls: TlsSection,
    /// Read for compatibility; this server needs no thread pool setting.
    pub thread_pool_size: usize,
    /// Read for compatibility: event loop of the reference.
    #[serde(rename = "loop")]
    pub event_loop: String,
    /// Read for compatibility: HTTP parser of the reference.
    pub http: String,
}

impl Default for ServerSection {
    fn default() -> Self {
        Self {
            host: "0.0.0.0".to_owned(),
            port: 8080,
            api_key: None,
            eip: None,
            max_sandbox_timeout_seconds: None,
            trusted_proxies: Vec::new(),
            timeout_keep_alive: 30,
            limit_concurrency: 1024,
            limit_keyless_per_client: 128,
            timeout_graceful_shutdown: 5,
            backlog: 2048,
            tls: TlsSection::default(),
            thread_pool_size: 200,
            event_loop: "auto".to_owned(),
            http: "auto".to_owned(),
        }
    }
}

impl ServerSection {
    /// The API key, unless it is blank, which turns authentication off.
    #[must_use]
    pub fn usable_key(&self) -> Option<&SecretString> {
        self.api_key
            .as_ref()
            .filter(|key| !key.expose_secret().trim().is_empty())
    }

    /// The networks of `trusted_proxies`; `None` when one cannot be read.
    pub(super) fn proxy_networks(&self) -> Option<Vec<IpNet>> {
        let networks = self.trusted_proxies.iter().map(|text| {
            let address = text.parse::<IpAddr>().map(IpNet::from);
            address.or_else(|_| text.parse()).ok()
        });
        networks.collect()
    }

    /// Networks of the proxies whose word about the client counts. The check at start refuses a
    /// value that cannot be read.
    #[must_use]
    pub fn trusted_networks(&self) -> Vec<IpNet> {
        self.proxy_networks().unwrap_or_default()
    }

    /// Whether clients and browsers reach this server over HTTPS: it has TLS itself, or its public
    /// address says so.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.tls.files().is_some() || self.is_behind_https()
    }

    /// Whether the public address says that clients use HTTPS.
    pub(super) fn is_behind_https(&self) -> bool {
        let eip = self.eip.as_deref().unwrap_or_default();
        eip.trim().starts_with("https://")
    }

    /// Whether clients get `host` for published ports although it is an IPv6 address.
    pub(super) fn publishes_ipv6_host(&self) -> bool {
        let has_eip = self
            .eip
            .as_deref()
            .is_some_and(|eip| !eip.trim().is_empty());
        let address = self.host.parse::<Ipv6Addr>();
        !has_eip && address.is_ok_and(|address| !address.is_unspecified())
    }
}

/// `[server.tls]`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct TlsSection {
    /// File of the certificate with those of its authorities, in PEM.
    pub certificate: Option<PathBuf>,
    /// File of the certificate's private key, in PEM.
    pub key: Option<PathBuf>,
}

impl TlsSection {
    /// Both files; `None` unless both are named.
    #[must_use]
    pub fn files(&self) -> Option<(&Path, &Path)> {
        Some((self.certificate.as_deref()?, self.key.as_deref()?))
    }
}

/// `[log]` (contract: lifecycle §14.2). The log goes to stderr, and into a file if wanted.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct LogSection {
    /// Level name.
    pub level: String,
    /// Whether the log goes into a file as well, and accesses into another.
    pub file_enabled: bool,
    /// The file.
    pub file_path: Option<PathBuf>,
    /// The file of the log of accesses.
    pub access_file_path: Option<PathBuf>,
    /// Size at which the file is set aside, in bytes.
    pub file_max_bytes: u64,
    /// Most files that are set aside.
    pub file_backup_count: u32,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: "INFO".to_owned(),
            file_enabled: false,
            file_path: None,
            access_file_path: None,
            file_max_bytes: 104_857_600,
            file_backup_count: 5,
        }
    }
}

impl LogSection {
    /// The file of the log, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<LogFileOptions> {
        self.options(self.file_path.as_ref())
    }

    /// The file of the log of accesses, if there is one.
    #[must_use]
    pub fn access_file(&self) -> Option<LogFileOptions> {
        self.options(self.access_file_path.as_ref())
    }

    fn options(&self, path: Option<&PathBuf>) -> Option<LogFileOptions> {
        Some(LogFileOptions {
            path: path.filter(|_| self.file_enabled)?.clone(),
            max_bytes: self.file_max_bytes,
            backups: self.file_backup_count,
        })
    }

    /// The level as the log wants it; names of the reference's logging library are understood.
    #[must_use]
    pub fn filter(&self) -> String {
        match self.level.to_ascii_lowercase().as_str() {
            "warning" => "warn".to_owned(),
            "critical" => "error".to_owned(),
            level => level.to_owned(),
        }
    }
}

/// Which back end runs sandboxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeType {
    /// One Docker engine.
    Docker,
    /// A Kubernetes cluster.
    Kubernetes,
    /// No engine at all, for demos and work on the console.
    Sim,
}

/// `[runtime]` (contract: lifecycle §14.3).
#[derive(Debug, Deserialize, Serialize)]
pub struct RuntimeSection {
    /// Which back end.
    #[serde(rename = "type")]
    pub kind: RuntimeType,
    /// Image of a foreign execd. Absent: the built-in one.
    #[serde(default)]
    pub execd_image: Option<String>,
    /// Read for compatibility: the built-in execd is always the init process.
    #[serde(default)]
    pub execd_run_as_init: bool,
    /// Whether every sandbox's execd gets a token of its own.
    #[serde(default = "yes")]
    pub execd_auth: bool,
    /// Whether a create may ask for the rights that isolated sessions take.
    #[serde(default = "yes")]
    pub execd_isolation: bool,
}

/// `[proxy]` (contract: lifecycle §6.3).
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct ProxySection {
    /// Whether sandboxes are reached at their own addresses rather than at published ports.
    pub resolve_internal: bool,
    /// Whether sandboxes may use the proxy without a key, as other clients may.
    pub keyless_from_sandboxes: bool,
    /// Requests to one sandbox served at once; more get 503. 0: no limit.
    pub limit_per_sandbox: usize,
    /// Seconds that a program may be silent before or within its response. 0: no limit.
    pub idle_timeout: u64,
    /// Seconds that a tunnel, such as a WebSocket, may be silent. 0: no limit.
    pub tunnel_idle_timeout: u64,
}

impl ProxySection {
    /// Longest silence of an exchange other than a tunnel.
    #[must_use]
    pub fn idle(&self) -> Option<Duration> {
        limit(self.idle_timeout)
    }

    /// Longest silence of a tunnel.
    #[must_use]
    pub fn tunnel_idle(&self) -> Option<Duration> {
        limit(self.tunnel_idle_timeout)
    }
}

/// Seconds of a limit, of which 0 is none.
fn limit(seconds: u64) -> Option<Duration> {
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            resolve_internal: true,
            keyless_from_sandboxes: false,
            limit_per_sandbox: 256,
            // contract: lifecycle §7, read timeout
            idle_timeout: 180,
            tunnel_idle_timeout: 3600,
        }
    }
}

/// `[otel]` (contract: lifecycle §14.8).
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct OtelSection {
    /// Whether anything is sent.
    pub enabled: bool,
    /// Address for metrics, used unchanged.
    #[serde(serialize_with = "mask::mask_address")]
    pub endpoint: Option<String>,
    /// Name of this server among others.
    pub service_name: String,
    /// Milliseconds between two exports of metrics.
    pub export_interval_millis: u64,
    /// Whether traces are sent, too.
    pub traces: bool,
    /// Address for traces, used unchanged.
    #[serde(serialize_with = "mask::mask_address")]
    pub traces_endpoint: Option<String>,
}

impl Default for OtelSection {
    fn default() -> Self {
        Self {
            enabled: false,
            endpoint: None,
            service_name: "opensandbox-server".to_owned(),
            export_interval_millis: 60_000,
            traces: false,
            traces_endpoint: None,
        }
    }
}

/// `[metrics]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct MetricsSection {
    /// Whether `/metrics` needs a key.
    pub authentication: bool,
    /// Address and port on which metrics alone are served, without a key.
    pub address: Option<String>,
}

impl Default for MetricsSection {
    fn default() -> Self {
        Self {
            authentication: true,
            address: None,
        }
    }
}

/// `[console]`: an addition to the contract.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct ConsoleSection {
    /// Address and port on which previews have origins of their own.
    pub preview_address: Option<String>,
    /// What browsers use for that, such as `https://*.previews.example.com`.
    pub preview_origin: Option<String>,
}

/// `[history]`: an addition to the contract.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct HistorySection {
    /// Whether the resource use of sandboxes is recorded.
    pub metrics: bool,
    /// Whether the commands of sandboxes are stored, as the sandboxes report them.
    pub commands: bool,
    /// Hours for which what was recorded of a sandbox is kept after its end.
    pub retention_hours: u32,
}

impl HistorySection {
    /// The retention in seconds.
    #[must_use]
    pub fn seconds(&self) -> i64 {
        i64::from(self.retention_hours) * 3600
    }
}

impl Default for HistorySection {
    fn default() -> Self {
        Self {
            metrics: true,
            commands: true,
            retention_hours: 168,
        }
    }
}

/// Kind of database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreType {
    /// A file.
    #[default]
    Sqlite,
    /// A server.
    Postgresql,
}

/// `[store]` (contract: lifecycle §14.8).
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct StoreSection {
    /// Kind of database.
    #[serde(rename = "type")]
    pub kind: StoreType,
    /// File of the SQLite database.
    pub path: PathBuf,
    /// Folder in which another server kept renewals and metadata; empty for none.
    pub import_path: Option<PathBuf>,
    /// Settings of PostgreSQL.
    pub postgresql: PostgresqlSection,
}

/// `[store.postgresql]` (contract: lifecycle A13).
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct PostgresqlSection {
    /// Connection string, as a URL.
    #[serde(serialize_with = "mask::mask")]
    pub dsn: SecretString,
    /// Connections that are kept open without work.
    pub min_pool_size: u32,
    /// Most connections, besides the one that holds the store's lock.
    pub max_pool_size: u32,
    /// Seconds that a start may take to connect.
    pub connect_timeout_seconds: u32,
    /// Seconds that a request may wait for a connection.
    pub pool_timeout_seconds: f64,
    /// Read for compatibility; snapshots are recovered by the reconciler.
    pub snapshot_recovery_interval_seconds: f64,
}

impl PostgresqlSection {
    /// Whether a connection string is set.
    #[must_use]
    pub fn has_dsn(&self) -> bool {
        !self.dsn.expose_secret().trim().is_empty()
    }

    /// How to use the database.
    #[must_use]
    pub fn options(&self) -> PostgresOptions {
        let pool_timeout = Duration::try_from_secs_f64(self.pool_timeout_seconds);
        PostgresOptions {
            dsn: self.dsn.clone(),
            min_pool_size: self.min_pool_size,
            max_pool_size: self.max_pool_size,
            connect_timeout: Duration::from_secs(self.connect_timeout_seconds.into()),
            pool_timeout: pool_timeout.unwrap_or_else(|_| PostgresOptions::default().pool_timeout),
        }
    }
}

impl Default for PostgresqlSection {
    fn default() -> Self {
        Self {
            dsn: SecretString::default(),
            min_pool_size: 1,
            max_pool_size: 10,
            connect_timeout_seconds: 5,
            pool_timeout_seconds: 5.0,
            snapshot_recovery_interval_seconds: 15.0,
        }
    }
}

impl StoreSection {
    /// Which database.
    #[must_use]
    pub fn location(&self) -> Location {
        match self.kind {
            StoreType::Sqlite => Location::Sqlite(self.path.clone()),
            StoreType::Postgresql => Location::Postgres(self.postgresql.options()),
        }
    }
}

impl Default for StoreSection {
    fn default() -> Self {
        Self {
            kind: StoreType::Sqlite,
            path: PathBuf::from("~/.opensandbox/opensandbox.db"),
            import_path: None,
            postgresql: PostgresqlSection::default(),
        }
    }
}

/// `[secure_runtime]` (contract: lifecycle §18).
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct SecureRuntimeSection {
    /// Empty, `gvisor`, `kata` or `firecracker`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Name of the OCI runtime in Docker.
    pub docker_runtime: Option<String>,
    /// Name of the `RuntimeClass` in Kubernetes.
    pub k8s_runtime_class: Option<String>,
}

impl SecureRuntimeSection {
    /// The OCI runtime of sandboxes on Docker; `None` means the engine's default.
    #[must_use]
    pub fn runtime(&self) -> Option<SecureRuntime> {
        let kind = match self.kind.as_str() {
            "gvisor" => SecureKind::Gvisor,
            "kata" => SecureKind::Kata,
            _ => return None,
        };
        let name = self.docker_runtime.as_deref().map(str::trim);
        Some(SecureRuntime {
            kind,
            name: name.unwrap_or_else(|| kind.usual_runtime()).to_owned(),
        })
    }
}

fn yes() -> bool {
    true
}
