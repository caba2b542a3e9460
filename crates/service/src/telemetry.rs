//! The log: lines for people on a terminal, JSON elsewhere.
//!
//! Libraries log no details at any level: their details contain requests and replies, and with them
//! secrets.

use std::{
    io::{self, IsTerminal},
    sync::Mutex,
};

use tracing::{Level, Metadata};
pub use tracing_subscriber::Registry;
use tracing_subscriber::{
    EnvFilter, Layer,
    filter::{FilterExt, FilterFn, ParseError},
    fmt::{self, MakeWriter},
    prelude::*,
};

/// Prefixes of the log targets of our own crates.
const OWN: [&str; 2] = ["osb_", "opensandbox"];

use crate::log_file::LogFile;

/// Log target of spans that are for traces and not for the log.
pub const TRACE_TARGET: &str = "osb_trace";

/// Receives the spans with [`TRACE_TARGET`].
pub type SpanLayer = Box<dyn Layer<Registry> + Send + Sync>;

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
    init_with(level, format, Receivers::default())
}

/// Receivers of the log besides stderr.
#[derive(Default)]
pub struct Receivers {
    /// Receives the spans that are for traces. Without it they cost next to nothing.
    pub spans: Option<SpanLayer>,
    /// Receives the same lines as stderr, in JSON.
    pub file: Option<LogFile>,
}

/// The same as [`init`], with further receivers.
///
/// # Errors
/// When the level is unknown or a log exists already.
pub fn init_with(level: &str, format: LogFormat, to: Receivers) -> Result<(), TelemetryError> {
    let json = match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    let filter = match std::env::var("RUST_LOG") {
        Ok(filter) if !filter.is_empty() => filter,
        _ => level.to_ascii_lowercase(),
    };
    let Receivers { spans, file } = to;
    if spans.is_none() && file.is_none() {
        return init_with_writer(&filter, json, io::stderr);
    }
    let filter = || EnvFilter::try_new(&filter).map_err(TelemetryError::Level);
    let of_lines = filter()?.and(FilterFn::new(is_safe));
    let of_file = filter()?.and(FilterFn::new(is_safe));
    let file = file.map(|file| {
        let lines = fmt::layer().with_writer(Mutex::new(file));
        lines.json().flatten_event(true).with_filter(of_file)
    });
    let traced = FilterFn::new(|line| line.target() == TRACE_TARGET);
    let registry = tracing_subscriber::registry()
        .with(spans.map(|spans| spans.with_filter(traced)))
        .with(file);
    let lines = fmt::layer().with_writer(io::stderr);
    let done = match json {
        true => {
            let lines = lines.json().flatten_event(true);
            registry.with(lines.with_filter(of_lines)).try_init()
        }
        false => registry
            .with(lines.with_target(true).with_filter(of_lines))
            .try_init(),
    };
    done.map_err(TelemetryError::Twice)
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
    let is_for_log = line.target() != TRACE_TARGET;
    is_for_log
        && (*line.level() <= Level::INFO || OWN.iter().any(|own| line.target().starts_with(own)))
}
