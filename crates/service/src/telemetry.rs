//! The log: lines for people on a terminal, JSON elsewhere.

use std::io::IsTerminal;

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
    match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => start(EnvFilter::try_new(filter), format),
        _ => init_exact(level, format),
    }
}

/// The same with `level` alone: for a process whose environment belongs to somebody else.
///
/// # Errors
/// When the level is unknown or a log exists already.
pub fn init_exact(level: &str, format: LogFormat) -> Result<(), TelemetryError> {
    start(EnvFilter::try_new(level.to_ascii_lowercase()), format)
}

fn start(filter: Result<EnvFilter, ParseError>, format: LogFormat) -> Result<(), TelemetryError> {
    let filter = filter.map_err(TelemetryError::Level)?;
    let text = match format {
        LogFormat::Auto => std::io::stderr().is_terminal(),
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let registry = tracing_subscriber::registry().with(filter);
    let done = if text {
        registry
            .with(fmt::layer().with_writer(std::io::stderr).with_target(true))
            .try_init()
    } else {
        let layer = fmt::layer()
            .json()
            .flatten_event(true)
            .with_writer(std::io::stderr);
        registry.with(layer).try_init()
    };
    done.map_err(TelemetryError::Twice)
}
