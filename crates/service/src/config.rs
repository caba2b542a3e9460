//! Configuration files: TOML into typed structs.
//!
//! A wrong value stops the start with the file, the key and the rule, never the value, which may
//! be a secret. An unknown key is only a warning, with the nearest known one: users who come from
//! the reference have files with keys we do not read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::de::DeserializeOwned;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{file}: cannot be read")]
    Read {
        /// The file.
        file: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML.
    #[error("{file}:{line}: not valid TOML: {rule}")]
    Syntax {
        /// The file.
        file: PathBuf,
        /// Line from 1.
        line: usize,
        /// What the parser expected.
        rule: String,
    },
    /// A value breaks a rule.
    #[error("{file}: {key}: {rule}")]
    Value {
        /// The file, or the environment variable, that the value came from.
        file: PathBuf,
        /// Dotted key such as `server.port`.
        key: String,
        /// The rule it broke.
        rule: String,
    },
}

impl ConfigError {
    /// A value that breaks a rule which the types alone do not express.
    pub fn rule(file: &Path, key: impl Into<String>, rule: impl Into<String>) -> Self {
        Self::Value {
            file: file.to_owned(),
            key: key.into(),
            rule: rule.into(),
        }
    }
}

/// A configuration and what was odd about its file.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The typed configuration.
    pub config: T,
    /// Unknown keys, each with the nearest known one.
    pub unknown: Vec<UnknownKey>,
}

/// An unknown key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// Dotted key.
    pub key: String,
    /// Known key that looks most like it.
    pub nearest: Option<String>,
}

impl std::fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.nearest {
            Some(nearest) => write!(f, "unknown key {}, did you mean {nearest}?", self.key),
            None => write!(f, "unknown key {}", self.key),
        }
    }
}

/// Reads a file. `known` lists every dotted key, for the suggestions.
///
/// # Errors
/// See [`ConfigError`].
pub fn load<T: DeserializeOwned>(file: &Path, known: &[&str]) -> Result<Loaded<T>, ConfigError> {
    let text = std::fs::read_to_string(file).map_err(|source| ConfigError::Read {
        file: file.to_owned(),
        source,
    })?;
    parse(file, &text, known)
}

/// Reads text that came from `file`.
///
/// # Errors
/// See [`ConfigError`].
pub fn parse<T: DeserializeOwned>(
    file: &Path,
    text: &str,
    known: &[&str],
) -> Result<Loaded<T>, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        ConfigError::Syntax {
            file: file.to_owned(),
            line: line_of(text, start),
            rule: rule_of(error.message()),
        }
    })?;
    let mut unknown = Vec::new();
    let mut note = |path: serde_ignored::Path<'_>| {
        let key = path.to_string().replace("?.", "");
        let nearest = nearest(&key, known).map(str::to_owned);
        unknown.push(UnknownKey { key, nearest });
    };
    let mut track = serde_path_to_error::Track::new();
    let source = serde_path_to_error::Deserializer::new(table, &mut track);
    let result: Result<T, _> = serde_ignored::deserialize(source, &mut note);
    match result {
        Ok(config) => Ok(Loaded { config, unknown }),
        Err(error) => Err(ConfigError::Value {
            file: file.to_owned(),
            key: track.path().to_string(),
            rule: rule_of(error.message()),
        }),
    }
}

/// The lines, from 1, on which the values of a TOML text stand, by dotted key. A text that is not TOML
/// has none.
#[must_use]
pub fn value_lines(text: &str) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    if let Ok(table) = toml::de::DeTable::parse(text) {
        collect_lines(text, "", table.get_ref(), &mut lines);
    }
    lines
}

fn collect_lines(
    text: &str,
    prefix: &str,
    table: &toml::de::DeTable<'_>,
    lines: &mut BTreeMap<String, usize>,
) {
    for (name, value) in table {
        let key = match prefix {
            "" => name.get_ref().to_string(),
            prefix => format!("{prefix}.{}", name.get_ref()),
        };
        // The first of several entries of a list counts.
        let line = line_of(text, name.span().start);
        lines.entry(key.clone()).or_insert(line);
        match value.get_ref() {
            toml::de::DeValue::Table(table) => collect_lines(text, &key, table, lines),
            toml::de::DeValue::Array(entries) => {
                for entry in entries {
                    if let toml::de::DeValue::Table(table) = entry.get_ref() {
                        collect_lines(text, &key, table, lines);
                    }
                }
            }
            _ => {}
        }
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, byte: usize) -> usize {
    let before = &text.as_bytes()[..byte.min(text.len())];
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

/// Serde writes `invalid type: string "…", expected u16`: the rule without the value.
fn rule_of(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((_, expected)) => format!("expected {}", expected.trim_end()),
        None => message.lines().next().unwrap_or_default().to_owned(),
    }
}

/// The known key with the least edits, when it is near enough to be a likely typo.
#[must_use]
pub fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let (distance, nearest) = known
        .iter()
        .map(|candidate| (edits(key, candidate), *candidate))
        .min()?;
    (distance <= (key.len() / 3).max(2)).then_some(nearest)
}

/// Levenshtein distance by bytes.
fn edits(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Config {
        server: Server,
    }
    #[derive(Debug, serde::Deserialize)]
    struct Server {
        port: u16,
        #[serde(default)]
        api_key: Option<String>,
    }
    const KNOWN: &[&str] = &["server.port", "server.api_key"];

    fn read(text: &str) -> Result<Loaded<Config>, ConfigError> {
        parse(Path::new("a.toml"), text, KNOWN)
    }

    #[test]
    fn errors_name_file_key_and_rule_but_never_the_value() {
        let error = read("[server]\nport = \"hunter2\"")
            .unwrap_err()
            .to_string();
        assert_eq!(error, "a.toml: server.port: expected u16");
        let error = read("[server]\nport = 99999").unwrap_err().to_string();
        assert_eq!(error, "a.toml: server.port: expected u16");
        let error = read("[server]").unwrap_err().to_string();
        assert_eq!(error, "a.toml: server: missing field `port`");
        let error = read("[server]\nport = 1\napi_key = 'hunter2")
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("a.toml:3: not valid TOML: "), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn unknown_keys_are_reported_with_the_nearest_known_one() {
        let loaded = read("[server]\nport = 1\napikey = 'x'\nzzzzzzzzzzzz = 1").unwrap();
        let warnings: Vec<String> = loaded.unknown.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            [
                "unknown key server.apikey, did you mean server.api_key?",
                "unknown key server.zzzzzzzzzzzz"
            ]
        );
        assert_eq!(
            (loaded.config.server.port, loaded.config.server.api_key),
            (1, None)
        );
    }

    #[test]
    fn lines_of_values_are_found_in_tables_and_dotted_keys() {
        let text = "a = 1\n[server]\n# port\nport = 1\ntls.key = 'k'\n\n[server.tls.more]\nx = [\n1,\n]\n[[hooks]]\nb = 1\n[[hooks]]\nb = 2\nc = 3\n";
        let lines = value_lines(text);
        let line = |key: &str| lines.get(key).copied();
        assert_eq!((line("a"), line("server.port")), (Some(1), Some(4)));
        assert_eq!(line("server.tls.key"), Some(5));
        assert_eq!(line("server.tls.more.x"), Some(8));
        assert_eq!((line("hooks.b"), line("hooks.c")), (Some(12), Some(15)));
        assert_eq!(line("server.host"), None);
        assert_eq!(value_lines("a = ").len(), 0);
    }

    #[test]
    fn distances_are_levenshtein() {
        assert_eq!(edits("kitten", "sitting"), 3);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("same", "same"), 0);
    }
}
