//! Metrics over OpenTelemetry, where somebody asks for them (contract: execd §13).
//!
//! ```text
//!   server, runs ─▶ instruments ─┐
//!   /proc, cgroup ─▶ gauges ─────┴─ every minute, and at the end ─▶ client ─▶ collector
//! ```
//!
//! Without a destination there is nothing of this: no instruments, no thread, no task, and what
//! would record finds that out with one look.

mod client;
mod destination;
mod instruments;
mod requests;
mod routes;
mod system;

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use opentelemetry::{KeyValue, metrics::MeterProvider};
use opentelemetry_otlp::{
    ExporterBuildError, MetricExporter, Protocol, WithExportConfig, WithHttpConfig,
};
use opentelemetry_sdk::{
    Resource,
    metrics::{PeriodicReader, SdkMeterProvider},
    resource::{EnvResourceDetector, TelemetryResourceDetector},
};
use osb_service::{Supervisor, build_info};
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

pub use destination::DestinationError;
pub(crate) use instruments::Operation;
pub(crate) use requests::{Timing, Unrouted};

use self::{client::Client, destination::Destination, instruments::Instruments};
use crate::{limits, metrics::Meter, output::Outcome};

/// Milliseconds between two exports.
const ENV_INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";
/// The sandbox.
const ENV_SANDBOX: &str = "OPENSANDBOX_ID";
/// Attributes of every data point, as `k=v,k2=v2`.
const ENV_ATTRIBUTES: &str = "OPENSANDBOX_EXECD_METRICS_EXTRA_ATTRS";
/// The attribute that names the sandbox, of every data point and of the resource.
const SANDBOX: &str = "sandbox_id";
/// Name of what records.
const METER: &str = "opensandbox/execd";

/// What is measured, or nothing. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Active>>);

#[derive(Debug)]
struct Active {
    instruments: Instruments,
    provider: SdkMeterProvider,
}

/// Why there are no metrics although they are wanted.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// They cannot go there.
    #[error(transparent)]
    Destination(#[from] DestinationError),
    /// Another variable of OpenTelemetry's exporter is wrong.
    #[error("the exporter cannot be set up")]
    Exporter(#[source] ExporterBuildError),
}

impl Telemetry {
    /// Starts to measure, if the variables of this process or its host tell where to send that.
    ///
    /// # Errors
    /// See [`TelemetryError`].
    pub fn start(
        variable: impl Fn(&str) -> Option<String>,
        meter: Arc<Meter>,
    ) -> Result<Self, TelemetryError> {
        let found = Destination::find(&variable, Path::new(destination::HOST_INFO))?;
        let Some(Destination { address, timeout }) = found else {
            return Ok(Self::default());
        };
        // The path may hold a token.
        info!(host = address.host(), "metrics are sent");
        let sandbox = variable(ENV_SANDBOX).filter(|id| !id.is_empty());
        let sandbox = sandbox.map(|id| KeyValue::new(SANDBOX, id));
        let exporter = MetricExporter::builder()
            .with_http()
            .with_http_client(Client::new(timeout, Supervisor::new()))
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(address.to_string())
            .with_timeout(timeout)
            .build()
            .map_err(TelemetryError::Exporter)?;
        let reader = PeriodicReader::builder(exporter)
            .with_interval(interval(variable(ENV_INTERVAL).as_deref()))
            .build();
        let provider = SdkMeterProvider::builder()
            .with_reader(reader)
            .with_resource(resource(sandbox.clone()))
            .build();
        let extra = variable(ENV_ATTRIBUTES).unwrap_or_default();
        let attributes = attributes([], destination::pairs(&extra), sandbox);
        let instruments = Instruments::new(&provider.meter(METER), attributes, meter);
        Ok(Self(Some(Arc::new(Active {
            instruments,
            provider,
        }))))
    }

    /// From here on data points are about this sandbox, and have these attributes too. Those of the
    /// variables stay, unless they are named again.
    pub(crate) fn attribute(&self, sandbox: &str, more: &BTreeMap<String, String>) {
        let Some(active) = &self.0 else {
            return;
        };
        let more = more
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let sandbox = KeyValue::new(SANDBOX, sandbox.to_owned());
        let shared = &active.instruments.shared;
        shared.change(|old| attributes(old.iter().cloned(), more, Some(sandbox)));
    }

    /// Begins to time a request. `None` when nothing is measured.
    pub(crate) fn request(&self, request: &axum::extract::Request) -> Option<Timing> {
        let active = self.0.as_ref()?;
        Some(Timing::begin(Arc::clone(active), request))
    }

    /// Records a run that ended, or did not even start.
    pub(crate) fn execution(&self, operation: Operation, outcome: &Outcome) {
        if let Some(active) = &self.0 {
            active.instruments.execution(operation, outcome);
        }
    }

    /// Sends what was recorded last, if that can be done until then. Nothing is recorded any more.
    pub async fn finish(&self, deadline: Instant) {
        let Some(active) = self.0.clone() else {
            return;
        };
        let left = deadline.saturating_duration_since(Instant::now());
        // It waits for the thread that exports.
        let finish = move || active.provider.shutdown_with_timeout(left);
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
    millis.map_or(limits::TELEMETRY_INTERVAL, Duration::from_millis)
}

/// Who measures. `OTEL_RESOURCE_ATTRIBUTES` adds to it and changes nothing of ours.
fn resource(sandbox: Option<KeyValue>) -> Resource {
    Resource::builder_empty()
        .with_detector(Box::new(TelemetryResourceDetector))
        .with_detector(Box::new(EnvResourceDetector::new()))
        .with_service_name(format!("opensandbox-execd-{}", build_info::VERSION))
        .with_attributes(sandbox)
        .build()
}

/// Attributes of every data point. The last of several with one name counts, and the sandbox's own
/// id wins.
fn attributes<'a>(
    before: impl IntoIterator<Item = KeyValue>,
    extra: impl Iterator<Item = (&'a str, &'a str)>,
    sandbox: Option<KeyValue>,
) -> Vec<KeyValue> {
    let mut all: Vec<KeyValue> = Vec::new();
    let extra = extra.map(|(name, value)| KeyValue::new(name.to_owned(), value.to_owned()));
    for pair in before.into_iter().chain(extra).chain(sandbox) {
        all.retain(|other| other.key != pair.key);
        all.push(pair);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_destination_there_is_nothing() {
        let telemetry = Telemetry(None);
        assert!(
            telemetry
                .request(&axum::extract::Request::default())
                .is_none()
        );
    }

    #[test]
    fn attributes_are_told_once_each() {
        let pair = |name: &'static str, value: &'static str| KeyValue::new(name, value);
        let extra = destination::pairs("a=1,sandbox_id=x,a=2,b");
        let before = [pair("a", "0"), pair("c", "3")];
        let all = attributes(before, extra, Some(pair(SANDBOX, "mine")));
        assert_eq!(all, [pair("c", "3"), pair("a", "2"), pair(SANDBOX, "mine")]);
        assert_eq!(attributes([], destination::pairs(" "), None), []);
    }

    #[test]
    fn the_time_between_exports() {
        assert_eq!(interval(Some("250")), Duration::from_millis(250));
        for text in [None, Some("0"), Some("soon"), Some("-1")] {
            assert_eq!(interval(text), Duration::from_secs(60), "{text:?}");
        }
    }
}
