//! Every key of the contract, so that a warning about a typo can suggest the intended key.

use osb_service::config::UnknownKey;

/// Dotted keys that this release reads.
pub(super) const KEYS: &[&str] = &[
    "server.host",
    "server.port",
    "server.api_key",
    "server.eip",
    "server.max_sandbox_timeout_seconds",
    "server.trusted_proxies",
    "server.timeout_keep_alive",
    "server.limit_concurrency",
    "server.limit_keyless_per_client",
    "server.timeout_graceful_shutdown",
    "server.backlog",
    "server.tls.certificate",
    "server.tls.key",
    "server.thread_pool_size",
    "server.loop",
    "server.http",
    "log.level",
    "log.file_enabled",
    "log.file_path",
    "log.access_file_path",
    "log.file_max_bytes",
    "log.file_backup_count",
    "runtime.type",
    "runtime.execd_image",
    "runtime.execd_run_as_init",
    "runtime.execd_auth",
    "runtime.execd_isolation",
    "docker.network_mode",
    "docker.api_timeout",
    "docker.host_ip",
    "docker.drop_capabilities",
    "docker.apparmor_profile",
    "docker.no_new_privileges",
    "docker.seccomp_profile",
    "docker.log_max_size",
    "docker.log_max_files",
    "docker.pids_limit",
    "docker.port_range_min",
    "docker.port_range_max",
    "docker.publish_host",
    "docker.sandbox_env",
    "docker.sandbox_binds",
    "docker.take_over",
    "proxy.resolve_internal",
    "proxy.keyless_from_sandboxes",
    "proxy.limit_per_sandbox",
    "proxy.idle_timeout",
    "proxy.tunnel_idle_timeout",
    "renew_intent.enabled",
    "renew_intent.min_interval_seconds",
    "renew_intent.redis.enabled",
    "renew_intent.redis.dsn",
    "renew_intent.redis.queue_key",
    "renew_intent.redis.consumer_concurrency",
    "console.preview_address",
    "console.preview_origin",
    "metrics.authentication",
    "metrics.address",
    "otel.enabled",
    "otel.endpoint",
    "otel.service_name",
    "otel.export_interval_millis",
    "otel.traces",
    "otel.traces_endpoint",
    "history.metrics",
    "history.commands",
    "history.retention_hours",
    "store.type",
    "store.path",
    "store.import_path",
    "store.postgresql.dsn",
    "store.postgresql.min_pool_size",
    "store.postgresql.max_pool_size",
    "store.postgresql.connect_timeout_seconds",
    "store.postgresql.pool_timeout_seconds",
    "store.postgresql.snapshot_recovery_interval_seconds",
    "egress.image",
    "egress.mode",
    "egress.disable_ipv6",
    "egress.otlp_endpoint",
    "egress.dns_upstreams",
    "egress.readiness_timeout_seconds",
    "egress.warm_sidecars",
    "egress.requests",
    "egress.limits",
    "egress.default_policy",
    "egress.default_allow",
    "storage.allow_racy_paths",
    "storage.allowed_host_paths",
    "storage.volume_default_size",
    "storage.ossfs_mount_root",
    "storage.ossfs_options",
    "storage.host_is_local",
    "secure_runtime.type",
    "secure_runtime.docker_runtime",
    "secure_runtime.k8s_runtime_class",
    "quotas.sandboxes",
    "quotas.cpu",
    "quotas.memory",
    "quotas.disk",
    "quotas.tenants",
    "quotas.user",
    "quotas.users",
    "quotas.key",
    "quotas.keys",
    "pools.acquisition_timeout_seconds",
    "pools.serve_plain_creates",
    "pools.max_pools",
    "pools.max_waiting",
    "snapshots.max_snapshots",
    "templates.allow_builds",
    "templates.allow_tenant_builds",
    "templates.build_timeout_seconds",
    "templates.max_context_bytes",
    "templates.max_templates",
    "image_gc.enabled",
    "image_gc.unused_hours",
    "image_gc.disk_percent",
    "image_gc.keep",
    "image_gc.build_cache",
    "audit.enabled",
    "audit.retention_days",
    "audit.max_entries",
    "webhooks.name",
    "webhooks.url",
    "webhooks.secret",
    "webhooks.secret_file",
    "webhooks.events",
    "webhooks.tenant",
    "webhooks_delivery.allow_private",
    "webhooks_delivery.allow_networks",
    "webhooks_delivery.ca_file",
    "webhooks_delivery.timeout_seconds",
    "webhooks_delivery.retry_seconds",
    "webhooks_delivery.keep_delivered_hours",
    "webhooks_delivery.keep_dead_hours",
    "webhooks_delivery.max_pending",
    "tenants.provider",
    "tenants.endpoint",
    "tenants.max_stale_seconds",
    "tenants.timeout_seconds",
    "tenants.auth_header",
    "tenants.auth_token",
];

/// Sections of the contract that other runtimes or later releases read.
const OTHER_SECTIONS: [&str; 3] = ["kubernetes", "agent_sandbox", "ingress"];

/// Top-level names that are no section.
pub(super) fn unknown_sections(others: &toml::Table) -> Vec<UnknownKey> {
    let sections: Vec<&str> = KEYS
        .iter()
        .filter_map(|key| key.split_once('.'))
        .map(|(section, _)| section)
        .chain(OTHER_SECTIONS)
        .collect();
    others
        .keys()
        .filter(|key| !OTHER_SECTIONS.contains(&key.as_str()))
        .map(|key| UnknownKey {
            key: key.clone(),
            nearest: osb_service::config::nearest(key, &sections).map(str::to_owned),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::KEYS;

    /// Keys in the tables of docs/configuration.md, under the headings of the server's sections.
    fn documented() -> BTreeSet<String> {
        let page = include_str!("../../../docs/configuration.md");
        let mut section = None;
        let mut keys = BTreeSet::new();
        for line in page.lines() {
            if let Some(heading) = line.strip_prefix("## ") {
                let name = heading.split('`').nth(1).unwrap_or_default();
                let is_section = name.starts_with('[') && name.ends_with(']');
                let name = is_section.then(|| name.trim_matches(['[', ']']));
                let has_keys = |name: &&str| {
                    let prefix = format!("{name}.");
                    KEYS.iter().any(|key| key.starts_with(&prefix))
                };
                section = name.filter(has_keys);
            }
            let (Some(section), Some(row)) = (section, line.strip_prefix("| `")) else {
                continue;
            };
            let first_cell = row.split(" |").next().unwrap_or_default();
            let names = first_cell.split('`').step_by(2);
            keys.extend(
                names
                    .filter(|name| !name.is_empty())
                    .map(|name| format!("{section}.{name}")),
            );
        }
        keys
    }

    #[test]
    fn the_documentation_lists_the_keys_that_are_read() {
        let (documented, read) = (
            documented(),
            KEYS.iter().map(|key| (*key).to_owned()).collect(),
        );
        let missing: Vec<_> = documented.symmetric_difference(&read).collect();
        assert!(missing.is_empty(), "in one of both only: {missing:?}");
    }
}
