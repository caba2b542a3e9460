//! The configuration that `up` generates, and the settings that it reads from any configuration.

use std::{
    fs::{self, OpenOptions},
    io::{Read, Write},
    net::TcpListener,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::image::EGRESS_TAG;

/// Default port.
const DEFAULT_PORT: u16 = 8080;
/// Characters of a generated key; each carries six random bits.
const KEY_LENGTH: usize = 32;

/// Settings of a configuration that `up` uses itself.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Path of the configuration.
    pub(crate) file: PathBuf,
    /// `host:port` under which this machine reaches the server.
    pub(crate) address: String,
    /// Key of the API, if the configuration has one.
    pub(crate) api_key: Option<String>,
}

#[derive(Deserialize)]
struct File {
    #[serde(default)]
    server: ServerTable,
}

#[derive(Default, Deserialize)]
struct ServerTable {
    host: Option<String>,
    port: Option<u16>,
    api_key: Option<String>,
}

impl Settings {
    /// Reads a configuration without validating it; the server does that.
    pub(crate) fn load(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file)
            .with_context(|| format!("cannot read the configuration {}", file.display()))?;
        Self::parse(file, &text)
    }

    fn parse(file: &Path, text: &str) -> Result<Self> {
        let parsed: File = toml::from_str(text).map_err(|error| {
            // Without the quoted line, which may contain a secret.
            anyhow::anyhow!(
                "{} is not a configuration: {}",
                file.display(),
                error.message()
            )
        })?;
        let host = match parsed.server.host.as_deref() {
            None | Some("" | "0.0.0.0" | "::") => "127.0.0.1".to_owned(),
            Some(v6) if v6.contains(':') => format!("[{v6}]"),
            Some(host) => host.to_owned(),
        };
        let port = parsed.server.port.unwrap_or(DEFAULT_PORT);
        Ok(Self {
            file: file.to_owned(),
            address: format!("{host}:{port}"),
            api_key: parsed.server.api_key.filter(|key| !key.trim().is_empty()),
        })
    }
}

/// A configuration that is written only after it was checked.
pub(super) struct Draft {
    /// Settings in the configuration.
    pub(super) settings: Settings,
    /// Text that still has to be written to the file.
    text: Option<String>,
}

impl Draft {
    /// A configuration file of the user, which is never written.
    pub(super) fn of_user(file: &Path) -> Result<Self> {
        let file = file
            .canonicalize()
            .with_context(|| format!("cannot read the configuration {}", file.display()))?;
        let settings = Settings::load(&file)?;
        Ok(Self {
            settings,
            text: None,
        })
    }

    /// The generated configuration in the state folder. Once it exists only its port changes, so
    /// that edits and the key stay.
    pub(super) fn generated(state: &Path, port: Option<u16>) -> Result<Self> {
        let file = state.join("config.toml");
        let text = match fs::read_to_string(&file) {
            Ok(known) => match port {
                Some(port) => with_port(&known, port),
                None => return Self::of_user(&file),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => render(
                port.unwrap_or(DEFAULT_PORT),
                &random_key()?,
                &state.join("opensandbox.db"),
            ),
            Err(error) => return Err(error).context(format!("cannot read {}", file.display())),
        };
        let settings = Settings::parse(&file, &text)?;
        if port.is_some_and(|port| !settings.address.ends_with(&format!(":{port}"))) {
            bail!("{} has no server.port to change; add one", file.display());
        }
        Ok(Self {
            settings,
            text: Some(text),
        })
    }

    /// Writes the file if its text changed.
    pub(super) fn save(&self) -> Result<()> {
        match &self.text {
            Some(text) => write_private(&self.settings.file, text),
            None => Ok(()),
        }
    }
}

/// A configuration for one machine: everything on loopback, state in one file.
pub(crate) fn render(port: u16, key: &str, store: &Path) -> String {
    let store = toml::Value::String(store.to_string_lossy().into_owned());
    format!(
        "# Written by `cargo xtask up`; docs/configuration.md lists every key.\n\
         [server]\n\
         host = \"127.0.0.1\"\n\
         port = {port}\n\
         api_key = \"{key}\"\n\
         \n\
         [runtime]\n\
         type = \"docker\"\n\
         \n\
         [docker]\n\
         network_mode = \"bridge\"\n\
         publish_host = \"127.0.0.1\"\n\
         \n\
         [egress]\n\
         image = \"{EGRESS_TAG}\"\n\
         mode = \"dns+nft\"\n\
         \n\
         [store]\n\
         type = \"sqlite\"\n\
         path = {store}\n"
    )
}

/// Writes a file that only its owner can read, because it contains a key.
pub(crate) fn write_private(file: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        options.open(file)?.write_all(text.as_bytes())
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

/// Generates a key from the system's random source.
pub(crate) fn random_key() -> Result<String> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut bytes = [0; KEY_LENGTH];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut bytes))
        .context("cannot read random bytes")?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte & 63)]))
        .collect())
}

/// Finds a free port on loopback. Another process may take it before the caller does.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("cannot listen on loopback")?;
    Ok(listener.local_addr()?.port())
}

/// Returns the text with the port of `[server]` replaced.
fn with_port(text: &str, port: u16) -> String {
    let mut section = "";
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.starts_with('[') {
            section = trimmed;
        }
        let is_port = section == "[server]"
            && trimmed
                .split('=')
                .next()
                .is_some_and(|key| key.trim() == "port");
        if is_port {
            out.push_str(&format!("port = {port}"));
        } else {
            out.push_str(line);
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn the_generated_configuration_is_private_and_keeps_its_key_when_the_port_changes() {
        use std::os::unix::fs::PermissionsExt;
        let state = scratch("settings");
        let file = state.join("config.toml");
        let generate = |port| Draft::generated(&state, port).unwrap().save().unwrap();
        generate(None);
        let first = Settings::load(&file).unwrap();
        assert_eq!(first.address, "127.0.0.1:8080");
        assert_eq!(first.api_key.as_ref().unwrap().len(), KEY_LENGTH);
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );

        generate(Some(9000));
        let moved = Settings::load(&file).unwrap();
        assert_eq!(moved.address, "127.0.0.1:9000");
        assert_eq!(moved.api_key, first.api_key);
        generate(None);
        assert_eq!(Settings::load(&file).unwrap().address, "127.0.0.1:9000");
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn a_draft_changes_nothing_until_it_is_kept() {
        let state = scratch("draft");
        let file = state.join("config.toml");
        let draft = Draft::generated(&state, Some(9000)).unwrap();
        assert_eq!(draft.settings.address, "127.0.0.1:9000");
        assert!(!file.exists());
        fs::write(&file, "[server]\nhost = '::1'\nport = 81\n").unwrap();
        Draft::generated(&state, Some(9000)).unwrap();
        assert_eq!(Settings::load(&file).unwrap().address, "[::1]:81");
        fs::write(&file, "[server]\n").unwrap();
        let error = Draft::generated(&state, Some(9000)).err().unwrap();
        assert!(error.to_string().contains("no server.port"), "{error}");
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn only_the_port_of_the_server_is_replaced() {
        let text =
            "# port = 1\n[server]\nport=8080 # ours\n[docker]\nport_range_min = 40000\nport = 3\n";
        let expected =
            "# port = 1\n[server]\nport = 9000\n[docker]\nport_range_min = 40000\nport = 3\n";
        assert_eq!(with_port(text, 9000), expected);
    }

    #[test]
    fn wildcard_addresses_become_loopback_ones() {
        let state = scratch("addresses");
        let file = state.join("c.toml");
        for (text, address) in [
            ("", "127.0.0.1:8080"),
            ("[server]\nhost = '0.0.0.0'\nport = 81", "127.0.0.1:81"),
            ("[server]\nhost = '::1'", "[::1]:8080"),
            (
                "[server]\nhost = '10.0.0.7'\napi_key = ' '",
                "10.0.0.7:8080",
            ),
        ] {
            fs::write(&file, text).unwrap();
            let settings = Settings::load(&file).unwrap();
            assert_eq!(settings.address, address);
            assert_eq!(settings.api_key, None);
        }
        fs::write(&file, "[server]\napi_key = hunter2").unwrap();
        assert!(!format!("{:#}", Settings::load(&file).unwrap_err()).contains("hunter2"));
        fs::remove_dir_all(&state).unwrap();
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}
