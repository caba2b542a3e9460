//! Errors of the start of an export.

use opentelemetry_otlp::ExporterBuildError;

use crate::destination::DestinationError;

/// Reason why requested metrics cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// The destination is unusable.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// Another variable of OpenTelemetry's exporter is invalid.
    #[error("the exporter cannot be set up")]
    Exporter(#[source] ExporterBuildError),
    /// The certificates to trust cannot be read.
    #[cfg(feature = "tls")]
    #[error("cannot read the file that OTEL_EXPORTER_OTLP_CERTIFICATE names")]
    Certificate(#[source] std::io::Error),
    /// TLS cannot be set up.
    #[cfg(feature = "tls")]
    #[error("cannot set up TLS for the collector")]
    Tls(#[source] reqwest::Error),
}
