//! The log: lines for people on a terminal, JSON elsewhere.
//!
//! Libraries log no details at any level: their details contain requests and replies, and with them
//! secrets.

use std::io::{self, IsTerminal};

use tracing::{Level, Metadata};
use tracing_subscriber::{
    EnvFilter,
    filter::{FilterFn, ParseError},
    fmt::{self, MakeWriter},
    prelude::*,
};

/// Prefixes of the log targets of our own crates.
const OWN: [&str; 2] = ["osb_", "opensandbox"];

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    #[default]
    Auto,
    /// Coloured text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Error when the log cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is unknown.
    #[error("log level must be one of trace, debug, info, warn, error, off")]
    Level(#[source] ParseError),
    /// The log was set up before.
    #[error("the log was already set up")]
    Twice(#[source] tracing_subscriber::util::TryInitError),
}

/// Sets up the log of this process on stderr. `level` is a level name or a filter such as
/// `info,osb_runtime=debug`; the variable `RUST_LOG` wins over it.
///
/// # Errors
/// When the level is unknown or a log exists already.
pub fn init(level: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let json = match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => level.to_ascii_lowercase(),
    };
    init_with_writer(&filter, json, io::stderr)
}

/// Sets up the log of this process on a writer, with exactly this `filter`.
///
/// # Errors
/// When the filter is malformed or a log exists already.
pub fn init_with_writer<W>(filter: &str, json: bool, writer: W) -> Result<(), TelemetryError>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(filter).map_err(TelemetryError::Level)?;
    let registry = tracing_subscriber::registry()
        .with(filter)
        .with(FilterFn::new(is_safe));
    let lines = fmt::layer().with_writer(writer);
    let done = match json {
        true => registry.with(lines.json().flatten_event(true)).try_init(),
        false => registry.with(lines.with_target(true)).try_init(),
    };
    done.map_err(TelemetryError::Twice)
}

/// Whether a line may be written. Below `INFO`, libraries log the data that they send and receive:
/// the engine's client whole requests, with tokens and environments. No filter enables those lines.
fn is_safe(line: &Metadata<'_>) -> bool {
    *line.level() <= Level::INFO || OWN.iter().any(|own| line.target().starts_with(own))
}
