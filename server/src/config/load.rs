//! Reading the configuration: the file, the environment over it, and the rules.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use osb_service::config::{ConfigError, Loaded, UnknownKey};
use secrecy::SecretString;

use super::{
    Config, ENV_API_KEY, ENV_CONFIG, ENV_POSTGRESQL_DSN, ENV_TENANTS, Env, RuntimeType, known,
    rules, tenants,
};

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
    pub(super) lines: BTreeMap<String, usize>,
    /// Keys whose value came from the environment, with the variable.
    pub(super) overridden: BTreeMap<&'static str, &'static str>,
}

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

pub(super) fn parse(path: PathBuf, text: &str, env: Env<'_>) -> Result<LoadedConfig, ConfigError> {
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
