//! The log: lines for people on a terminal, JSON elsewhere.

use std::io::{self, IsTerminal};

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt, prelude::*};

/// How log lines look.
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

/// Why the log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level is none that is known.
    #[error("log level must be one of trace, debug, info, warn, error, off")]
    Level(#[source] ParseError),
    /// A log was set up before.
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
    match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => start(&filter, json),
        _ => start(&level.to_ascii_lowercase(), json),
    }
}

fn start(filter: &str, json: bool) -> Result<(), TelemetryError> {
    let filter = EnvFilter::try_new(filter).map_err(TelemetryError::Level)?;
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(io::stderr);
    let done = match json {
        true => registry.with(lines.json().flatten_event(true)).try_init(),
        false => registry.with(lines.with_target(true)).try_init(),
    };
    done.map_err(TelemetryError::Twice)
}
