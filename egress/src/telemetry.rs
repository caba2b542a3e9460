//! What every log line says of the sidecar, and OpenTelemetry metrics, if a destination is configured
//! (contract: egress §10).

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{Counter, Gauge, Histogram, Meter},
};
use osb_log::Identity;
use osb_otlp::{Attributes, Exporter, OtlpError, pairs};
use osb_service::{
    build_info,
    host::{self, CpuTimes},
};
use tokio::time::Instant;

use crate::config::Config;

/// Name of the meter.
const METER: &str = "opensandbox/egress";
/// Name of the logger.
const LOGGER: &str = "opensandbox.egress";
/// Folder with the kernel's files about the machine.
const PROC: &str = "/proc";
/// Attribute that names the sandbox.
const SANDBOX: &str = "sandbox_id";

/// Metrics, or nothing. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Instruments(Option<Arc<Active>>);

#[derive(Debug)]
struct Active {
    queries: Histogram<f64>,
    denied: Counter<u64>,
    rules: Gauge<u64>,
    updates: Counter<u64>,
    shared: Attributes,
    exporter: Exporter,
}

impl Instruments {
    /// Starts metrics, if the environment of this process configures a destination.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn start(
        config: &Config,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, OtlpError> {
        let service = format!("opensandbox-egress-{}", build_info::VERSION);
        let sandbox = sandbox(config);
        let Some(exporter) = Exporter::start(service, sandbox.clone(), variable)? else {
            return Ok(Self::default());
        };
        let shared = shared(config, sandbox);
        let meter = exporter.meter(METER);
        observe(&meter, &shared);
        Ok(Self(Some(Arc::new(Active {
            queries: meter
                .f64_histogram("egress.dns.query.duration")
                .with_unit("s")
                .build(),
            denied: meter.u64_counter("egress.policy.denied_total").build(),
            rules: meter
                .u64_gauge("egress.nftables.rules.count")
                .with_unit("{element}")
                .build(),
            updates: meter.u64_counter("egress.nftables.updates.count").build(),
            shared,
            exporter,
        }))))
    }

    /// Records a query that an upstream was asked.
    pub fn forwarded(&self, duration: Duration) {
        if let Some(active) = &self.0 {
            let attributes = active.shared.with([]);
            active.queries.record(duration.as_secs_f64(), &attributes);
        }
    }

    /// Records a denied query.
    pub fn denied(&self) {
        if let Some(active) = &self.0 {
            active.denied.add(1, &active.shared.with([]));
        }
    }

    /// Records a policy that the packet filter enforces, with its number of rules.
    pub fn enforced(&self, rules: usize) {
        if let Some(active) = &self.0 {
            let attributes = active.shared.with([]);
            active.rules.record(rules as u64, &attributes);
            active.updates.add(1, &attributes);
        }
    }

    /// Records that addresses of allowed names were opened.
    pub fn opened(&self) {
        if let Some(active) = &self.0 {
            active.updates.add(1, &active.shared.with([]));
        }
    }

    /// Sends the last measurements within the deadline.
    pub async fn finish(&self, deadline: Instant) {
        if let Some(active) = &self.0 {
            active.exporter.clone().finish(deadline).await;
        }
    }
}

/// Registers the gauges that are read at export time: resources of the machine.
fn observe(to: &Meter, shared: &Attributes) {
    let proc = Path::new(PROC);
    let attributes = shared.clone();
    to.u64_observable_gauge("egress.system.memory.usage_bytes")
        .with_unit("By")
        .with_callback(move |gauge| {
            if let Some(memory) = host::memory(proc) {
                gauge.observe(memory.used(), &attributes.with([]));
            }
        })
        .build();
    let attributes = shared.clone();
    let processors = Processors::default();
    to.f64_observable_gauge("egress.system.cpu.utilization")
        .with_unit("1")
        .with_callback(move |gauge| {
            if let Some(share) = processors.share(proc) {
                gauge.observe(share, &attributes.with([]));
            }
        })
        .build();
}

/// Use of the machine's processors since the last question; since its start at first.
#[derive(Debug, Default)]
struct Processors(Mutex<CpuTimes>);

impl Processors {
    fn share(&self, proc: &Path) -> Option<f64> {
        let now = host::cpu_times(proc)?;
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let share = now.share_since(*last);
        *last = now;
        share
    }
}

/// What every line of the log says: the name of the logger, the sandbox and the operator's
/// attributes.
#[must_use]
pub fn identity(config: &Config) -> Identity {
    let id = Some(&*config.sandbox_id).filter(|id| !id.is_empty());
    let id = id.map(|id| (SANDBOX, id));
    Identity::new(LOGGER, pairs(&config.extra_attributes).chain(id))
}

/// Attribute with the id of the sandbox, if it is known.
fn sandbox(config: &Config) -> Option<KeyValue> {
    let id = Some(&config.sandbox_id).filter(|id| !id.is_empty());
    id.map(|id| KeyValue::new(SANDBOX, id.clone()))
}

/// Attributes of every data point. The id of the sandbox takes precedence over an attribute of the
/// same name.
fn shared(config: &Config, sandbox: Option<KeyValue>) -> Attributes {
    let shared = Attributes::default();
    let extra = pairs(&config.extra_attributes);
    let extra = extra.map(|(name, value)| KeyValue::new(name.to_owned(), value.to_owned()));
    shared.add(extra.chain(sandbox));
    shared
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::names;

    fn attributes(id: &str, extra: &str) -> Vec<KeyValue> {
        let (config, _) = Config::read(|name| match name {
            names::SANDBOX_ID => Some(id.to_owned()),
            names::EXTRA_ATTRIBUTES => Some(extra.to_owned()),
            _ => None,
        })
        .unwrap();
        shared(&config, sandbox(&config)).with([])
    }

    #[test]
    fn attributes_come_from_the_environment() {
        assert!(attributes("", "").is_empty());
        let want = [KeyValue::new("team", "a=b"), KeyValue::new(SANDBOX, "sb-1")];
        assert_eq!(
            attributes("sb-1", " team = a=b, bad,=x,y=,sandbox_id=other"),
            want
        );
    }

    #[test]
    fn the_use_of_the_processors_is_that_since_the_last_question() {
        let place = tempfile::tempdir().unwrap();
        let stat = |text| std::fs::write(place.path().join("stat"), text).unwrap();
        let processors = Processors::default();
        assert_eq!(processors.share(place.path()), None);
        stat("cpu 10 0 0 30 0 0 0 0\n");
        assert_eq!(processors.share(place.path()), Some(0.25));
        stat("cpu 60 0 0 80 0 0 0 0\n");
        assert_eq!(processors.share(place.path()), Some(0.5));
    }
}
