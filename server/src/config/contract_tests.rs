//! Defaults, forms and rules of the contract's configuration.

use std::{path::PathBuf, time::Duration};

use serde_json::{Value, json};

use super::{Config, load::parse};

fn read(text: &str) -> Result<Config, String> {
    let env = |name: &str| (name == "HOME").then(|| "/home/a".to_owned());
    let loaded = parse(PathBuf::from("a.toml"), text, &env);
    loaded
        .map(|loaded| loaded.config)
        .map_err(|error| error.to_string())
}

fn docker(more: &str) -> Result<Config, String> {
    read(&format!("{more}\n[runtime]\ntype = 'docker'\n"))
}

#[test]
fn every_default_is_the_contracts() {
    let config = docker("").unwrap();
    let shown = json!({
        "server": config.server, "log": config.log, "runtime": config.runtime,
        "docker": config.docker, "proxy": config.proxy, "store": config.store,
        "secure_runtime": config.secure_runtime, "renew_intent": config.renew_intent,
        "otel": config.otel, "tenants": config.tenants, "egress": config.egress,
        "storage": config.storage,
    });
    let defaults = json!({
        "server": {
            "host": "0.0.0.0", "port": 8080, "api_key": null, "eip": null,
            "max_sandbox_timeout_seconds": null, "timeout_keep_alive": 30,
            "limit_concurrency": 1024, "timeout_graceful_shutdown": 5, "backlog": 2048,
            "thread_pool_size": 200, "loop": "auto", "http": "auto",
        },
        "log": {
            "level": "INFO", "file_enabled": false, "file_max_bytes": 104_857_600,
            "file_backup_count": 5,
        },
        "runtime": {"type": "docker", "execd_image": null, "execd_run_as_init": false},
        "docker": {
            "network_mode": "host", "api_timeout": null, "host_ip": null,
            "drop_capabilities": [
                "AUDIT_WRITE", "MKNOD", "NET_ADMIN", "NET_RAW", "SYS_ADMIN", "SYS_MODULE",
                "SYS_PTRACE", "SYS_TIME", "SYS_TTY_CONFIG",
            ],
            "apparmor_profile": null, "no_new_privileges": true, "seccomp_profile": null,
            "pids_limit": 4096, "port_range_min": 40000, "port_range_max": 60000,
            "publish_host": "0.0.0.0", "sandbox_env": {}, "sandbox_binds": [],
        },
        "proxy": {"resolve_internal": true},
        "store": {
            "type": "sqlite", "path": "/home/a/.opensandbox/opensandbox.db",
            "postgresql": {
                "min_pool_size": 1, "max_pool_size": 10, "connect_timeout_seconds": 5,
                "pool_timeout_seconds": 5.0, "snapshot_recovery_interval_seconds": 15.0,
            },
        },
        "secure_runtime": {"type": "", "docker_runtime": null, "k8s_runtime_class": null},
        "renew_intent": {
            "enabled": false, "min_interval_seconds": 60,
            "redis": {
                "enabled": false, "dsn": null, "queue_key": "opensandbox:renew:intent",
                "consumer_concurrency": 8,
            },
        },
        "otel": {
            "enabled": false, "endpoint": null, "service_name": "opensandbox-server",
            "export_interval_millis": 60_000,
        },
        "tenants": null,
        "egress": {
            "image": null, "mode": "dns", "disable_ipv6": true, "otlp_endpoint": null,
            "readiness_timeout_seconds": 30.0, "requests": null, "limits": null,
        },
        "storage": {
            "allowed_host_paths": [], "volume_default_size": "1Gi",
            "ossfs_mount_root": "/mnt/ossfs",
        },
    });
    let mut checked = 0;
    compare(&defaults, &shown, "", &mut checked);
    assert!(checked > 40, "{checked} defaults");
}

/// Compares the members of the contract. This server has more.
fn compare(want: &Value, seen: &Value, path: &str, checked: &mut usize) {
    match want {
        Value::Object(members) if !members.is_empty() => {
            for (name, want) in members {
                let path = format!("{path}.{name}");
                let seen = seen.get(name).unwrap_or(&Value::Null);
                compare(want, seen, &path, checked);
            }
        }
        _ => {
            assert_eq!(seen, want, "{path}");
            *checked += 1;
        }
    }
}

#[test]
fn redis_of_renewals_is_read_as_a_table_and_as_dotted_keys() {
    for text in [
        "[renew_intent]\nenabled = true\nredis.enabled = true\nredis.dsn = 'redis://r'\n",
        "[renew_intent]\nenabled = true\n[renew_intent.redis]\nenabled = true\ndsn = 'redis://r'\n",
    ] {
        let config = docker(text).unwrap();
        let redis = &config.renew_intent.redis;
        assert!(redis.enabled && redis.dsn.is_some(), "{text}");
        assert_eq!(redis.consumer_concurrency, 8, "{text}");
    }
}

#[test]
fn a_limit_of_0_is_no_limit_and_a_negative_one_is_refused() {
    let limit = |number: &str| docker(&format!("[server]\nlimit_concurrency = {number}"));
    assert_eq!(limit("0").unwrap().server.limit_concurrency, 0);
    let error = limit("-1").unwrap_err();
    assert!(error.contains("server.limit_concurrency"), "{error}");
}

#[test]
fn secure_runtimes_are_named_or_absent() {
    let secure = |lines: &str| docker(&format!("[secure_runtime]\n{lines}"));
    for (lines, runtime) in [
        ("", None),
        ("type = ''", None),
        ("type = 'gvisor'\ndocker_runtime = 'runsc'", Some("runsc")),
        ("type = 'kata'\ndocker_runtime = 'mine'", Some("mine")),
        ("type = 'gvisor'\nk8s_runtime_class = 'c'", Some("runsc")),
        (
            "type = 'kata'\nk8s_runtime_class = 'c'",
            Some("kata-runtime"),
        ),
    ] {
        let config = secure(lines).unwrap();
        let named = config.secure_runtime.runtime().map(|it| it.name);
        assert_eq!(named.as_deref(), runtime, "{lines}");
    }
    for (lines, key) in [
        ("docker_runtime = 'runsc'", "secure_runtime.type"),
        ("k8s_runtime_class = 'c'", "secure_runtime.type"),
        ("type = 'gvisor'", "secure_runtime.docker_runtime"),
        ("type = 'kata'", "secure_runtime.docker_runtime"),
        ("type = 'firecracker'", "secure_runtime.type"),
        (
            "type = 'runsc'\ndocker_runtime = 'a'",
            "secure_runtime.type",
        ),
        (
            "type = 'gvisor'\ndocker_runtime = ' '",
            "secure_runtime.docker_runtime: must not be empty",
        ),
        (
            "type = 'kata'\nk8s_runtime_class = ''",
            "secure_runtime.k8s_runtime_class: must not be empty",
        ),
        (
            "type = 'gvisor'\ndocker_runtime = 'run sc'",
            "secure_runtime.docker_runtime: must be a name",
        ),
        (
            "type = 'gvisor'\ndocker_runtime = 'runc'",
            "secure_runtime.docker_runtime: must name a runtime for gVisor",
        ),
        (
            "type = 'kata'\ndocker_runtime = 'io.containerd.runc.v2'",
            "secure_runtime.docker_runtime: must name a runtime for Kata Containers",
        ),
    ] {
        let error = secure(lines).unwrap_err();
        assert!(error.contains(key), "{lines}: {error}");
    }
}

#[test]
fn the_sidecar_has_the_contracts_settings() {
    let text = "[egress]
image = 'opensandbox/egress:v1.1.7'
mode = 'dns+nft'
disable_ipv6 = false
otlp_endpoint = ' http://collector:4318 '
readiness_timeout_seconds = 5
requests = { cpu = '50m' }
limits = { memory = '64Mi', 'example.org/nic' = '1' }
";
    let egress = docker(text).unwrap().egress;
    let runtime = egress.runtime_config().unwrap();
    assert_eq!(runtime.image, "opensandbox/egress:v1.1.7");
    assert_eq!(
        (runtime.mode.as_str(), runtime.disable_ipv6),
        ("dns+nft", false)
    );
    assert_eq!(
        runtime.otlp_endpoint.as_deref(),
        Some("http://collector:4318")
    );
    assert_eq!(runtime.readiness_timeout, Duration::from_secs(5));
    assert_eq!(runtime.warm, 2, "an addition");
    let none = docker("[egress]\nimage = 'a'\nwarm_sidecars = 0").unwrap();
    assert_eq!(none.egress.runtime_config().unwrap().warm, 0);
    // Without an image, or with a blank collector.
    assert_eq!(docker("").unwrap().egress.runtime_config(), None);
    let blank = docker("[egress]\nimage = 'a'\notlp_endpoint = ' '")
        .unwrap()
        .egress;
    let runtime = blank.runtime_config().unwrap();
    assert_eq!(
        (runtime.otlp_endpoint, runtime.mode),
        (None, "dns".to_owned())
    );
}

#[test]
fn sections_of_other_releases_are_no_errors() {
    let config = docker("[router]\ndomain = 'a'\n[experimental.x]\ny = 1\n[storage]\na = 'b'");
    assert!(config.is_ok(), "{config:?}");
    for section in ["kubernetes", "agent_sandbox"] {
        let error = docker(&format!("[{section}]")).unwrap_err();
        assert!(error.contains("belongs to runtime.type"), "{error}");
    }
}
