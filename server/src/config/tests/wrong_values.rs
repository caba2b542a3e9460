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
            "[storage]\nallowed_host_paths=['srv']\n[runtime]\ntype='docker'",
            "a.toml: storage.allowed_host_paths: ",
        ),
        (
            "[storage]\nossfs_mount_root='mnt'\n[runtime]\ntype='docker'",
            "a.toml: storage.ossfs_mount_root: ",
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
            "[pools]\nacquisition_timeout_seconds=0\n[runtime]\ntype='docker'",
            "a.toml: pools.acquisition_timeout_seconds: must be 1 to 3600",
        ),
        (
            "[templates]\nallow_tenant_builds=true\n[runtime]\ntype='docker'",
            "a.toml: templates.allow_tenant_builds: needs templates.allow_builds",
        ),
        (
            "[templates]\nbuild_timeout_seconds=0\n[runtime]\ntype='docker'",
            "a.toml: templates.build_timeout_seconds: must be 1 to 7200",
        ),
        (
            "[templates]\nmax_context_bytes=100000000\n[runtime]\ntype='docker'",
            "a.toml: templates.max_context_bytes: must be 1 to 67108864",
        ),
        (
            "[image_gc]\nunused_hours=0\n[runtime]\ntype='docker'",
            "a.toml: image_gc.unused_hours: must be 1 to 8760",
        ),
        (
            "[image_gc]\nenabled=true\nunused_hours=200\n[runtime]\ntype='docker'",
            "a.toml: image_gc.unused_hours: must be at most history.retention_hours, which is 168",
        ),
        (
            "[image_gc]\ndisk_percent=100\n[runtime]\ntype='docker'",
            "a.toml: image_gc.disk_percent: must be 0 to 99",
        ),
        (
            "[image_gc]\nkeep=['*']\n[runtime]\ntype='docker'",
            "a.toml: image_gc.keep: must be names of images",
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
            "[egress]\nimage=' '\n[runtime]\ntype='docker'",
            "a.toml: egress.image: must not be empty",
        ),
        (
            "[egress]\nmode='nft'\n[runtime]\ntype='docker'",
            "a.toml: egress.mode: ",
        ),
        (
            "[egress]\notlp_endpoint='collector:4318'\n[runtime]\ntype='docker'",
            "a.toml: egress.otlp_endpoint: ",
        ),
        (
            "[egress]\nreadiness_timeout_seconds=0\n[runtime]\ntype='docker'",
            "a.toml: egress.readiness_timeout_seconds: ",
        ),
        (
            "[egress]\nwarm_sidecars=33\n[runtime]\ntype='docker'",
            "a.toml: egress.warm_sidecars: must be at most 32",
        ),
        (
            "[egress.upstream_proxy]\nurl='http://p'\nauthorization='hunter2'\n[runtime]\ntype='docker'",
            "a.toml: egress.upstream_proxy: needs interception",
        ),
        (
            "[egress]\ndefault_policy='private'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: ",
        ),
        (
            "[egress]\ndefault_policy='public'\nmode='dns+nft'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: needs egress.image",
        ),
        (
            "[egress]\ndefault_policy='public'\nimage='a'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: needs egress.mode",
        ),
        (
            "[egress]\ndefault_policy='public'\nimage='a'\nmode='dns+nft'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: needs a docker.network_mode other than",
        ),
        (
            "[egress]\ndefault_policy='public'\nimage='a'\nmode='dns+nft'\n[docker]\nnetwork_mode='bridge'\n[secure_runtime]\ntype='gvisor'\ndocker_runtime='runsc'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: cannot be enforced under gVisor",
        ),
        (
            "[egress]\ndefault_policy='public'\nimage='a'\nmode='dns+nft'\n[docker]\nnetwork_mode='bridge'\n[secure_runtime]\ntype='kata'\ndocker_runtime='kata'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_policy: cannot be enforced under Kata Containers",
        ),
        (
            "[egress]\ndefault_allow=['10.0.0.0/8']\n[runtime]\ntype='docker'",
            "a.toml: egress.default_allow: needs default_policy",
        ),
        (
            "[egress]\ndefault_policy='public'\nimage='a'\nmode='dns+nft'\ndefault_allow=['intranet.example']\n[docker]\nnetwork_mode='bridge'\n[runtime]\ntype='docker'",
            "a.toml: egress.default_allow: must be a list of addresses and networks",
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
