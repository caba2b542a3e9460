use super::refused;

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
            "[console]\npreview_address='8091'\n[runtime]\ntype='docker'",
            "a.toml: console.preview_address: ",
        ),
        (
            "[console]\npreview_address='127.0.0.1:8091'\npreview_origin='http://a.b'\n[runtime]\ntype='docker'",
            "a.toml: console.preview_origin: ",
        ),
        (
            "[console]\npreview_origin='http://*.a.b'\n[runtime]\ntype='docker'",
            "a.toml: console.preview_origin: ",
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
