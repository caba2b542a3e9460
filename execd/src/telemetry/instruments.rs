//! OpenTelemetry instruments. Names, units and attributes are those of the contract's table (execd
//! §13).

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use opentelemetry::{
    KeyValue,
    metrics::{Histogram, Meter as Recorder},
};
use osb_otlp::Attributes;

use super::{routes::Routes, system};
use crate::{
    metrics::Meter,
    output::{End, Outcome},
    process::Exit,
};

/// Type of an execution. `Isolated` goes beyond the reference (contract: execd A11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `POST /command`.
    Command,
    /// A run in a shell session.
    InSession,
    /// A run in an isolated session.
    Isolated,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Command => "run_command",
            Self::InSession => "run_in_session",
            Self::Isolated => "run_isolated",
        }
    }
}

/// All instruments.
#[derive(Debug)]
pub(super) struct Instruments {
    requests: Histogram<f64>,
    executions: Histogram<f64>,
    files: Histogram<f64>,
    pub(super) shared: Attributes,
    pub(super) routes: Routes,
}

impl Instruments {
    pub(super) fn new(to: &Recorder, shared: Attributes, meter: Arc<Meter>) -> Self {
        observe(to, &shared, &meter);
        let durations = |name| to.f64_histogram(name).with_unit("ms").build();
        Self {
            requests: durations("execd.http.request.duration"),
            executions: durations("execd.execution.duration"),
            files: durations("execd.filesystem.operations.duration"),
            shared,
            routes: Routes::default(),
        }
    }

    pub(super) fn request(
        &self,
        method: &'static str,
        route: Arc<str>,
        status: u16,
        took: Duration,
    ) {
        let own = [
            KeyValue::new("http_method", method),
            KeyValue::new("http_route", route),
            KeyValue::new("http_status_code", i64::from(status)),
        ];
        self.requests.record(millis(took), &self.shared.with(own));
    }

    pub(super) fn execution(&self, operation: Operation, outcome: &Outcome) {
        let succeeded = matches!(
            outcome.end,
            End::Exited {
                exit: Exit::Code(0),
                ..
            }
        );
        let own = [
            KeyValue::new("operation", operation.name()),
            KeyValue::new("result", result(succeeded)),
        ];
        let took = millis(outcome.took);
        self.executions.record(took, &self.shared.with(own));
    }

    pub(super) fn file(&self, operation: &'static str, succeeded: bool, took: Duration) {
        let own = [
            KeyValue::new("operation", operation),
            KeyValue::new("result", result(succeeded)),
        ];
        self.files.record(millis(took), &self.shared.with(own));
    }
}

fn result(succeeded: bool) -> &'static str {
    match succeeded {
        true => "success",
        false => "failure",
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Registers the instruments that are read at export time.
fn observe(to: &Recorder, shared: &Attributes, meter: &Arc<Meter>) {
    let both = || (shared.clone(), Arc::clone(meter));

    let (shared, meter) = both();
    to.u64_observable_gauge("execd.system.process.count")
        .with_callback(move |gauge| {
            if let Some(count) = system::processes(meter.proc()) {
                gauge.observe(count, &shared.with([]));
            }
        })
        .build();

    let (shared, meter) = both();
    let since = Mutex::new(meter.count());
    to.f64_observable_gauge("execd.system.cpu.usage")
        .with_unit("%")
        .with_callback(move |gauge| {
            let mut since = since.lock().expect("no holder of this lock panics");
            let (share, now) = meter.cpu_since(*since);
            *since = now;
            gauge.observe(share, &shared.with([]));
        })
        .build();

    let (shared, meter) = both();
    to.u64_observable_gauge("execd.system.memory.usage_bytes")
        .with_unit("By")
        .with_callback(move |gauge| {
            if let Some(used) = meter.memory_used() {
                gauge.observe(used, &shared.with([]));
            }
        })
        .build();

    let (shared, meter) = both();
    to.u64_observable_counter("execd.system.network.io.bytes")
        .with_unit("By")
        .with_callback(move |counter| {
            let Some(traffic) = system::traffic(meter.proc()) else {
                return;
            };
            for (direction, bytes) in [("in", traffic.received), ("out", traffic.sent)] {
                let own = [KeyValue::new("direction", direction)];
                counter.observe(bytes, &shared.with(own));
            }
        })
        .build();

    let (shared, meter) = both();
    to.u64_observable_gauge("execd.system.network.connections.active")
        .with_callback(move |gauge| {
            let proc = meter.proc();
            let tcp = ("tcp", system::tcp_connections(proc));
            let udp = ("udp", system::udp_sockets(proc));
            for (protocol, count) in [tcp, udp] {
                if let Some(count) = count {
                    let own = [KeyValue::new("protocol", protocol)];
                    gauge.observe(count, &shared.with(own));
                }
            }
        })
        .build();
}
