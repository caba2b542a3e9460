//! Exporter: collects the measurements of a daemon and sends them at intervals.

use std::{path::Path, time::Duration};

use opentelemetry::{
    KeyValue,
    metrics::{Meter, MeterProvider},
};
use opentelemetry_otlp::{MetricExporter, Protocol, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    metrics::{PeriodicReader, SdkMeterProvider},
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};
use osb_service::Supervisor;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

use crate::{
    client::Client,
    destination::{self, Destination, Signal},
    error::OtlpError,
    limits,
};

/// Variable with the export interval in milliseconds.
const ENV_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";

/// Exporter of the measurements of a daemon's instruments. Clones share it.
#[derive(Clone, Debug)]
pub struct Exporter {
    provider: SdkMeterProvider,
    host: String,
}

impl Exporter {
    /// Starts the exporter if the variables of this process or its host name a destination. The
    /// service name and its attributes identify the daemon. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start(
        service: String,
        own: impl IntoIterator<Item = KeyValue>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, OtlpError> {
        let found = Destination::find(&variable, Path::new(destination::HOST_INFO))?;
        let interval = interval(variable(ENV_INTERVAL).as_deref());
        let begin = |found| Self::to(found, interval, resource(service, own));
        let exporter = found.map(begin).transpose()?;
        if let Some(exporter) = &exporter {
            exporter.announce();
        }
        Ok(exporter)
    }

    /// Starts the exporter of a program whose operator has turned metrics on. `endpoint` is the
    /// address under a `key` of its configuration; without one, the variables of OpenTelemetry or a
    /// collector on the same machine are used. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start_configured(
        service: String,
        key: &'static str,
        endpoint: Option<&str>,
        interval: Duration,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OtlpError> {
        let found = Destination::configured(Signal::Metrics, key, endpoint, variable)?;
        Self::to(found, interval, resource(service, []))
    }

    /// Logs where metrics are sent: a program may start the exporter before its log.
    pub fn announce(&self) {
        info!(host = self.host, "metrics are sent");
    }

    fn to(to: Destination, interval: Duration, resource: Resource) -> Result<Self, OtlpError> {
        let client = Client::new(Signal::Metrics, &to, Supervisor::new())?;
        let exporter = MetricExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(to.address.to_string())
            .with_timeout(to.timeout)
            .build()
            .map_err(OtlpError::Exporter)?;
        let reader = PeriodicReader::builder(exporter)
            .with_interval(interval)
            .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource)
            .build();
        Ok(Self {
            provider,
            host: to.host(),
        })
    }

    /// Provider of instruments.
    #[must_use]
    pub fn meter(&self, name: &'static str) -> Meter {
        self.provider.meter(name)
    }

    /// Sends the last measurements, if possible before the deadline, and stops recording.
    pub async fn finish(self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        // The shutdown waits for the exporting thread.
        shut_down(Signal::Metrics, deadline, move || {
            self.provider.shutdown_with_timeout(left)
        })
        .await;
    }
}

/// Ends an exporter in a thread of its own, which may wait.
pub(crate) async fn shut_down(
    signal: Signal,
    deadline: Instant,
    finish: impl FnOnce() -> OTelSdkResult + Send + 'static,
) {
    let signal = signal.name();
    let finished = tokio::task::spawn_blocking(finish);
    match timeout_at(deadline, finished).await {
        Ok(Ok(Ok(()))) => {}
        Ok(Ok(Err(error))) => warn!(%error, "the last {signal} were not sent"),
        Ok(Err(_)) | Err(_) => warn!("the last {signal} were not sent in time"),
    }
}

/// Parses the export interval. Anything but a positive number means one minute.
fn interval(text: Option<&str>) -> Duration {
    let millis = text.and_then(|text| text.trim().parse().ok());
    let millis = millis.filter(|millis| *millis > 0);
    millis.map_or(limits::INTERVAL, Duration::from_millis)
}

/// Resource that identifies the daemon. `OTEL_RESOURCE_ATTRIBUTES` adds attributes, but does not
/// replace the daemon's own.
pub(crate) fn resource(service: String, own: impl IntoIterator<Item = KeyValue>) -> Resource {
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
    fn the_export_interval_is_parsed() {
        assert_eq!(interval(Some("250")), Duration::from_millis(250));
        for text in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(interval(text), Duration::from_secs(60), "{text:?}");
        }
    }
}
