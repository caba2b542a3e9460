//! Tables for people and JSON for programs.

use std::{process::Command, time::Duration};

use serde_json::{Value, json};

use super::{
    load::Load,
    stats::{Rates, Samples, Summary, millis},
};
use crate::{host::engine, process::query, repo::Repo};

/// All measurements, in order.
pub(super) struct Report {
    machine: Value,
    rows: Vec<Row>,
}

struct Row {
    name: String,
    min: String,
    median: String,
    p99: String,
    note: String,
    json: Value,
}

impl Report {
    /// Creates an empty report about this machine, and about the commit of `program`, one of those
    /// that are measured.
    pub(super) fn new(repo: &Repo, program: &str) -> Self {
        let machine = json!({
            "processors": std::thread::available_parallelism().map_or(0, usize::from),
            "kernel": query(Command::new("uname").arg("-sr")).ok(),
            "docker": engine::version(),
            "programs": query(Command::new(repo.dist().join(program)).arg("--version")).ok(),
        });
        Self {
            machine,
            rows: Vec::new(),
        }
    }

    /// Adds durations.
    pub(super) fn durations(&mut self, name: &str, samples: &Samples) {
        self.push(name, samples.summary(), String::new(), json!({}));
    }

    /// Adds durations of the requests that succeeded, and the number of refused ones.
    pub(super) fn outcomes(&mut self, name: &str, samples: &Samples, refused: usize) {
        let note = format!("{refused} of {} refused", samples.len() + refused);
        let max = samples.quantile(1.0);
        let more = json!({ "refused": refused, "max_ms": millis(max) });
        self.push(
            name,
            samples.summary(),
            format!("{note}, slowest {}", show(max)),
            more,
        );
    }

    /// Adds durations and those of a baseline; the ratio is of the medians.
    pub(super) fn compare(&mut self, name: &str, ours: Summary, floor: &str, theirs: Summary) {
        let ratio = rounded(ours.median.as_secs_f64() / theirs.median.as_secs_f64().max(1e-9));
        let more = json!({ "floor": floor, "ratio": ratio });
        self.push(name, ours, format!("{ratio:.2} × {floor}"), more);
        self.push(&format!("  {floor}"), theirs, String::new(), json!({}));
    }

    /// Adds latencies with a remark.
    pub(super) fn latencies(&mut self, name: &str, latency: Summary, note: &str) {
        self.push(name, latency, note.to_owned(), json!({ "note": note }));
    }

    /// Adds latencies and throughput.
    pub(super) fn load(&mut self, name: &str, load: &Load) {
        let note = format!("{:.0} requests/s", load.rate);
        let more = json!({ "requests_per_s": load.rate.round() });
        self.push(name, load.latency, note, more);
    }

    /// Adds latencies and throughput and those of a baseline; the ratio is of the throughput.
    pub(super) fn compare_load(&mut self, name: &str, ours: &Load, floor: &str, theirs: &Load) {
        let ratio = rounded(ours.rate / theirs.rate.max(1e-9));
        let note = format!("{:.0} requests/s, {ratio:.2} × {floor}", ours.rate);
        let more = json!({
            "requests_per_s": ours.rate.round(), "floor": floor, "ratio": ratio,
        });
        self.push(name, ours.latency, note, more);
        self.load(&format!("  {floor}"), theirs);
    }

    /// Adds rates.
    pub(super) fn rates(&mut self, name: &str, rates: &Rates) {
        let shown = |share| format!("{:.0} {}", rates.quantile(share), rates.unit());
        self.rows.push(Row {
            name: name.to_owned(),
            min: shown(0.0),
            median: shown(0.5),
            p99: shown(1.0),
            note: String::new(),
            json: json!({
                "name": name.trim(),
                "unit": rates.unit(),
                "min": rates.quantile(0.0).round(),
                "median": rates.quantile(0.5).round(),
                "max": rates.quantile(1.0).round(),
            }),
        });
    }

    /// Adds rates and those of a baseline; the ratio is of the medians.
    pub(super) fn compare_rates(&mut self, name: &str, ours: &Rates, floor: &str, theirs: &Rates) {
        self.rates(name, ours);
        let ratio = rounded(ours.quantile(0.5) / theirs.quantile(0.5).max(1e-9));
        if let Some(row) = self.rows.last_mut() {
            row.note = format!("{ratio:.2} × {floor}");
            row.json["floor"] = Value::from(floor);
            row.json["ratio"] = Value::from(ratio);
        }
        self.rates(&format!("  {floor}"), theirs);
    }

    /// Adds an amount of memory or disk space.
    pub(super) fn bytes(&mut self, name: &str, bytes: u64) {
        #[expect(clippy::cast_precision_loss, reason = "sizes are far below 2^52")]
        let mib = (bytes as f64 / 1048576.0 * 100.0).round() / 100.0;
        self.rows.push(Row {
            name: name.to_owned(),
            min: String::new(),
            median: format!("{mib:.2} MiB"),
            p99: String::new(),
            note: String::new(),
            json: json!({ "name": name.trim(), "mib": mib }),
        });
    }

    /// Adds durations with a remark, and with more members in the JSON.
    pub(super) fn push(&mut self, name: &str, summary: Summary, note: String, more: Value) {
        let mut json = summary.to_json();
        json["name"] = Value::from(name.trim());
        if let (Some(json), Value::Object(more)) = (json.as_object_mut(), more) {
            json.extend(more);
        }
        self.rows.push(Row {
            name: name.to_owned(),
            min: show(summary.min),
            median: show(summary.median),
            p99: show(summary.p99),
            note,
            json,
        });
    }

    /// Prints a Markdown table to stdout.
    pub(super) fn print(&self) {
        println!("\n{}\n", self.machine);
        println!("| | min | median | p99 | |\n|---|---:|---:|---:|---|");
        for Row {
            name,
            min,
            median,
            p99,
            note,
            ..
        } in &self.rows
        {
            println!("| {name} | {min} | {median} | {p99} | {note} |");
        }
    }

    /// Returns the report as JSON.
    pub(super) fn to_json(&self) -> Value {
        let rows: Vec<&Value> = self.rows.iter().map(|row| &row.json).collect();
        json!({ "machine": self.machine, "rows": rows })
    }
}

/// A ratio with two decimals.
pub(super) fn rounded(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

fn show(duration: Duration) -> String {
    let millis = millis(duration);
    if millis < 10.0 {
        format!("{millis:.3} ms")
    } else {
        format!("{millis:.1} ms")
    }
}
