//! Rules that types do not express (contract: lifecycle §14.9).

use std::{net::SocketAddr, path::Path};

use osb_service::config::ConfigError;

use super::{
    Config, DefaultPolicy, ENV_SECURE_ACCESS_ACTIVE_KEY, ENV_SECURE_ACCESS_KEYS, Env, RuntimeType,
    StoreType,
};
use crate::preview_origin::PreviewOrigins;

const LEVELS: [&str; 8] = [
    "trace", "debug", "info", "warn", "warning", "error", "critical", "off",
];

/// Names of OCI runtimes that make plain containers.
const PLAIN_RUNTIMES: [&str; 5] = [
    "crun",
    "io.containerd.runc.v1",
    "io.containerd.runc.v2",
    "io.containerd.runtime.v1.linux",
    "runc",
];

/// Longest of the times that are given in fractions of seconds: a day.
const LONGEST_SECONDS: f64 = 86_400.0;

/// Hours of `[history]`: up to a year.
const HISTORY_HOURS: std::ops::RangeInclusive<u32> = 1..=8760;

pub(super) fn check(config: &Config, file: &Path) -> Result<(), ConfigError> {
    let rule = |key: &str, rule: &str| Err(ConfigError::rule(file, key, rule));
    let server = &config.server;
    if server.host.trim().is_empty() {
        return rule("server.host", "must not be empty");
    }
    if server.port == 0 {
        return rule("server.port", "must be between 1 and 65535");
    }
    if server
        .max_sandbox_timeout_seconds
        .is_some_and(|seconds| seconds < 60)
    {
        return rule(
            "server.max_sandbox_timeout_seconds",
            "must be at least 60 seconds",
        );
    }
    if server.proxy_networks().is_none() {
        let text = "must be a list of addresses and networks such as \"10.0.0.0/8\"";
        return rule("server.trusted_proxies", text);
    }
    if server.timeout_keep_alive == 0 {
        return rule("server.timeout_keep_alive", "must be at least 1 second");
    }
    if server.timeout_graceful_shutdown == 0 {
        return rule(
            "server.timeout_graceful_shutdown",
            "must be at least 1 second",
        );
    }
    if !HISTORY_HOURS.contains(&config.history.retention_hours) {
        return rule("history.retention_hours", "must be between 1 and 8760");
    }
    if server.backlog == 0 {
        return rule("server.backlog", "must be at least 1");
    }
    match (&server.tls.certificate, &server.tls.key) {
        (Some(_), None) => {
            return rule("server.tls.key", "must be set with server.tls.certificate");
        }
        (None, Some(_)) => {
            return rule("server.tls.certificate", "must be set with server.tls.key");
        }
        _ => {}
    }
    if server.thread_pool_size == 0 {
        return rule("server.thread_pool_size", "must be at least 1");
    }
    if !["auto", "uvloop", "asyncio"].contains(&server.event_loop.as_str()) {
        return rule("server.loop", "must be one of auto, uvloop, asyncio");
    }
    if !["auto", "httptools", "h11"].contains(&server.http.as_str()) {
        return rule("server.http", "must be one of auto, httptools, h11");
    }
    if config.log.file_max_bytes == 0 {
        return rule("log.file_max_bytes", "must be at least 1");
    }
    if config.log.file_enabled && config.log.file_path == config.log.access_file_path {
        return rule("log.access_file_path", "must differ from log.file_path");
    }
    if !LEVELS.contains(&config.log.level.to_ascii_lowercase().as_str()) {
        return rule(
            "log.level",
            "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL",
        );
    }
    if config
        .runtime
        .execd_image
        .as_deref()
        .is_some_and(str::is_empty)
    {
        return rule(
            "runtime.execd_image",
            "must not be empty; leave it out for the built-in execd",
        );
    }
    if config.otel.export_interval_millis < 1000 {
        return rule("otel.export_interval_millis", "must be at least 1000");
    }
    let preview = config.console.preview_address.as_deref();
    if preview.is_some_and(|address| address.parse::<SocketAddr>().is_err()) {
        return rule(
            "console.preview_address",
            "must be an address with a port such as 127.0.0.1:8091",
        );
    }
    if let Some(origin) = &config.console.preview_origin {
        if let Err(why) = PreviewOrigins::parse(origin) {
            return rule("console.preview_origin", why);
        }
        if preview.is_none() {
            return rule(
                "console.preview_origin",
                "needs console.preview_address, where previews are served",
            );
        }
    }
    let metrics = config.metrics.address.as_deref();
    if metrics.is_some_and(|address| address.parse::<SocketAddr>().is_err()) {
        return rule(
            "metrics.address",
            "must be an address with a port such as 127.0.0.1:9464",
        );
    }
    config.quotas.check(file)?;
    config.audit.check(file)?;
    config.pools.check(file)?;
    config.templates.check(file)?;
    config
        .image_gc
        .check(file, config.history.retention_hours)?;
    config.webhooks_delivery.check(&config.webhooks, file)?;
    store(config, file)?;
    config.renew_intent.check(file)?;
    secure_runtime(config, file)?;
    config.docker.check(file)?;
    config.egress.check(file)?;
    config.storage.check(file)?;
    let has = |section: &str| config.others.contains_key(section);
    if let Some(tenants) = &config.tenants {
        tenants.check(server.usable_key().is_some(), file)?;
    }
    match config.runtime.kind {
        RuntimeType::Kubernetes => {
            rule("runtime.type", "this release runs sandboxes on docker only")
        }
        RuntimeType::Docker | RuntimeType::Sim => {
            for section in ["kubernetes", "agent_sandbox"] {
                if has(section) {
                    return rule(section, "belongs to runtime.type = \"kubernetes\"");
                }
            }
            let mode = config
                .others
                .get("ingress")
                .and_then(|ingress| ingress.get("mode"));
            if mode.is_some_and(|mode| mode.as_str() != Some("direct")) {
                return rule(
                    "ingress.mode",
                    "must be \"direct\" with runtime.type = \"docker\"",
                );
            }
            let ingress = config.others.get("ingress");
            if ingress.is_some_and(|ingress| ingress.get("secure_access").is_some()) {
                return rule("ingress.secure_access", "needs ingress.mode = \"gateway\"");
            }
            if config.runtime.kind == RuntimeType::Docker {
                default_policy(config, file)?;
            }
            Ok(())
        }
    }
}

/// Variables that would replace keys of the gateway, which no runtime of this release has.
pub(super) fn check_environment(env: Env<'_>) -> Result<(), ConfigError> {
    let rule = |rule: &str| {
        let (file, key) = (Path::new("environment"), ENV_SECURE_ACCESS_KEYS);
        Err(ConfigError::rule(file, key, rule))
    };
    let is_set = |name| env(name).map(|value| !value.trim().is_empty());
    match (
        is_set(ENV_SECURE_ACCESS_KEYS),
        is_set(ENV_SECURE_ACCESS_ACTIVE_KEY),
    ) {
        (None, None) => Ok(()),
        (Some(true), Some(true)) => rule("needs ingress.mode = \"gateway\""),
        _ => rule(&format!(
            "must be set together with {ENV_SECURE_ACCESS_ACTIVE_KEY}, and neither may be empty"
        )),
    }
}

fn store(config: &Config, file: &Path) -> Result<(), ConfigError> {
    let rule = |key: &str, rule: &str| {
        let key = format!("store.postgresql.{key}");
        Err(ConfigError::rule(file, key, rule))
    };
    let postgresql = &config.store.postgresql;
    if postgresql.max_pool_size == 0 {
        return rule("max_pool_size", "must be at least 1");
    }
    if postgresql.min_pool_size > postgresql.max_pool_size {
        return rule("min_pool_size", "must not exceed max_pool_size");
    }
    if postgresql.connect_timeout_seconds == 0 {
        return rule("connect_timeout_seconds", "must be at least 1 second");
    }
    for (key, seconds) in [
        ("pool_timeout_seconds", postgresql.pool_timeout_seconds),
        (
            "snapshot_recovery_interval_seconds",
            postgresql.snapshot_recovery_interval_seconds,
        ),
    ] {
        if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
            return rule(key, "must be more than 0 and at most 86400 seconds");
        }
    }
    if config.store.kind != StoreType::Postgresql {
        return Ok(());
    }
    if !postgresql.has_dsn() {
        return rule("dsn", "must be set for store.type = \"postgresql\"");
    }
    match postgresql.options().check_dsn() {
        Ok(()) => Ok(()),
        Err(error) => rule("dsn", &error.to_string()),
    }
}

fn secure_runtime(config: &Config, file: &Path) -> Result<(), ConfigError> {
    let rule = |key: &str, rule: &str| Err(ConfigError::rule(file, key, rule));
    let secure = &config.secure_runtime;
    for (key, name) in [
        ("secure_runtime.docker_runtime", &secure.docker_runtime),
        (
            "secure_runtime.k8s_runtime_class",
            &secure.k8s_runtime_class,
        ),
    ] {
        let Some(name) = name.as_deref().map(str::trim) else {
            continue;
        };
        if name.is_empty() {
            return rule(key, "must not be empty");
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
        if !name.bytes().all(fits) {
            return rule(
                key,
                "must be a name of letters, digits, '.', '_', '-' and '/'",
            );
        }
    }
    let named = secure.docker_runtime.is_some() || secure.k8s_runtime_class.is_some();
    match secure.kind.as_str() {
        "" if named => rule("secure_runtime.type", "must be set when a runtime is named"),
        "" => Ok(()),
        "gvisor" | "kata" if named => match secure.runtime() {
            // Sandboxes would be plain containers that are taken for something else.
            Some(found) if PLAIN_RUNTIMES.contains(&found.name.as_str()) => rule(
                "secure_runtime.docker_runtime",
                &format!(
                    "must name a runtime for {}, and this one makes plain containers",
                    found.kind
                ),
            ),
            _ => Ok(()),
        },
        "gvisor" | "kata" => rule(
            "secure_runtime.docker_runtime",
            "must name the OCI runtime to use",
        ),
        "firecracker" => rule("secure_runtime.type", "firecracker does not run on docker"),
        _ => rule(
            "secure_runtime.type",
            "must be one of gvisor, kata, firecracker, or absent",
        ),
    }
}

/// Every sandbox gets the default policy, so each must be able to have one.
fn default_policy(config: &Config, file: &Path) -> Result<(), ConfigError> {
    let rule = |rule: &str| Err(ConfigError::rule(file, "egress.default_policy", rule));
    if config.egress.default_policy == DefaultPolicy::None {
        return Ok(());
    }
    if !config.docker.publishes() {
        return rule("needs a docker.network_mode other than \"host\"");
    }
    // The back end has the same condition.
    match config.secure_runtime.runtime() {
        Some(secure) => rule(&format!(
            "cannot be enforced under {} (secure_runtime.type)",
            secure.kind
        )),
        None => Ok(()),
    }
}
