//! The server's configuration: TOML with the contract's keys (contract: lifecycle §14, A13).
//!
//! One struct per concern. Every value knows a default; a wrong one stops the start with file, key
//! and rule. `docs/configuration.md` lists the keys for people.

mod audit;
#[cfg(test)]
mod contract_tests;
mod docker;
mod init;
mod known;
mod quotas;
mod renewal;
mod rules;
mod seccomp;
mod sections;
mod show;
mod tenants;
mod webhooks;

pub use audit::AuditSection;
pub use docker::DockerSection;
pub use init::{InitError, write_example};
pub use quotas::{QuotaEntry, QuotasSection};
pub use renewal::{RenewIntentSection, RenewRedisSection};
pub use seccomp::SeccompError;
pub use sections::{
    HistorySection, LogSection, MetricsSection, OtelSection, PostgresqlSection, ProxySection,
    RuntimeSection, RuntimeType, SecureRuntimeSection, ServerSection, StoreSection, StoreType,
    TlsSection,
};
pub use tenants::{ENV_TENANTS, TenantProvider, TenantsSection};
pub use webhooks::{WebhookEntry, WebhooksDeliverySection};

pub use show::{Setting, ShownConfig, ValueOrigin};

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use osb_service::config::{ConfigError, Loaded, UnknownKey};
use secrecy::SecretString;
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
    /// OCI runtime of sandboxes.
    #[serde(default)]
    pub secure_runtime: SecureRuntimeSection,
    /// Keys that are limited to one tenant each; `None` without the section.
    #[serde(default)]
    pub tenants: Option<TenantsSection>,
    /// What the sandboxes of a tenant may use together.
    #[serde(default)]
    pub quotas: QuotasSection,
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
        if self.others.contains_key("egress") {
            notes.push("[egress] is not read: network policies are refused in this release");
        }
        notes
    }
}

/// A configuration, its path and what was odd about it.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The configuration.
    pub config: Config,
    /// Where it came from.
    pub path: PathBuf,
    /// Keys without effect.
    pub unknown: Vec<UnknownKey>,
    /// Whether the file has the API key or an address with a password in it and every user of the machine may read it.
    pub exposes_secret: bool,
    /// Lines of the values in the file, by dotted key.
    lines: BTreeMap<String, usize>,
    /// Keys whose value came from the environment, with the variable.
    overridden: BTreeMap<&'static str, &'static str>,
}

/// Environment variables, as a function so that tests need not touch the process's.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Reads the configuration that the command line and the environment name.
///
/// # Errors
/// When the file cannot be read or a value breaks a rule.
pub fn load(flag: Option<&Path>, env: Env<'_>) -> Result<LoadedConfig, ConfigError> {
    let path = match flag {
        Some(path) => path.to_owned(),
        None => env(ENV_CONFIG).map_or_else(|| PathBuf::from("~/.sandbox.toml"), PathBuf::from),
    };
    let path = expand_home(&path, env);
    let text = std::fs::read_to_string(&path).map_err(|source| ConfigError::Read {
        file: path.clone(),
        source,
    })?;
    let mut loaded = parse(path, &text, env)?;
    loaded.exposes_secret &= everybody_reads(&loaded.path);
    Ok(loaded)
}

/// A group that may read is how packages give a service its file.
fn everybody_reads(file: &Path) -> bool {
    const OTHERS_READ: u32 = 0o004;
    let metadata = std::fs::metadata(file);
    metadata.is_ok_and(|it| it.permissions().mode() & OTHERS_READ != 0)
}

fn parse(path: PathBuf, text: &str, env: Env<'_>) -> Result<LoadedConfig, ConfigError> {
    let Loaded {
        mut config,
        mut unknown,
    } = osb_service::config::parse::<Config>(&path, text, known::KEYS)?;
    unknown.extend(known::unknown_sections(&config.others));
    let exposes_secret = config.server.usable_key().is_some()
        || config.store.postgresql.has_dsn()
        || config.renew_intent.redis.dsn.is_some()
        || config.webhooks.iter().any(|it| it.secret.is_some());
    let mut overridden = BTreeMap::new();
    if let Some(key) = env(ENV_API_KEY) {
        config.server.api_key = Some(SecretString::from(key));
        overridden.insert("server.api_key", ENV_API_KEY);
    }
    if let Some(dsn) = env(ENV_POSTGRESQL_DSN) {
        config.store.postgresql.dsn = SecretString::from(dsn);
        overridden.insert("store.postgresql.dsn", ENV_POSTGRESQL_DSN);
    }
    config.store.path = expand_home(&config.store.path, env);
    if config.store.import_path.is_none() && config.runtime.kind == RuntimeType::Docker {
        config.store.import_path = Some(PathBuf::from("~/.opensandbox/metadata"));
    }
    if let Some(folder) = &mut config.store.import_path {
        *folder = expand_home(folder, env);
    }
    let log = &mut config.log;
    if log.file_enabled {
        for (path, default) in [
            (&mut log.file_path, "~/logs/opensandbox/server.log"),
            (&mut log.access_file_path, "~/logs/opensandbox/access.log"),
        ] {
            let named = path.take().unwrap_or_else(|| PathBuf::from(default));
            *path = Some(expand_home(&named, env));
        }
    }
    let tls = &mut config.server.tls;
    for file in [&mut tls.certificate, &mut tls.key].into_iter().flatten() {
        *file = expand_home(file, env);
    }
    let files = config.webhooks.iter_mut();
    for file in files.filter_map(|webhook| webhook.secret_file.as_mut()) {
        *file = expand_home(file, env);
    }
    if let Some(file) = &mut config.webhooks_delivery.ca_file {
        *file = expand_home(file, env);
    }
    if let Some(tenants) = &mut config.tenants {
        let file = env(ENV_TENANTS).unwrap_or_else(|| tenants::DEFAULT_FILE.to_owned());
        tenants.file = expand_home(Path::new(&file), env);
    }
    rules::check(&config, &path)?;
    rules::check_environment(env)?;
    Ok(LoadedConfig {
        config,
        path,
        unknown,
        exposes_secret,
        lines: osb_service::config::value_lines(text),
        overridden,
    })
}

/// Replaces a leading `~`.
fn expand_home(path: &Path, env: Env<'_>) -> PathBuf {
    match (path.strip_prefix("~"), env("HOME")) {
        (Ok(rest), Some(home)) => Path::new(&home).join(rest),
        _ => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use osb_store::Location;
    use secrecy::ExposeSecret;

    use super::*;

    fn read(text: &str) -> Result<LoadedConfig, ConfigError> {
        let env = |name: &str| (name == "HOME").then(|| "/home/a".to_owned());
        parse(PathBuf::from("a.toml"), text, &env)
    }

    fn refused(text: &str) -> String {
        read(text).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn defaults_are_the_contracts() {
        let config = read("[runtime]\ntype = 'docker'").unwrap().config;
        assert_eq!(
            (config.server.host.as_str(), config.server.port),
            ("0.0.0.0", 8080)
        );
        assert_eq!(config.server.limit_concurrency, 1024);
        assert_eq!(config.server.timeout_graceful_shutdown, 5);
        assert_eq!(config.docker.network_mode, "host");
        assert_eq!(
            (config.docker.port_range_min, config.docker.port_range_max),
            (40000, 60000)
        );
        assert_eq!(config.docker.pids_limit, 4096);
        assert!(config.docker.no_new_privileges && config.proxy.resolve_internal);
        assert_eq!(config.docker.drop_capabilities.len(), 9);
        assert_eq!(
            config.store.path,
            Path::new("/home/a/.opensandbox/opensandbox.db")
        );
        assert!(config.runtime.execd_auth && config.runtime.execd_image.is_none());
    }

    #[test]
    fn wrong_values_name_their_key() {
        for (text, want) in [
            ("", "a.toml: .: missing field `runtime`"),
            ("[runtime]\ntype = 'lxc'", "a.toml: runtime.type: expected"),
            (
                "[server]\nport = 0\n[runtime]\ntype='docker'",
                "a.toml: server.port: ",
            ),
            (
                "[server]\nmax_sandbox_timeout_seconds = 59\n[runtime]\ntype='docker'",
                "a.toml: server.max_sandbox_timeout_seconds: ",
            ),
            (
                "[server]\ntrusted_proxies=['10.0.0.1','10/8']\n[runtime]\ntype='docker'",
                "a.toml: server.trusted_proxies: ",
            ),
            (
                "[docker]\nport_range_min=50000\nport_range_max=50050\n[runtime]\ntype='docker'",
                "a.toml: docker.port_range_max: ",
            ),
            (
                "[docker]\npublish_host='::1'\n[runtime]\ntype='docker'",
                "a.toml: docker.publish_host",
            ),
            (
                "[docker]\nlog_max_size='10 MB'\n[runtime]\ntype='docker'",
                "a.toml: docker.log_max_size: ",
            ),
            (
                "[docker]\nlog_max_size='0m'\n[runtime]\ntype='docker'",
                "a.toml: docker.log_max_size: ",
            ),
            (
                "[docker]\nlog_max_files=0\n[runtime]\ntype='docker'",
                "a.toml: docker.log_max_files: ",
            ),
            (
                "[docker]\nseccomp_profile='/no/such/file'\n[runtime]\ntype='docker'",
                "a.toml: docker.seccomp_profile: cannot read /no/such/file",
            ),
            (
                "[docker]\nsandbox_env={'A=B'='x'}\n[runtime]\ntype='docker'",
                "a.toml: docker.sandbox_env: ",
            ),
            (
                "[docker]\nsandbox_binds=['/srv']\n[runtime]\ntype='docker'",
                "a.toml: docker.sandbox_binds: ",
            ),
            (
                "[docker]\nsandbox_binds=['/srv:srv:ro']\n[runtime]\ntype='docker'",
                "a.toml: docker.sandbox_binds: ",
            ),
            (
                "[docker]\nsandbox_binds=['/srv:/opt/opensandbox/.dist/execd']\n[runtime]\ntype='docker'",
                "a.toml: docker.sandbox_binds: ",
            ),
            (
                "[docker]\npids_limit=0\n[runtime]\ntype='docker'",
                "a.toml: docker.pids_limit: ",
            ),
            (
                "[kubernetes]\n[runtime]\ntype='docker'",
                "a.toml: kubernetes: ",
            ),
            (
                "[ingress]\nmode='gateway'\n[runtime]\ntype='docker'",
                "a.toml: ingress.mode: ",
            ),
            (
                "[tenants]\n[server]\napi_key='k'\n[runtime]\ntype='docker'",
                "a.toml: server.api_key: ",
            ),
            (
                "[tenants]\nprovider='http'\n[runtime]\ntype='docker'",
                "a.toml: tenants.endpoint: ",
            ),
            (
                "[tenants]\ntimeout_seconds=0\n[runtime]\ntype='docker'",
                "a.toml: tenants.timeout_seconds: ",
            ),
            (
                "[audit]\nretention_days=0\n[runtime]\ntype='docker'",
                "a.toml: audit.retention_days: must be 1 to 36500",
            ),
            (
                "[audit]\nmax_entries=10\n[runtime]\ntype='docker'",
                "a.toml: audit.max_entries: must be at least 1000",
            ),
            (
                "[quotas]\ncpu='x'\n[runtime]\ntype='docker'",
                "a.toml: quotas.cpu: ",
            ),
            (
                "[quotas.tenants.a]\nmemory='x'\n[runtime]\ntype='docker'",
                "a.toml: quotas.tenants.a.memory: ",
            ),
            (
                "[[webhooks]]\nname='a'\nurl='https://u:hunter2@h'\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0].url: ",
            ),
            (
                "[[webhooks]]\nname='a'\nurl='https://h'\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0].secret: ",
            ),
            (
                "[[webhooks]]\nname='a'\nurl='https://h'\nsecret='hunter2'\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0].secret: must be whsec_",
            ),
            (
                "[[webhooks]]\nname='a'\nurl='https://h'\nsecret_file='/no/file'\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0].secret_file: cannot be read",
            ),
            (
                "[[webhooks]]\nname='a'\nurl='https://h'\nsecret='whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\nevents=['x']\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0].events: ",
            ),
            (
                "[[webhooks]]\nname='a'\n[runtime]\ntype='docker'",
                "a.toml: webhooks[0]: missing field `url`",
            ),
            (
                "[webhooks_delivery]\nallow_networks=['10/8']\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.allow_networks: ",
            ),
            (
                "[webhooks_delivery]\nca_file='/no/file'\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.ca_file: cannot be read",
            ),
            (
                "[webhooks_delivery]\nca_file='/dev/null'\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.ca_file: must contain certificates in PEM",
            ),
            (
                "[webhooks_delivery]\nretry_seconds=[0]\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.retry_seconds: ",
            ),
            (
                "[webhooks_delivery]\ntimeout_seconds=61\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.timeout_seconds: ",
            ),
            (
                "[webhooks_delivery]\nmax_pending=0\n[runtime]\ntype='docker'",
                "a.toml: webhooks_delivery.max_pending: ",
            ),
            (
                "[ingress.secure_access]\n[runtime]\ntype='docker'",
                "a.toml: ingress.secure_access: ",
            ),
            (
                "[server]\ntls.key='k'\n[runtime]\ntype='docker'",
                "a.toml: server.tls.certificate: ",
            ),
            (
                "[server.tls]\ncertificate='c'\n[runtime]\ntype='docker'",
                "a.toml: server.tls.key: ",
            ),
            (
                "[otel]\nexport_interval_millis=999\n[runtime]\ntype='docker'",
                "a.toml: otel.export_interval_millis: ",
            ),
            (
                "[metrics]\naddress='9464'\n[runtime]\ntype='docker'",
                "a.toml: metrics.address: ",
            ),
            (
                "[server]\nthread_pool_size=0\n[runtime]\ntype='docker'",
                "a.toml: server.thread_pool_size: ",
            ),
            (
                "[server]\nloop='fast'\n[runtime]\ntype='docker'",
                "a.toml: server.loop: ",
            ),
            (
                "[server]\nhttp='h2'\n[runtime]\ntype='docker'",
                "a.toml: server.http: ",
            ),
            (
                "[log]\nfile_enabled=true\nfile_path='/a'\naccess_file_path='/a'\n[runtime]\ntype='docker'",
                "a.toml: log.access_file_path: ",
            ),
            (
                "[log]\nfile_max_bytes=0\n[runtime]\ntype='docker'",
                "a.toml: log.file_max_bytes: ",
            ),
            (
                "[log]\nlevel='loud'\n[runtime]\ntype='docker'",
                "a.toml: log.level: ",
            ),
            (
                "[store]\ntype='postgresql'\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.dsn: must be set",
            ),
            (
                "[store]\ntype='postgresql'\npostgresql.dsn='host=db'\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.dsn: must be a URL",
            ),
            (
                "[store.postgresql]\nmin_pool_size=11\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.min_pool_size: ",
            ),
            (
                "[store.postgresql]\nmin_pool_size=0\nmax_pool_size=0\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.max_pool_size: ",
            ),
            (
                "[store.postgresql]\nconnect_timeout_seconds=0\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.connect_timeout_seconds: ",
            ),
            (
                "[store.postgresql]\npool_timeout_seconds=nan\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.pool_timeout_seconds: ",
            ),
            (
                "[store.postgresql]\nsnapshot_recovery_interval_seconds=0\n[runtime]\ntype='docker'",
                "a.toml: store.postgresql.snapshot_recovery_interval_seconds: ",
            ),
        ] {
            let error = refused(text);
            assert!(
                error.starts_with(want),
                "{text}\n  got  {error}\n  want {want}…"
            );
        }
    }

    #[test]
    fn the_environment_replaces_the_dsn_and_no_error_shows_it() {
        let text = |dsn: &str| {
            format!(
                "[store]\ntype = 'postgresql'\npostgresql.dsn = '{dsn}'\n[runtime]\ntype = 'sim'"
            )
        };
        let with_env = |text: &str, dsn: &'static str| {
            let env = |name: &str| (name == ENV_POSTGRESQL_DSN).then(|| dsn.to_owned());
            parse(PathBuf::from("a.toml"), text, &env)
        };
        let url = "postgresql://me:hunter2@db/boxes";
        for loaded in [read(&text(url)), with_env(&text("host=db"), url)] {
            let config = loaded.unwrap().config;
            assert!(!format!("{config:?}").contains("hunter2"));
            let Location::Postgres(options) = config.store.location() else {
                panic!("{config:?}");
            };
            assert_eq!(options.dsn.expose_secret(), url);
        }
        let error = with_env(&text(url), " ")
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("store.postgresql.dsn: must be set"),
            "{error}"
        );
        let error = refused(&text("http://me:hunter2@db"));
        assert!(
            error.contains("must be a URL") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn typos_are_reported_without_secrets() {
        let loaded =
            read("[server]\napi_keys = 'hunter2'\n[runtime]\ntype='docker'\n[servre]\n").unwrap();
        let warnings: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "unknown key server.api_keys, did you mean server.api_key?",
                "unknown key servre, did you mean server?"
            ]
        );
        let error = refused("[server]\napi_key = ['hunter2']\n[runtime]\ntype='docker'");
        assert!(
            error.contains("server.api_key") && !error.contains("hunter2"),
            "{error}"
        );
    }

    #[test]
    fn ports_that_can_get_the_consoles_cookie_cause_a_warning() {
        let warns = |text: &str| {
            let notes = read(text).unwrap().config.notes();
            notes.iter().any(|note| note.contains("cookie"))
        };
        let docker = "[runtime]\ntype = 'docker'\n";
        let bridge = format!("{docker}[docker]\nnetwork_mode = 'bridge'\npublish_host = ");
        assert!(warns(docker), "the contract's defaults");
        assert!(warns(&format!("{bridge}'10.0.0.1'")));
        assert!(warns(&format!(
            "{docker}[docker]\npublish_host = '127.0.0.1'"
        )));
        assert!(!warns(&format!("{bridge}'127.0.0.1'")));
        assert!(!warns(&format!(
            "{docker}[server]\neip = 'https://e.example'"
        )));
        assert!(!warns("[runtime]\ntype = 'sim'"));
    }

    #[test]
    fn endpoints_on_an_unpublished_ipv6_address_cause_a_warning() {
        let warns = |host: &str, more: &str| {
            let text = format!(
                "[server]\nhost = '{host}'\n{more}\n[runtime]\ntype = 'docker'\n\
                 [docker]\nnetwork_mode = 'bridge'"
            );
            let notes = read(&text).unwrap().config.notes();
            notes.iter().any(|note| note.contains("IPv6"))
        };
        assert!(warns("::1", "") && warns("2001:db8::1", "eip = ' '"));
        assert!(!warns("::", ""), "endpoints get an IPv4 address then");
        assert!(!warns("127.0.0.1", "") && !warns("box.example", ""));
        assert!(!warns("::1", "eip = 'box.example'"));
        let host_network = "[server]\nhost = '::1'\n[runtime]\ntype = 'docker'";
        let notes = read(host_network).unwrap().config.notes();
        assert!(!notes.iter().any(|note| note.contains("IPv6")), "{notes:?}");
    }

    #[test]
    fn the_configuration_for_deployments_loads_without_a_note() {
        let loaded = read(include_str!("../../../deploy/config.docker.toml")).unwrap();
        assert_eq!(loaded.unknown, []);
        assert_eq!(loaded.config.notes(), [""; 0]);
    }

    #[test]
    fn a_proxy_in_front_that_is_not_named_is_noticed() {
        let notes = |more: &str| {
            let text =
                format!("[server]\neip = 'https://e.example'\n{more}\n[runtime]\ntype = 'sim'");
            read(&text).unwrap().config.notes().len()
        };
        assert_eq!(notes(""), 1);
        assert_eq!(notes("trusted_proxies = ['127.0.0.1', 'fd00::/8']"), 0);
        assert_eq!(notes("tls = { certificate = 'c', key = 'k' }"), 0);
    }

    #[test]
    fn a_key_that_everybody_can_read_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        let exposes = |text: &str, mode| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            load(Some(&file), &|_| None).unwrap().exposes_secret
        };
        let with_key = "[server]\napi_key = 'k'\n[runtime]\ntype = 'sim'";
        for (mode, exposed) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
            assert_eq!(exposes(with_key, mode), exposed, "{mode:o}");
        }
        assert!(!exposes("[runtime]\ntype = 'sim'", 0o644));
        let with_dsn = "[store.postgresql]\ndsn = 'd'\n[runtime]\ntype = 'sim'";
        assert!(exposes(with_dsn, 0o644) && !exposes(with_dsn, 0o600));
    }

    #[test]
    fn the_log_file_has_the_contracts_default_and_is_off_by_default() {
        let file = |log: &str| {
            let text = format!("[log]\n{log}\n[runtime]\ntype = 'sim'");
            read(&text).unwrap().config.log.file()
        };
        assert_eq!(file("file_path = '/x'"), None);
        let on = file("file_enabled = true\nfile_backup_count = 0").unwrap();
        assert_eq!(on.path, Path::new("/home/a/logs/opensandbox/server.log"));
        assert_eq!((on.max_bytes, on.backups), (104_857_600, 0));
        let named = file("file_enabled = true\nfile_path = '~/x'").unwrap();
        assert_eq!(named.path, Path::new("/home/a/x"));
        let accesses = |log: &str| {
            let text = format!("[log]\n{log}\n[runtime]\ntype = 'sim'");
            read(&text).unwrap().config.log.access_file()
        };
        assert_eq!(accesses("access_file_path = '/x'"), None);
        let on = accesses("file_enabled = true\nfile_max_bytes = 9").unwrap();
        assert_eq!(on.path, Path::new("/home/a/logs/opensandbox/access.log"));
        assert_eq!(on.max_bytes, 9);
    }

    #[test]
    fn signing_keys_in_the_environment_need_a_gateway() {
        let text = "[runtime]\ntype = 'docker'";
        for (keys, active, want) in [
            (Some("k=aGVsbG8="), None, "must be set together"),
            (None, Some("k"), "must be set together"),
            (Some(" "), Some("k"), "must be set together"),
            (Some("k=aGVsbG8="), Some("k"), "gateway"),
        ] {
            let env = |name: &str| match name {
                ENV_SECURE_ACCESS_KEYS => keys.map(str::to_owned),
                ENV_SECURE_ACCESS_ACTIVE_KEY => active.map(str::to_owned),
                _ => None,
            };
            let error = parse(PathBuf::from("a.toml"), text, &env).map(|_| ());
            let error = error.unwrap_err().to_string();
            assert!(error.contains(want), "{error}");
            assert!(!error.contains("aGVsbG8="), "{error}");
        }
    }

    #[test]
    fn the_environment_overrides_the_key_even_with_nothing() {
        let text = "[server]\napi_key='file'\n[runtime]\ntype='docker'";
        let env = |name: &str| (name == ENV_API_KEY).then(String::new);
        let config = parse(PathBuf::from("a.toml"), text, &env).unwrap().config;
        assert!(config.server.usable_key().is_none());
    }
}
