//! `support-bundle`: what a report about a problem needs, without secrets.
//!
//! Each part says what went wrong instead of what it should contain: a bundle is most useful when
//! little works.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    net::{ToSocketAddrs, UdpSocket},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use flate2::{Compression, write::GzEncoder};
use osb_protocol::{WireTime, headers};
use osb_service::ErrorChain;
use osb_store::{Location, tools};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::local_server;
use crate::{
    address::{self, MASK},
    config::{Config, Env, LoadedConfig, RuntimeType, ShownConfig},
    identity::server_proof,
};

/// Longest wait for an answer of the server or the engine.
const WAIT: Duration = Duration::from_secs(10);
/// Longest answer of the server that is kept, in bytes.
const ANSWER_MAX: usize = 4 << 20;
/// End of the log file that is kept, in bytes.
const LOG_MAX: u64 = 1 << 20;
/// Shortest secret that is looked for in the parts: shorter ones occur by chance.
const SECRET_MIN: usize = 4;
/// What the server is asked for.
const PATHS: [&str; 4] = ["/health", "/ready", "/version", KEYED_PATH];
/// The one of them that needs a key.
const KEYED_PATH: &str = "/metrics";

/// Parts of a report, by file name.
#[derive(Debug)]
pub struct Bundle {
    /// Names and contents.
    pub parts: Vec<(String, String)>,
}

impl Bundle {
    /// Collects everything.
    pub async fn collect(loaded: &LoadedConfig, build: &str, env: Env<'_>) -> Self {
        Self::collect_with(loaded, build, &loaded.show(env)).await
    }

    /// Collects everything, with the configuration as it is shown.
    pub(super) async fn collect_with(
        loaded: &LoadedConfig,
        build: &str,
        shown: &ShownConfig,
    ) -> Self {
        let config = &loaded.config;
        let mut parts = vec![
            ("about.json".to_owned(), about(build)),
            ("config.txt".to_owned(), shown.to_string()),
            ("store.json".to_owned(), store(config).await),
            ("engine.json".to_owned(), engine(config).await),
        ];
        if let Some(log) = config.log.file() {
            parts.push(("log.jsonl".to_owned(), recent_lines(&log.path)));
        }
        let asker = RunningServer::of(config);
        for path in PATHS {
            let name = format!("server{}.txt", path.replace('/', "-"));
            let answer = match &asker {
                Ok(server) => server.ask(path).await,
                Err(error) => failure(&**error),
            };
            parts.push((name, answer));
        }
        let mut bundle = Self { parts };
        bundle.scrub(config);
        bundle
    }

    /// Replaces secrets of the configuration, which no part should have.
    fn scrub(&mut self, config: &Config) {
        // Also those that lie in files.
        let webhooks = config.webhooks_delivery.options(&config.webhooks);
        let key = config.server.usable_key().map(ExposeSecret::expose_secret);
        let dsn = config.store.postgresql.dsn.expose_secret();
        let redis = config.renew_intent.redis.dsn.as_ref();
        let redis = redis.map_or("", ExposeSecret::expose_secret);
        let tenants = config.tenants.as_ref();
        let token = tenants.and_then(|tenants| tenants.auth_token.as_ref());
        let token = token.map(ExposeSecret::expose_secret);
        let addresses = [dsn, redis].map(|address| url::Url::parse(address).ok());
        let passwords = addresses.iter().flatten().filter_map(url::Url::password);
        let endpoints = [
            tenants.and_then(|tenants| tenants.endpoint.as_deref()),
            config.otel.endpoint.as_deref(),
            config.otel.traces_endpoint.as_deref(),
        ];
        let in_endpoints: Vec<String> = endpoints
            .into_iter()
            .flatten()
            .flat_map(address::secrets)
            .collect();
        let secrets = key.into_iter().chain(token).chain([dsn, redis]);
        let secrets = secrets.chain(passwords);
        let secrets = secrets.chain(in_endpoints.iter().map(String::as_str));
        let webhooks = webhooks.configured.iter();
        let in_receivers: Vec<_> = webhooks
            .clone()
            .flat_map(|it| address::secrets(&it.url))
            .collect();
        let receivers = webhooks.map(|it| it.secret.expose_secret());
        let secrets = secrets.chain(receivers);
        let secrets = secrets.chain(in_receivers.iter().map(String::as_str));
        for secret in secrets.map(str::trim) {
            if secret.len() < SECRET_MIN {
                continue;
            }
            for (_, text) in &mut self.parts {
                if text.contains(secret) {
                    *text = text.replace(secret, MASK);
                }
            }
        }
    }

    /// Writes the parts as an archive in one folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, folder: &str, to: impl Write) -> io::Result<()> {
        let mut archive = tar::Builder::new(GzEncoder::new(to, Compression::default()));
        for (name, text) in &self.parts {
            let mut header = tar::Header::new_gnu();
            header.set_size(text.len() as u64);
            header.set_mode(0o600);
            archive.append_data(&mut header, format!("{folder}/{name}"), text.as_bytes())?;
        }
        archive.into_inner()?.finish()?.flush()
    }
}

/// Writes a bundle to a new file with mode 0600; the current folder and the time name it unless
/// `file` does.
///
/// # Errors
/// When the file cannot be written.
pub async fn support_bundle(
    loaded: &LoadedConfig,
    file: Option<PathBuf>,
    build: &str,
    env: Env<'_>,
) -> anyhow::Result<()> {
    let time = WireTime::new(jiff::Timestamp::now()).to_string();
    let name = format!("opensandbox-support-{}", time.replace([':', '.'], "-"));
    let file = file.unwrap_or_else(|| PathBuf::from(format!("{name}.tar.gz")));
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(&file);
    let failed = || format!("cannot write {}", file.display());
    let opened = opened.with_context(failed)?;
    let bundle = Bundle::collect(loaded, build, env).await;
    bundle.write(&name, opened).with_context(failed)?;
    println!("wrote {}", file.display());
    if loaded.config.log.file().is_none() {
        println!("add the log of the server, which its supervisor has, such as journalctl");
    }
    Ok(())
}

/// The last whole lines of a log.
fn recent_lines(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_MAX)))?;
        let mut bytes = Vec::new();
        file.take(LOG_MAX).read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let whole = match length > LOG_MAX {
            true => text.split_once('\n').map_or("", |(_, whole)| whole),
            false => &text,
        };
        Ok::<_, io::Error>(whole.to_owned())
    };
    read().unwrap_or_else(|error| failure(&error))
}

fn about(build: &str) -> String {
    let line = |file: &str| {
        let text = std::fs::read_to_string(Path::new(file)).unwrap_or_default();
        text.trim().to_owned()
    };
    let system = line("/etc/os-release");
    let system = system
        .lines()
        .find_map(|it| it.strip_prefix("PRETTY_NAME="));
    let about = json!({
        "build": build,
        "time": jiff::Timestamp::now().to_string(),
        "system": system.unwrap_or_default().trim_matches('"'),
        "kernel": line("/proc/sys/kernel/osrelease"),
        "architecture": std::env::consts::ARCH,
        "processors": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": line("/proc/meminfo").lines().take(3).collect::<Vec<_>>(),
        "load": line("/proc/loadavg"),
    });
    pretty(&about)
}

async fn store(config: &Config) -> String {
    match tools::inspect(&config.store.location()).await {
        Ok(found) => pretty(&found),
        Err(error) => failure(&error),
    }
}

async fn engine(config: &Config) -> String {
    if config.runtime.kind != RuntimeType::Docker {
        return pretty(&json!({"runtime": config.runtime.kind}));
    }
    match osb_runtime::docker::describe_engine(WAIT).await {
        Ok(found) => pretty(&found),
        Err(error) => failure(&error),
    }
}

/// The server that runs with a configuration, or whatever has its port.
struct RunningServer<'a> {
    config: &'a Config,
    client: reqwest::Client,
    /// Scheme, host and port.
    base: String,
}

impl<'a> RunningServer<'a> {
    fn of(config: &'a Config) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        Ok(Self {
            config,
            client: local_server::client(WAIT)?,
            base: local_server::base_url(&config.server),
        })
    }

    /// What it answers.
    async fn ask(&self, path: &str) -> String {
        let key = self.config.server.usable_key();
        let key = key.filter(|_| path == KEYED_PATH);
        let (key, note) = match key {
            None => (None, None),
            Some(key) => match self.prove().await {
                Ok(()) => (Some(key), None),
                Err(reason) => (None, Some(reason)),
            },
        };
        let note = note.map(|reason| format!("the API key was not sent: {reason}\n"));
        let answer = match self.answer(path, key).await {
            Ok(text) => text,
            Err(error) => failure(&*error),
        };
        format!("{}{answer}", note.unwrap_or_default())
    }

    async fn answer(
        &self,
        path: &str,
        key: Option<&SecretString>,
    ) -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
        let mut request = self.client.get(format!("{}{path}", self.base));
        if let Some(key) = key {
            request = request.header(headers::API_KEY, key.expose_secret());
        }
        let response = request.send().await?;
        let status = response.status();
        let body = response.bytes().await?;
        let body = String::from_utf8_lossy(&body[..body.len().min(ANSWER_MAX)]);
        Ok(format!("{status}\n{body}\n"))
    }

    /// Has the process at the port prove that it is the server of the configured store: any other that
    /// took the port would get the key.
    ///
    /// # Errors
    /// Why that is not certain.
    async fn prove(&self) -> Result<(), String> {
        if !is_of_this_machine(&self.config.server.host) {
            return Err("server.host is not an address of this machine".to_owned());
        }
        let instance = instance_id(&self.config.store.location()).await?;
        let challenge = server_proof::challenge();
        let url = format!("{}/version", self.base);
        let request = self.client.get(url);
        let request = request.header(server_proof::CHALLENGE, &challenge);
        let response = request.send().await;
        let response = response.map_err(|error| ErrorChain(&error).to_string())?;
        let proof = response.headers().get(server_proof::PROOF);
        let proof = proof.map(reqwest::header::HeaderValue::as_bytes);
        match server_proof::proves(&instance, &challenge, proof.unwrap_or_default()) {
            true => Ok(()),
            false => Err("what answers at server.port is not the server of this store".to_owned()),
        }
    }
}

/// Whether a host is this machine: its own addresses can be bound.
fn is_of_this_machine(host: &str) -> bool {
    let addresses = (host, 0).to_socket_addrs();
    addresses.is_ok_and(|mut all| {
        all.len() > 0 && all.all(|address| UdpSocket::bind((address.ip(), 0)).is_ok())
    })
}

/// The id of the configured store.
async fn instance_id(location: &Location) -> Result<String, String> {
    let unread = |error: &dyn std::error::Error| {
        let reason = ErrorChain(error);
        format!("the store cannot be read, so no server can be recognised: {reason}")
    };
    let opened = osb_store::open_shared(location).await;
    let Some(store) = opened.map_err(|error| unread(&error))? else {
        return Err("there is no store of this release".to_owned());
    };
    let id = store.instance_id().await;
    store.close().await;
    id.map_err(|error| unread(&error))
}

fn pretty(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}

fn failure(error: &dyn std::error::Error) -> String {
    pretty(&json!({"error": ErrorChain(error).to_string()}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        assert!(recent_lines(&path).contains("error"));
        std::fs::write(&path, "short\n").unwrap();
        assert_eq!(recent_lines(&path), "short\n");
        let lines: String = (0..200_000)
            .map(|number| format!("line {number}\n"))
            .collect();
        std::fs::write(&path, &lines).unwrap();
        let end = recent_lines(&path);
        assert!(
            end.starts_with("line ") && end.ends_with("line 199999\n"),
            "{}",
            &end[..20]
        );
        assert!(end.len() as u64 <= LOG_MAX && end.len() as u64 > LOG_MAX - 100);
    }
}
