//! OpenTelemetry metrics, if a destination is configured (contract: execd §13).
//!
//! ```text
//!   server, runs ─▶ instruments ─┐
//!   /proc, cgroup ─▶ gauges ─────┴─ every minute, and at the end ─▶ client ─▶ collector
//! ```
//!
//! Without a destination there are no instruments, no thread and no task. Each recording point then
//! costs one check.

mod instruments;
mod requests;
mod routes;
mod system;

use std::{collections::BTreeMap, sync::Arc};

use opentelemetry::KeyValue;
use osb_otlp::{Attributes, Exporter, OtlpError, pairs};
use osb_service::build_info;
use tokio::time::Instant;

pub(crate) use instruments::Operation;
pub(crate) use requests::Timing;

use self::instruments::Instruments;
use crate::{env::names, metrics::Meter, output::Outcome};

/// Variable with attributes of every data point, as `k=v,k2=v2`.
const ENV_ATTRIBUTES: &str = "OPENSANDBOX_EXECD_METRICS_EXTRA_ATTRS";
/// Attribute that names the sandbox, on every data point and on the resource.
const SANDBOX: &str = "sandbox_id";
/// Name of the meter.
const METER: &str = "opensandbox/execd";

/// Active metrics, or nothing. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Telemetry(Option<Arc<Active>>);

#[derive(Debug)]
struct Active {
    instruments: Instruments,
    exporter: Exporter,
}

impl Telemetry {
    /// Starts metrics, if the environment of this process configures a destination.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start(
        variable: impl Fn(&str) -> Option<String>,
        meter: Arc<Meter>,
    ) -> Result<Self, OtlpError> {
        let service = format!("opensandbox-execd-{}", build_info::VERSION);
        let sandbox = variable(names::SANDBOX).filter(|id| !id.is_empty());
        let sandbox = sandbox.map(|id| KeyValue::new(SANDBOX, id));
        let Some(exporter) = Exporter::start(service, sandbox.clone(), &variable)? else {
            return Ok(Self::default());
        };
        let extra = variable(ENV_ATTRIBUTES).unwrap_or_default();
        let shared = Attributes::default();
        add(&shared, pairs(&extra), sandbox);
        let instruments = Instruments::new(&exporter.meter(METER), shared, meter);
        Ok(Self(Some(Arc::new(Active {
            instruments,
            exporter,
        }))))
    }

    /// Assigns later data points to this sandbox and adds attributes. Attributes from the
    /// environment stay unless they are named again.
    pub(crate) fn attribute(&self, sandbox: &str, more: &BTreeMap<String, String>) {
        let Some(active) = &self.0 else {
            return;
        };
        let more = more
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let sandbox = KeyValue::new(SANDBOX, sandbox.to_owned());
        add(&active.instruments.shared, more, Some(sandbox));
    }

    /// Starts timing a request. `None` without metrics.
    pub(crate) fn request(&self, request: &axum::extract::Request) -> Option<Timing> {
        let active = self.0.as_ref()?;
        Some(Timing::begin(Arc::clone(active), request))
    }

    /// Records an execution that ended, or failed to start.
    pub(crate) fn execution(&self, operation: Operation, outcome: &Outcome) {
        if let Some(active) = &self.0 {
            active.instruments.execution(operation, outcome);
        }
    }

    /// Exports the last data points, within the deadline. Stops recording.
    pub async fn finish(&self, deadline: Instant) {
        if let Some(active) = &self.0 {
            active.exporter.clone().finish(deadline).await;
        }
    }
}

/// Adds attributes. The sandbox id takes precedence over an attribute of the same name.
fn add<'a>(
    to: &Attributes,
    extra: impl Iterator<Item = (&'a str, &'a str)>,
    sandbox: Option<KeyValue>,
) {
    let extra = extra.map(|(name, value)| KeyValue::new(name.to_owned(), value.to_owned()));
    to.add(extra.chain(sandbox));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_destination_telemetry_is_inactive() {
        let telemetry = Telemetry(None);
        assert!(
            telemetry
                .request(&axum::extract::Request::default())
                .is_none()
        );
    }

    #[test]
    fn attributes_are_exported_once_each() {
        let pair = |name: &'static str, value: &'static str| KeyValue::new(name, value);
        let shared = Attributes::default();
        shared.add([pair("a", "0"), pair("c", "3")]);
        let extra = pairs("a=1,sandbox_id=x,a=2,b");
        add(&shared, extra, Some(pair(SANDBOX, "mine")));
        let want = [pair("c", "3"), pair("a", "2"), pair(SANDBOX, "mine")];
        assert_eq!(shared.with([]), want);
    }
}
