//! `config show`: every key with its value and where the value came from. Secrets are masked.

use std::{
    fmt::{self, Write},
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::{Value, json};

use super::{
    ENV_API_KEY, ENV_CONFIG, ENV_EXECD, ENV_INSECURE, ENV_POSTGRESQL_DSN, ENV_TENANTS, Env,
    LoadedConfig, docker, known,
};

/// Variables that this server reads; only whether they are set is shown.
const VARIABLES: [&str; 7] = [
    ENV_CONFIG,
    ENV_TENANTS,
    ENV_API_KEY,
    ENV_POSTGRESQL_DSN,
    ENV_INSECURE,
    ENV_EXECD,
    "DOCKER_HOST",
];

/// The configuration in force, without its secrets.
#[derive(Clone, Debug, Serialize)]
pub struct ShownConfig {
    /// The file.
    pub file: PathBuf,
    /// Every key that this release reads, in the order of the documentation.
    pub settings: Vec<Setting>,
    /// Keys of the file without effect.
    pub unknown: Vec<String>,
    /// What the server warns about at its start.
    pub notes: Vec<String>,
    /// Variables of this server that are set.
    pub environment: Vec<&'static str>,
}

/// A key and its value.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Dotted key.
    pub key: &'static str,
    /// Its value; null where there is none. Secrets are masked.
    pub value: Value,
    /// Where the value came from.
    pub origin: ValueOrigin,
}

impl Setting {
    /// Its value in TOML's notation, which has no null.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        write_value(&mut text, &self.value);
        text
    }

    /// Whether the file or the environment has it.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.origin != ValueOrigin::Default
    }
}

impl fmt::Display for ValueOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Line(line) => write!(f, "line {line}"),
            Self::Environment(name) => write!(f, "environment: {name}"),
        }
    }
}

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ValueOrigin {
    /// Neither the file nor the environment has the key.
    Default,
    /// A line of the file, from 1.
    Line(usize),
    /// A variable.
    Environment(&'static str),
}

impl LoadedConfig {
    /// The configuration as an operator may see it, and paste it into a report.
    #[must_use]
    pub fn show(&self, env: Env<'_>) -> ShownConfig {
        let config = &self.config;
        let sections = json!({
            "server": config.server,
            "log": config.log,
            "runtime": config.runtime,
            "docker": config.docker,
            "proxy": config.proxy,
            "renew_intent": config.renew_intent,
            "console": config.console,
            "metrics": config.metrics,
            "otel": config.otel,
            "history": config.history,
            "store": config.store,
            "egress": config.egress,
            "storage": config.storage,
            "secure_runtime": config.secure_runtime,
            "tenants": config.tenants,
            "quotas": config.quotas,
            "pools": config.pools,
            "snapshots": config.snapshots,
            "templates": config.templates,
            "image_gc": config.image_gc,
            "audit": config.audit,
            "webhooks": config.webhooks,
            "webhooks_delivery": config.webhooks_delivery,
        });
        let value = |key: &str| match (key, value_of(&sections, key)) {
            // The contract's default is no value; this is what is in force then.
            ("docker.api_timeout", Value::Null) => docker::API_TIMEOUT_SECONDS.into(),
            // Absent where only the Kubernetes class is named; this is what Docker is asked for then.
            ("secure_runtime.docker_runtime", Value::Null) => {
                config.secure_runtime.runtime().map(|it| it.name).into()
            }
            (_, value) => value,
        };
        let setting = |key: &&'static str| Setting {
            key,
            value: value(key),
            origin: self.origin(key),
        };
        let set = |name: &&str| env(name).is_some();
        ShownConfig {
            file: self.path.clone(),
            settings: known::KEYS.iter().map(setting).collect(),
            unknown: self.unknown.iter().map(ToString::to_string).collect(),
            notes: config.notes().into_iter().map(str::to_owned).collect(),
            environment: VARIABLES.into_iter().filter(set).collect(),
        }
    }

    fn origin(&self, key: &str) -> ValueOrigin {
        if let Some(variable) = self.overridden.get(key) {
            return ValueOrigin::Environment(variable);
        }
        let line = self.lines.get(key).copied();
        line.map_or(ValueOrigin::Default, ValueOrigin::Line)
    }
}

/// The value of a key; of each entry where the section is a list.
fn value_of(sections: &Value, key: &str) -> Value {
    let mut value = sections;
    for name in key.split('.') {
        if let Value::Array(entries) = value {
            return entries.iter().map(|entry| entry[name].clone()).collect();
        }
        value = &value[name];
    }
    value.clone()
}

impl fmt::Display for ShownConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Setting { key, value, origin } in &self.settings {
            let mut line = format!("{key} = ");
            write_value(&mut line, value);
            writeln!(f, "{line:<56} # {}", Located(&self.file, *origin))?;
        }
        for unknown in &self.unknown {
            writeln!(f, "# {unknown}")?;
        }
        for note in &self.notes {
            writeln!(f, "# warning: {note}")?;
        }
        Ok(())
    }
}

struct Located<'a>(&'a Path, ValueOrigin);

impl fmt::Display for Located<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            ValueOrigin::Line(line) => write!(f, "{}:{line}", self.0.display()),
            origin => write!(f, "{origin}"),
        }
    }
}

/// Writes a value in TOML's notation, which has no null.
fn write_value(text: &mut String, value: &Value) {
    match value {
        Value::Null => text.push_str("none"),
        Value::Object(members) => {
            text.push_str("{ ");
            for (number, (name, value)) in members.iter().enumerate() {
                let comma = if number > 0 { ", " } else { "" };
                // Writing to a string cannot fail.
                let _ = write!(text, "{comma}{} = ", Value::from(name.as_str()));
                write_value(text, value);
            }
            text.push_str(if members.is_empty() { "}" } else { " }" });
        }
        other => {
            let _ = write!(text, "{other}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{address::MASK, config::load::parse};

    const FILE: &str = "\
[server]
port = 9
api_key = 'hunter1'
eip = \"a'b\"
api_kye = 'hunter2'
[runtime]
type = 'docker'
[docker]
sandbox_env = { TOKEN = 'hunter3' }
[store.postgresql]
dsn = 'hunter4'
[renew_intent.redis]
dsn = 'redis://:hunter6@h'
[otel]
endpoint = 'http://collector.example/hunter7hunter7hunter7/v1/metrics?key=hunter8'
traces_endpoint = 'http://collector.example:4318/v1/traces'
[[webhooks]]
name = 'ops'
url = 'https://example.org:8443/hunter7?key=hunter8'
secret = 'whsec_aHVudGVyaHVudGVyaHVudGVyaHVudGVyMDAwMA=='
";

    const TENANTS: &str = "\
[runtime]
type = 'docker'
[tenants]
provider = 'http'
endpoint = 'https://me:hunter9@keys.example/find?token=hunter10'
auth_token = 'hunter11'
";

    fn env(name: &str) -> Option<String> {
        (name == ENV_POSTGRESQL_DSN).then(|| "hunter5".to_owned())
    }

    fn shown() -> ShownConfig {
        parse(PathBuf::from("a.toml"), FILE, &env)
            .unwrap()
            .show(&env)
    }

    #[test]
    fn every_key_has_a_value_and_an_origin() {
        let shown = shown();
        let find = |key: &str| {
            let setting = shown.settings.iter().find(|setting| setting.key == key);
            let setting = setting.unwrap();
            (setting.value.clone(), setting.origin)
        };
        assert_eq!(find("server.port"), (json!(9), ValueOrigin::Line(2)));
        let host = (json!("0.0.0.0"), ValueOrigin::Default);
        assert_eq!(find("server.host"), host);
        assert_eq!(find("server.api_key"), (json!(MASK), ValueOrigin::Line(3)));
        let dsn = (json!(MASK), ValueOrigin::Environment(ENV_POSTGRESQL_DSN));
        assert_eq!(find("store.postgresql.dsn"), dsn);
        let names = (json!({"TOKEN": MASK}), ValueOrigin::Line(9));
        assert_eq!(find("docker.sandbox_env"), names);
        let in_force = (json!(180), ValueOrigin::Default);
        assert_eq!(find("docker.api_timeout"), in_force);
        let none = (Value::Null, ValueOrigin::Default);
        assert_eq!(find("docker.host_ip"), none);
        assert_eq!(shown.environment, [ENV_POSTGRESQL_DSN]);
        assert_eq!(shown.unknown.len(), 1);
    }

    #[test]
    fn a_key_that_is_read_is_also_shown() {
        // Options without a value are null; every other key has one.
        let empty = "[runtime]\ntype = 'docker'";
        let loaded = parse(PathBuf::from("a.toml"), empty, &|_| None).unwrap();
        let shown = loaded.show(&|_| None);
        let absent = shown
            .settings
            .iter()
            .filter(|setting| setting.value.is_null());
        let absent: Vec<_> = absent.map(|setting| setting.key).collect();
        let options = [
            "server.api_key",
            "server.eip",
            "server.max_sandbox_timeout_seconds",
            "server.tls.certificate",
            "server.tls.key",
            "log.file_path",
            "log.access_file_path",
            "runtime.execd_image",
            "docker.host_ip",
            "docker.apparmor_profile",
            "docker.seccomp_profile",
            "renew_intent.redis.dsn",
            "console.preview_address",
            "console.preview_origin",
            "metrics.address",
            "otel.endpoint",
            "otel.traces_endpoint",
            "egress.image",
            "egress.otlp_endpoint",
            "egress.requests",
            "egress.limits",
            "storage.host_is_local",
            "secure_runtime.docker_runtime",
            "secure_runtime.k8s_runtime_class",
            "quotas.sandboxes",
            "quotas.cpu",
            "quotas.memory",
            "quotas.disk",
            "webhooks_delivery.ca_file",
            "tenants.provider",
            "tenants.endpoint",
            "tenants.max_stale_seconds",
            "tenants.timeout_seconds",
            "tenants.auth_header",
            "tenants.auth_token",
        ];
        assert_eq!(absent, options);
    }

    #[test]
    fn the_secure_runtime_in_force_is_shown() {
        let text = "[runtime]\ntype = 'docker'\n[secure_runtime]\ntype = 'gvisor'\nk8s_runtime_class = 'c'";
        let loaded = parse(PathBuf::from("a.toml"), text, &env).unwrap();
        let shown = loaded.show(&env);
        let mut settings = shown.settings.iter();
        let named = settings.find(|it| it.key == "secure_runtime.docker_runtime");
        assert_eq!(named.unwrap().value, "runsc");
    }

    #[test]
    fn neither_form_has_a_secret() {
        let shown = shown();
        let text = shown.to_string();
        for form in [&text, &serde_json::to_string(&shown).unwrap()] {
            let secret = ["hunter", "aHVudGVy"].iter().any(|it| form.contains(it));
            assert!(!secret, "{form}");
        }
        let line = |start: &str| {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            let words: Vec<_> = line.split_whitespace().collect();
            words.join(" ")
        };
        let collector = "http://collector.example/********/v1/metrics?********";
        assert!(line("otel.endpoint").contains(collector), "{text}");
        let plain = "\"http://collector.example:4318/v1/traces\"";
        assert!(line("otel.traces_endpoint").contains(plain), "{text}");
        let tenants = parse(PathBuf::from("a.toml"), TENANTS, &|_| None).unwrap();
        let tenants = tenants.show(&|_| None).to_string();
        assert!(!tenants.contains("hunter"), "{tenants}");
        assert!(tenants.contains("https://********@keys.example/find?********"));
        assert_eq!(line("server.port"), "server.port = 9 # a.toml:2");
        assert_eq!(
            line("webhooks.url"),
            "webhooks.url = [\"https://example.org:8443\"] # a.toml:19"
        );
        assert_eq!(line("server.eip"), "server.eip = \"a'b\" # a.toml:4");
        let variables = "docker.sandbox_env = { \"TOKEN\" = \"********\" } # a.toml:9";
        assert_eq!(line("docker.sandbox_env"), variables);
        assert_eq!(
            line("store.postgresql.dsn"),
            "store.postgresql.dsn = \"********\" # environment: OPENSANDBOX_STORE_POSTGRESQL_DSN"
        );
    }
}
