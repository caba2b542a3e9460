//! `/metrics`: the state of the server in the text format of Prometheus.

use std::{fmt::Write, time::Duration};

use axum::{
    Router,
    extract::State,
    response::{IntoResponse, Response},
    routing::get,
};
use http::header::CONTENT_TYPE;
use osb_service::build_info::VERSION;

use super::AppState;
use crate::sandbox::RuntimeHealth;

/// Version of the text format.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Clock ticks of a second in `/proc`: the same on every Linux.
const TICKS: f64 = 100.0;
/// Longest wait for the store's answer.
const READY_WAIT: Duration = Duration::from_secs(3);

/// The route.
pub(super) fn routes() -> Router<AppState> {
    Router::new().route("/metrics", get(show))
}

async fn show(State(app): State<AppState>) -> Response {
    ([(CONTENT_TYPE, FORMAT)], render(&app).await).into_response()
}

async fn render(app: &AppState) -> String {
    let mut page = Page::default();
    page.one(
        "opensandbox_build_info",
        "gauge",
        "Release of the server.",
        &[
            ("version", VERSION),
            ("runtime", app.unscoped.runtime_kind()),
        ],
        1.0,
    );
    sandboxes(app, &mut page).await;
    snapshots(app, &mut page).await;
    templates(app, &mut page).await;
    warm_sidecars(app, &mut page);
    pools(app, &mut page);
    images(app, &mut page);
    webhooks(app, &mut page).await;
    requests(app, &mut page);
    audit(app, &mut page);
    tasks(&mut page);
    process(&mut page);
    page.0
}

fn images(app: &AppState, page: &mut Page) {
    let Some((count, bytes)) = app.unscoped.removed_images() else {
        return;
    };
    for (name, text, value) in [
        (
            "opensandbox_image_gc_removed_total",
            "Images that were removed because nothing used them.",
            count,
        ),
        (
            "opensandbox_image_gc_removed_bytes_total",
            "Sizes of these images; those that share layers free less.",
            bytes,
        ),
    ] {
        page.one(name, "counter", text, &[], number(value));
    }
}

fn audit(app: &AppState, page: &mut Page) {
    let backlog = app.unscoped.audit_trail().backlog();
    page.one(
        "opensandbox_audit_waiting",
        "gauge",
        "Entries of the audit trail that wait for the store.",
        &[],
        number(backlog.waiting),
    );
    page.one(
        "opensandbox_audit_lost_total",
        "counter",
        "Entries of the audit trail that were lost because the store took none for too long.",
        &[],
        number(backlog.lost),
    );
}

/// Work of the asynchronous runtime. A number that only rises is a leak.
fn tasks(page: &mut Page) {
    let metrics = tokio::runtime::Handle::current().metrics();
    page.one(
        "opensandbox_tasks",
        "gauge",
        "Tasks that live: connections, watchers and work in the background.",
        &[],
        number(metrics.num_alive_tasks()),
    );
}

async fn sandboxes(app: &AppState, page: &mut Page) {
    let service = &app.unscoped;
    let is_up = service.registry().health() == RuntimeHealth::Up;
    page.one(
        "opensandbox_runtime_up",
        "gauge",
        "Whether the runtime answers.",
        &[],
        f64::from(u8::from(is_up)),
    );
    let ready = tokio::time::timeout(READY_WAIT, service.ready()).await;
    page.one(
        "opensandbox_ready",
        "gauge",
        "Whether sandboxes can be made: the runtime answers and the store takes writes.",
        &[],
        f64::from(u8::from(matches!(ready, Ok(Ok(_))))),
    );
    page.head("opensandbox_sandboxes", "gauge", "Sandboxes by state.");
    for (state, count) in service.count_by_state() {
        page.sample(
            "opensandbox_sandboxes",
            &[("state", state.as_str())],
            number(count),
        );
    }
    let name = "opensandbox_sandbox_create_duration_seconds";
    page.head(
        name,
        "histogram",
        "Time from the acceptance of a create until its sandbox was ready.",
    );
    page.durations(name, &[], &service.tally().creates.read());
    let name = "opensandbox_sandbox_ends_total";
    page.head(
        name,
        "counter",
        "Sandboxes that ended, and creates that failed, by outcome.",
    );
    for (outcome, count) in service.tally().ends() {
        page.sample(name, &[("outcome", outcome)], number(count));
    }
}

async fn snapshots(app: &AppState, page: &mut Page) {
    // A store that does not answer is seen in `opensandbox_ready`.
    let totals = tokio::time::timeout(READY_WAIT, app.unscoped.snapshot_totals()).await;
    let Ok(Ok(Some(totals))) = totals else {
        return;
    };
    let name = "opensandbox_snapshots";
    page.head(name, "gauge", "Snapshots by state.");
    for total in &totals {
        let state = [("state", total.state.as_str())];
        page.sample(name, &state, number(total.count));
    }
    let bytes: u64 = totals.iter().map(|total| total.bytes).sum();
    page.one(
        "opensandbox_snapshot_bytes",
        "gauge",
        "Disk that only snapshots take, as far as their sizes are known.",
        &[],
        number(bytes),
    );
}

async fn templates(app: &AppState, page: &mut Page) {
    let totals = tokio::time::timeout(READY_WAIT, app.unscoped.template_totals()).await;
    let Ok(Ok(Some(totals))) = totals else {
        return;
    };
    let name = "opensandbox_templates";
    page.head(name, "gauge", "Templates by phase.");
    for total in &totals {
        let phase = [("phase", total.phase.as_str())];
        page.sample(name, &phase, number(total.count));
    }
    let bytes: u64 = totals.iter().map(|total| total.bytes).sum();
    page.one(
        "opensandbox_template_bytes",
        "gauge",
        "Size of the images that were built for templates, as far as it is known.",
        &[],
        number(bytes),
    );
}

/// Absent where there are none.
fn warm_sidecars(app: &AppState, page: &mut Page) {
    let Some(warm) = app.unscoped.warm_sidecars() else {
        return;
    };
    page.one(
        "opensandbox_egress_warm_sidecars_wanted",
        "gauge",
        "Egress sidecars that are to wait for a create.",
        &[],
        number(warm.wanted),
    );
    page.one(
        "opensandbox_egress_warm_sidecars",
        "gauge",
        "Egress sidecars that wait for a create.",
        &[],
        number(warm.waiting),
    );
    let name = "opensandbox_egress_warm_claims_total";
    page.head(
        name,
        "counter",
        "Creates with a network policy: hit (the sidecar was ready), miss (none was) and failure (the \
         ready one did not work).",
    );
    for (outcome, count) in [
        ("hit", warm.hits),
        ("miss", warm.misses),
        ("failure", warm.failures),
    ] {
        page.sample(name, &[("outcome", outcome)], number(count));
    }
}

/// Absent where there are none.
fn pools(app: &AppState, page: &mut Page) {
    let Some(counts) = app.unscoped.pool_counts().filter(|all| !all.is_empty()) else {
        return;
    };
    let name = "opensandbox_pool_sandboxes";
    page.head(
        name,
        "gauge",
        "Sandboxes of each pool: warming (being started), ready (waiting for a claim) and claimed.",
    );
    for ((tenant, pool), counts) in &counts {
        let tenant = tenant.as_deref().unwrap_or_default();
        for (state, count) in [
            ("warming", counts.warming),
            ("ready", counts.ready),
            ("claimed", counts.claimed),
        ] {
            let labels = [
                ("tenant", tenant),
                ("pool", pool.as_str()),
                ("state", state),
            ];
            page.sample(name, &labels, number(count));
        }
    }
}

async fn webhooks(app: &AppState, page: &mut Page) {
    let name = "opensandbox_webhook_deliveries_total";
    page.head(
        name,
        "counter",
        "Attempts to deliver events to webhooks: delivered, failed (to be repeated) and dead (the last \
         one); dropped events found no room.",
    );
    for (outcome, count) in app.webhooks.tally().read() {
        page.sample(name, &[("outcome", outcome)], number(count));
    }
    // A store that does not answer is seen in `opensandbox_ready`.
    let backlog = tokio::time::timeout(READY_WAIT, app.webhooks.backlog()).await;
    let Ok(Ok(backlog)) = backlog else {
        return;
    };
    let name = "opensandbox_webhook_backlog";
    page.head(name, "gauge", "Stored deliveries by status.");
    page.sample(name, &[("status", "pending")], number(backlog.pending));
    page.sample(name, &[("status", "dead")], number(backlog.dead));
    let oldest = backlog.oldest_pending;
    page.one(
        "opensandbox_webhook_oldest_pending_seconds",
        "gauge",
        "Age of the oldest event that is not delivered; 0 without one.",
        &[],
        oldest.map_or(0.0, |at| app.webhooks.seconds_since(at)),
    );
}

fn requests(app: &AppState, page: &mut Page) {
    let name = "http_server_request_duration_seconds";
    page.head(
        name,
        "histogram",
        "Time from the head of a request to the last byte of its answer.",
    );
    for (kind, durations) in app.meter.requests() {
        let status = kind.status.to_string();
        let labels = [
            ("http_request_method", kind.method),
            ("http_route", kind.route),
            ("http_response_status_code", status.as_str()),
        ];
        page.durations(name, &labels, &durations.read());
    }
    let name = "opensandbox_sdk_create_duration_seconds";
    page.head(
        name,
        "histogram",
        "Time of creates as SDKs have measured and reported it.",
    );
    for (create, durations) in app.meter.sdk_creates() {
        let labels = [
            ("sdk_language", create.language.as_str()),
            ("sdk_version", create.version.as_str()),
            ("success", if create.success { "true" } else { "false" }),
        ];
        page.durations(name, &labels, &durations.read());
    }
    page.one(
        "opensandbox_http_connections",
        "gauge",
        "Connections that serve requests; tunnels are not among them.",
        &[],
        number(app.meter.connections()),
    );
    let counts = app.room.counts();
    page.head(
        "opensandbox_http_exchanges",
        "gauge",
        "Requests and tunnels under way, by kind.",
    );
    for (kind, active, _) in counts {
        page.sample(
            "opensandbox_http_exchanges",
            &[("kind", kind)],
            number(active),
        );
    }
    let name = "opensandbox_http_shed_total";
    page.head(
        name,
        "counter",
        "Requests that were not served because a limit was reached, by kind.",
    );
    for (kind, _, shed) in counts {
        page.sample(name, &[("kind", kind)], number(shed));
    }
}

/// What Prometheus knows of every process. A value that cannot be read is left out.
fn process(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program, in parentheses, may contain anything.
    let fields: Vec<f64> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .map(|field| field.parse().unwrap_or(0.0))
        .collect();
    // From the fourth field on, as proc_pid_stat(5) counts them.
    let field = |number: usize| fields.get(number - 4).copied();
    if let (Some(user), Some(system), Some(threads), Some(start)) =
        (field(14), field(15), field(20), field(22))
    {
        let text = "Processor time in seconds.";
        page.one(
            "process_cpu_seconds_total",
            "counter",
            text,
            &[],
            (user + system) / TICKS,
        );
        page.one("process_threads", "gauge", "Threads.", &[], threads);
        if let Some(boot) = boot_time() {
            let text = "Start of the process in Unix seconds.";
            page.one(
                "process_start_time_seconds",
                "gauge",
                text,
                &[],
                boot + start / TICKS,
            );
        }
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = |name: &str| {
        let kilobytes = status.lines().find_map(|line| line.strip_prefix(name));
        let kilobytes = kilobytes.and_then(|text| text.trim().strip_suffix(" kB"));
        kilobytes.and_then(|text| text.trim().parse::<f64>().ok())
    };
    if let Some(kilobytes) = memory("VmSize:") {
        let text = "Virtual memory in bytes.";
        page.one(
            "process_virtual_memory_bytes",
            "gauge",
            text,
            &[],
            kilobytes * 1024.0,
        );
    }
    if let Some(kilobytes) = memory("VmRSS:") {
        let text = "Resident memory in bytes.";
        page.one(
            "process_resident_memory_bytes",
            "gauge",
            text,
            &[],
            kilobytes * 1024.0,
        );
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        let text = "Open file descriptors.";
        page.one("process_open_fds", "gauge", text, &[], number(open.count()));
    }
    if let Some(most) = rustix::process::getrlimit(rustix::process::Resource::Nofile).current {
        page.one(
            "process_max_fds",
            "gauge",
            "Most open file descriptors.",
            &[],
            number(most),
        );
    }
}

/// When the system was started, in Unix seconds.
fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    line.trim().parse().ok()
}

type Read = (Vec<(f64, u64)>, u64, f64);

/// As Prometheus counts: in floating point.
fn number(count: impl TryInto<u64>) -> f64 {
    let count: u64 = count.try_into().unwrap_or(u64::MAX);
    count as f64
}

/// A page in the text format.
#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            let start = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{start}{label}=\"");
            for letter in value.chars() {
                match letter {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{end} {value}");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, labels: &[(&str, &str)], value: f64) {
        self.head(name, kind, help);
        self.sample(name, labels, value);
    }

    fn durations(&mut self, name: &str, labels: &[(&str, &str)], read: &Read) {
        let (below, count, sum) = read;
        let bucket = format!("{name}_bucket");
        for (bound, below) in below {
            let bound = bound.to_string();
            let labels = [labels, &[("le", bound.as_str())]].concat();
            self.sample(&bucket, &labels, number(*below));
        }
        self.sample(
            &bucket,
            &[labels, &[("le", "+Inf")]].concat(),
            number(*count),
        );
        self.sample(&format!("{name}_sum"), labels, *sum);
        self.sample(&format!("{name}_count"), labels, number(*count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_in_the_text_format() {
        let mut page = Page::default();
        page.one(
            "a_total",
            "counter",
            "Help.",
            &[("l", "x\"\\\ny"), ("m", "2")],
            1.5,
        );
        page.durations("d", &[], &(vec![(0.001, 1), (60.0, 2)], 3, 0.25));
        assert_eq!(
            page.0,
            "# HELP a_total Help.\n# TYPE a_total counter\na_total{l=\"x\\\"\\\\\\ny\",m=\"2\"} 1.5\n\
             d_bucket{le=\"0.001\"} 1\nd_bucket{le=\"60\"} 2\nd_bucket{le=\"+Inf\"} 3\nd_sum 0.25\nd_count 3\n"
        );
    }

    #[test]
    fn the_process_is_described() {
        let mut page = Page::default();
        process(&mut page);
        let value = |name: &str| {
            let line = page.0.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("{name}: {}", page.0))
                .trim()
                .parse::<f64>()
                .unwrap()
        };
        assert!(value("process_resident_memory_bytes ") > 1e6);
        assert!(value("process_threads ") >= 1.0 && value("process_open_fds ") >= 3.0);
        let now = jiff::Timestamp::now().as_second();
        let age = now - value("process_start_time_seconds ") as i64;
        assert!((-2..86_400).contains(&age), "{age}");
        value("process_cpu_seconds_total ");
        value("process_max_fds ");
        value("process_virtual_memory_bytes ");
    }
}
