//! Tests of the configuration as a whole.

mod notes;
mod wrong_values;

use std::{
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use osb_service::config::ConfigError;
use osb_store::Location;
use secrecy::ExposeSecret;

use super::{load::parse, *};

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
    let seconds = |limit: Option<std::time::Duration>| limit.map(|it| it.as_secs());
    let silences = (
        seconds(config.proxy.idle()),
        seconds(config.proxy.tunnel_idle()),
    );
    assert_eq!(silences, (Some(180), Some(3600)));
}

#[test]
fn the_silence_of_a_program_has_the_configured_limit_or_none() {
    for (seconds, limit) in [(0, None), (1, Some(1)), (3600, Some(3600))] {
        let text = format!("[runtime]\ntype = 'docker'\n[proxy]\nidle_timeout = {seconds}");
        let proxy = read(&text).unwrap().config.proxy;
        assert_eq!(proxy.idle().map(|it| it.as_secs()), limit);
        assert_eq!(proxy.tunnel_idle_timeout, 3600);
    }
}

#[test]
fn the_environment_replaces_the_dsn_and_no_error_shows_it() {
    let text = |dsn: &str| {
        format!("[store]\ntype = 'postgresql'\npostgresql.dsn = '{dsn}'\n[runtime]\ntype = 'sim'")
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
fn the_configuration_for_deployments_loads_without_a_note() {
    let loaded = read(include_str!("../../../../deploy/config.docker.toml")).unwrap();
    assert_eq!(loaded.unknown, []);
    assert_eq!(loaded.config.notes(), [""; 0]);
}

#[test]
fn the_configurations_of_the_packages_load_without_a_note() {
    let dsn = "postgresql:///opensandbox?user=opensandbox&host=/run/postgresql";
    let compose = include_str!("../../../../deploy/compose.yaml");
    let variable = format!(" {ENV_POSTGRESQL_DSN}: {dsn}\n");
    assert!(compose.contains(&variable), "{variable}");
    let env = |name: &str| (name == ENV_POSTGRESQL_DSN).then(|| dsn.to_owned());
    let load = |text: &str| parse(PathBuf::from("a.toml"), text, &env).unwrap();
    for text in [
        include_str!("../../../../deploy/debian/config.toml"),
        include_str!("../../../../deploy/server/config.toml"),
    ] {
        let loaded = load(text);
        assert_eq!(loaded.unknown, []);
        assert_eq!(loaded.config.notes(), [""; 0]);
        assert_eq!(loaded.config.server.host, "127.0.0.1");
        assert_eq!(loaded.config.docker.publish_host, "127.0.0.1");
    }
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
fn the_default_policy_of_sandboxes_allows_what_the_file_names() {
    let section = |lines: &str| {
        let text = format!(
            "[egress]\nimage = 'a'\nmode = 'dns+nft'\n{lines}\n[docker]\nnetwork_mode = 'bridge'\n\
             [runtime]\ntype = 'docker'"
        );
        read(&text).unwrap().config.egress
    };
    assert_eq!(section("").default_policy(&[]).unwrap(), None);
    let public =
        section("default_policy = 'public'\ndefault_allow = ['10.1.2.3', ' 10.2.0.0/16 ']");
    let own: [std::net::IpAddr; 1] = ["203.0.113.7".parse().unwrap()];
    let policy = public.default_policy(&own).unwrap().unwrap();
    for rule in [
        r#"{"action":"allow","target":"10.1.2.3/32"}"#,
        r#"{"action":"allow","target":"10.2.0.0/16"}"#,
        r#"{"action":"deny","target":"172.16.0.0/12"}"#,
        r#"{"action":"deny","target":"203.0.113.7/32"}"#,
    ] {
        assert!(policy.contains(rule), "{rule}: {policy}");
    }
    assert!(!policy.contains(r#""10.0.0.0/8""#), "{policy}");
    assert!(
        policy.starts_with(r#"{"defaultAction":"allow","#),
        "{policy}"
    );
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
