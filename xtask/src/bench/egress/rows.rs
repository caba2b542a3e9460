//! Rows of the report.

use serde_json::{Value, json};

use super::{
    Figures,
    queries::{Alone, Flow, WINDOW},
};
use crate::bench::{
    report::{Report, rounded},
    stats::{Samples, millis},
};

/// Name of a row for what was measured without a sidecar.
const DIRECT: &str = "without a sidecar";
/// Name of a row for the reference.
const REFERENCE: &str = "reference";

/// Adds the rows of one mode and policy. `name` is the prefix of their names.
pub(super) fn show(name: &str, ours: &Figures, other: Option<&Figures>, report: &mut Report) {
    let row = |text: &str| format!("{name}{text}");
    memory(&row("RSS before a policy"), 0, ours, other, report);
    memory(&row("RSS with the policy"), 1, ours, other, report);
    durations(
        &row("PUT of the policy"),
        &ours.replaced,
        other.map(|it| &it.replaced),
        report,
    );

    alone(
        &row("known name"),
        &ours.known.alone,
        other.map(|it| &it.known.alone),
        report,
    );
    flow(
        &row(&format!("known names, {WINDOW} under way")),
        &ours.known.flow,
        Some(&ours.direct),
        other.map(|it| &it.known.flow),
        report,
    );
    let patches = ours.patches.answered.len();
    durations(
        &row(&format!("{patches} patches: answered")),
        &ours.patches.answered,
        other.map(|it| &it.patches.answered),
        report,
    );
    durations(
        &row(&format!("{patches} patches: a query shows it")),
        &ours.patches.in_effect,
        other.map(|it| &it.patches.in_effect),
        report,
    );
    connections(&row("TCP"), ours, other, report);
    alone(
        &row("new name"),
        &ours.new.alone,
        other.map(|it| &it.new.alone),
        report,
    );
    flow(
        &row(&format!("new names, {WINDOW} under way")),
        &ours.new.flow,
        Some(&ours.direct),
        other.map(|it| &it.new.flow),
        report,
    );
    let first = |figures: &Figures| figures.late_patches.answered.first();
    durations(
        &row("first patch after the new names: answered"),
        &first(ours),
        other.map(first).as_ref(),
        report,
    );
    let late = ours.late_patches.answered.len();
    durations(
        &row(&format!("{late} patches after the new names: answered")),
        &ours.late_patches.answered,
        other.map(|it| &it.late_patches.answered),
        report,
    );
    flow(
        &row(&format!("refused names, {WINDOW} under way")),
        &ours.denied,
        None,
        other.map(|it| &it.denied),
        report,
    );
    memory(&row("RSS after the loads"), 2, ours, other, report);
    durations(
        &row("patch that refuses the new names: answered"),
        &ours.closed,
        other.map(|it| &it.closed),
        report,
    );
    memory(&row("RSS after that patch"), 3, ours, other, report);
}

fn memory(name: &str, index: usize, ours: &Figures, other: Option<&Figures>, report: &mut Report) {
    report.bytes(name, ours.resident[index]);
    if let Some(other) = other {
        report.bytes(&format!("  {REFERENCE}"), other.resident[index]);
    }
}

fn durations(name: &str, ours: &Samples, other: Option<&Samples>, report: &mut Report) {
    match other {
        Some(other) => report.compare(name, ours.summary(), REFERENCE, other.summary()),
        None => report.durations(name, ours),
    }
}

/// Adds queries that were sent one at a time, with what the sidecar adds to the median.
fn alone(name: &str, ours: &Alone, other: Option<&Alone>, report: &mut Report) {
    added(name, ours, report);
    report.durations(&format!("  {DIRECT}"), &ours.direct);
    if let Some(other) = other {
        added(&format!("  {REFERENCE}"), other, report);
    }
}

fn added(name: &str, queries: &Alone, report: &mut Report) {
    let added = queries
        .through
        .median()
        .saturating_sub(queries.direct.median());
    let added = millis(added);
    let note = format!("adds {added:.3} ms{}", failures(queries.failed));
    let more = json!({ "adds_ms": added, "failed": queries.failed });
    report.push(name, queries.through.summary(), note, more);
}

/// Adds queries of which many were under way, with ratios of their throughput.
fn flow(name: &str, ours: &Flow, direct: Option<&Flow>, other: Option<&Flow>, report: &mut Report) {
    let beside: Vec<(&str, &Flow)> = [(DIRECT, direct), (REFERENCE, other)]
        .into_iter()
        .filter_map(|(name, flow)| Some((name, flow?)))
        .collect();
    let mut ratios = json!({});
    let mut note = String::new();
    for (name, flow) in &beside {
        let ratio = rounded(ours.load.rate / flow.load.rate.max(1e-9));
        ratios[*name] = json!(ratio);
        note += &format!(", {ratio:.2} × {name}");
        if let (Some(cost), Some(other)) = (ours.cost, flow.cost) {
            let ratio = rounded(cost.as_secs_f64() / other.as_secs_f64().max(1e-9));
            ratios[format!("cost of {name}")] = json!(ratio);
            note += &format!(" at {ratio:.2} × its processor time");
        }
    }
    throughput(name, ours, &note, ratios, report);
    for (name, flow) in beside {
        throughput(&format!("  {name}"), flow, "", json!({}), report);
    }
}

fn throughput(name: &str, flow: &Flow, note: &str, ratios: Value, report: &mut Report) {
    let rate = flow.load.rate.round();
    let cost = flow.cost.map(|it| rounded(it.as_secs_f64() * 1e6));
    let each = cost.map(|it| format!(", {it:.2} µs of a processor each"));
    let each = each.unwrap_or_default();
    let note = format!("{rate:.0} queries/s{each}{note}{}", failures(flow.failed));
    let more = json!({
        "queries_per_s": rate, "cost_us": cost, "failed": flow.failed, "ratios": ratios,
    });
    report.push(name, flow.load.latency, note, more);
}

fn failures(count: usize) -> String {
    match count {
        0 => String::new(),
        _ => format!(", {count} failed"),
    }
}

fn connections(name: &str, ours: &Figures, other: Option<&Figures>, report: &mut Report) {
    let [through, direct] = &ours.connections.connected;
    report.compare(
        &format!("{name} handshake"),
        through.summary(),
        DIRECT,
        direct.summary(),
    );
    if let Some(other) = other {
        let [through, _] = &other.connections.connected;
        report.durations(&format!("  {REFERENCE}"), through);
    }
    let [through, direct] = &ours.connections.sent;
    report.compare_rates(&format!("{name} transfer"), through, DIRECT, direct);
    if let Some(other) = other {
        let [through, _] = &other.connections.sent;
        report.rates(&format!("  {REFERENCE}"), through);
    }
}
