//! Export of metrics to a collector, if one is configured (contract: execd §1.2, §13), and of traces
//! with the feature `traces`, which only the server has.
//!
//! ```text
//!   instruments of the daemon ─▶ Exporter ─ every minute, and at the end ─▶ Client ─▶ collector
//! ```
//!
//! Without a destination there is no exporter, no thread and no task. TLS needs the feature `tls`,
//! which only the server has: for execd, a collector on the host can forward over TLS.
#![warn(missing_docs)]
#![deny(unsafe_code)]

mod attributes;
mod client;
mod destination;
mod error;
mod exporter;
mod limits;
mod names;
#[cfg(feature = "traces")]
mod traces;

pub use attributes::{Attributes, pairs};
pub use destination::DestinationError;
pub use error::OtlpError;
pub use exporter::Exporter;
pub use names::resolve_without_plugins;
#[cfg(feature = "traces")]
pub use traces::TraceExporter;
