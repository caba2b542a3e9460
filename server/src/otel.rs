//! OpenTelemetry: what the server sends to a collector (contract: lifecycle §A5).

use std::time::Duration;

use opentelemetry::{KeyValue, metrics::Histogram};
use osb_otlp::{Exporter, OtlpError, TraceExporter};
use osb_service::telemetry::{Registry, SpanLayer};
use tokio::time::Instant;

use crate::{
    config::OtelSection,
    durations::CREATE_MS,
    http::measure::{Observer, REQUEST_MS, RequestKind, SdkCreate},
};

/// Name of meter and tracer.
const SCOPE: &str = "opensandbox.server";
/// What the last export gets at a stop.
const FINISH: Duration = Duration::from_secs(5);

/// Exporters that are turned on.
#[derive(Debug, Default)]
pub struct Otel {
    metrics: Option<Exporter>,
    traces: Option<TraceExporter>,
}

impl Otel {
    /// Starts what the configuration turns on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub fn start(
        section: &OtelSection,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OtlpError> {
        if !section.enabled {
            return Ok(Self::default());
        }
        let service = || section.service_name.clone();
        let metrics = Exporter::start_configured(
            service(),
            "otel.endpoint",
            section.endpoint.as_deref(),
            Duration::from_millis(section.export_interval_millis),
            &variable,
        )?;
        let traces = section.traces.then(|| {
            let endpoint = section.traces_endpoint.as_deref();
            let key = "otel.traces_endpoint";
            TraceExporter::start_configured(service(), key, endpoint, &variable)
        });
        Ok(Self {
            metrics: Some(metrics),
            traces: traces.transpose()?,
        })
    }

    /// Logs what is sent where. The exporters start before the log, which one of them is part of.
    pub fn announce(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.announce();
        }
        if let Some(traces) = &self.traces {
            traces.announce();
        }
    }

    /// Receiver of spans, if traces are sent.
    #[must_use]
    pub fn spans(&self) -> Option<SpanLayer> {
        let traces = self.traces.as_ref()?;
        let layer = tracing_opentelemetry::layer::<Registry>()
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false)
            .with_tracer(traces.tracer(SCOPE));
        Some(Box::new(layer))
    }

    /// Receiver of measurements, if metrics are sent.
    #[must_use]
    pub fn observer(&self) -> Option<Box<dyn Observer>> {
        let meter = self.metrics.as_ref()?.meter(SCOPE);
        let histogram = |name, bounds: &[u64]| {
            let bounds = bounds.iter().map(|ms| Duration::from_millis(*ms));
            meter
                .f64_histogram(name)
                .with_unit("ms")
                .with_boundaries(bounds.map(milliseconds).collect())
                .build()
        };
        Some(Box::new(Instruments {
            requests: histogram("server.http.request.duration", &REQUEST_MS),
            creates: histogram("opensandbox.sandbox.create.duration", &CREATE_MS),
        }))
    }

    /// Sends the last data.
    pub async fn finish(self) {
        let deadline = Instant::now() + FINISH;
        if let Some(traces) = self.traces {
            traces.finish(deadline).await;
        }
        if let Some(metrics) = self.metrics {
            metrics.finish(deadline).await;
        }
    }
}

fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

#[derive(Debug)]
struct Instruments {
    requests: Histogram<f64>,
    creates: Histogram<f64>,
}

impl Observer for Instruments {
    fn request(&self, request: &RequestKind, took: Duration) {
        let attributes = [
            KeyValue::new("http_method", request.method),
            KeyValue::new("http_route", request.route),
            KeyValue::new("http_status_code", i64::from(request.status)),
        ];
        self.requests.record(milliseconds(took), &attributes);
    }

    fn create(&self, create: &SdkCreate, took: Duration) {
        let attributes = [
            KeyValue::new("sdk.language", create.language.clone()),
            KeyValue::new("sdk.version", create.version.clone()),
            KeyValue::new("success", create.success),
        ];
        self.creates.record(milliseconds(took), &attributes);
    }
}
