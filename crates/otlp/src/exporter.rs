//! What collects the measurements of a daemon and sends them.

use std::{path::Path, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider},
};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};
use osb_service::Supervisor;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::{
    DestinationError,
    client::Client,
    destination::{self, Destination},
    limits,
};

/// Milliseconds between two exports.
const ENV_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";

/// Sends what the instruments of a daemon record. Clones share it.
#[derive(Clone, Debug)]
pub struct Exporter(SdkMeterProvider);

/// Why there are no metrics although they are wanted.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// They cannot go there.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// Another variable of OpenTelemetry's exporter is wrong.
    #[error("the exporter cannot be set up")]
    Exporter(#[source] ExporterBuildError),
}

impl Exporter {
    /// Starts to export, if the variables of this process or its host name a destination. The
    /// service and its attributes say who measures. To be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start(
        service: String,
        own: impl IntoIterator<Item = KeyValue>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtlpError> {
        let found = Destination::find(&variable, Path::new(destination::HOST_INFO))?;
        let Some(Destination { address, timeout }) = found else {
            return Ok(None);
        };
        // The path may hold a token.
        info!(host = address.host(), "metrics are sent");
        let exporter = MetricExporter::builder()
            .with_http()
            .with_http_client(Client::new(timeout, Supervisor::new()))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address.to_string())
            .with_timeout(timeout)
            .build()
            .map_err(OtlpError::Exporter)?;
        let reader = PeriodicReader::builder(exporter)
            .with_interval(interval(variable(ENV_INTERVAL).as_deref()))
            .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource(service, own))
            .build();
        Ok(Some(Self(provider)))
    }

    /// What makes instruments.
    #[must_use]
    pub fn meter(&self, name: &'static str) -> Meter {
        self.0.meter(name)
    }

    /// Sends what was recorded last, if that can be done until the deadline. Nothing is recorded any
    /// more.
    pub async fn finish(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        // It waits for the thread that exports.
        let finish = move || self.0.shutdown_with_timeout(left);
        let finished = tokio::task::spawn_blocking(finish);
        match timeout_at(deadline, finished).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => warn!(%error, "the last metrics were not sent"),
            Ok(Err(_)) | Err(_) => warn!("the last metrics were not sent in time"),
        }
    }
}

/// The time between two exports: anything else than a positive number means a minute.
fn interval(text: Option<&str>) -> Duration {
    let millis = text.and_then(|text| text.trim().parse().ok());
    let millis = millis.filter(|millis| *millis > 0);
    millis.map_or(limits::INTERVAL, Duration::from_millis)
}

/// Who measures. `OTEL_RESOURCE_ATTRIBUTES` adds to it and changes nothing of the daemon's own.
fn resource(service: String, own: impl IntoIterator<Item = KeyValue>) -> Resource {
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_service_name(service)
        .with_attributes(own)
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_exports() {
        assert_eq!(interval(Some("250")), Duration::from_millis(250));
        for text in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(interval(text), Duration::from_secs(60), "{text:?}");
        }
    }
}
