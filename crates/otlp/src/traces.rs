//! Exporter of traces.

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use osb_service::Supervisor;
use tokio::time::Instant;
use tracing::info;

use crate::{
    OtlpError,
    client::Client,
    destination::{Destination, Signal},
    exporter::{resource, shut_down},
};

/// Exporter of the spans of a program. Clones share it. How many traces are sampled is up to
/// `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG`; by default all of them, unless the caller's
/// trace is not sampled.
#[derive(Clone, Debug)]
pub struct TraceExporter {
    provider: SdkTracerProvider,
    host: String,
}

impl TraceExporter {
    /// Starts the exporter of a program whose operator has turned traces on. `endpoint` is the
    /// address under a `key` of its configuration; without one, the variables of OpenTelemetry or a
    /// collector on the same machine are used. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start_configured(
        service: String,
        key: &'static str,
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OtlpError> {
        let found = Destination::configured(Signal::Traces, key, endpoint, variable)?;
        let client = Client::new(Signal::Traces, &found, Supervisor::new())?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(found.address.to_string())
            .with_timeout(found.timeout)
            .build()
            .map_err(OtlpError::Exporter)?;
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource(service, []))
            .build();
        Ok(Self {
            provider,
            host: found.host(),
        })
    }

    /// Logs where traces are sent: a program may start the exporter before its log.
    pub fn announce(&self) {
        info!(host = self.host, "traces are sent");
    }

    /// Maker of spans.
    #[must_use]
    pub fn tracer(&self, name: &'static str) -> SdkTracer {
        self.provider.tracer(name)
    }

    /// Sends the last spans, if possible before the deadline, and stops recording.
    pub async fn finish(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        // The shutdown waits for the exporting thread.
        shut_down(Signal::Traces, deadline, move || {
            self.provider.shutdown_with_timeout(left)
        })
        .await;
    }
}
