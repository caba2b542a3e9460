//! Settings and state of a sandbox as text.

use std::fmt::Write;

use osb_protocol::{WireTime, lifecycle::SandboxStatus};
use osb_runtime::{Inspection, MASK};
use osb_store::HistoryEntry;

use crate::sandbox::Record;

/// Characters of a container's id, as engines shorten it.
const SHORT_ID: usize = 12;
/// Width of the names.
const NAMES: usize = 14;

/// Lines of `Name: value`, aligned.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) {
        let name = format!("{name}:");
        let line = format!("{name:<NAMES$} {value}");
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{}", line.trim_end());
    }

    fn section(&mut self, title: &str) {
        let _ = writeln!(self.0, "\n{title}:");
    }

    fn item(&mut self, text: impl std::fmt::Display) {
        let _ = writeln!(self.0, "  {text}");
    }

    fn items<T: std::fmt::Display>(&mut self, title: &str, items: impl Iterator<Item = T>) {
        self.section(title);
        let before = self.0.len();
        for item in items {
            self.item(item);
        }
        if self.0.len() == before {
            self.item("(none)");
        }
    }

    fn status(&mut self, status: &SandboxStatus) {
        self.line("State", &status.state);
        self.line("Reason", status.reason.as_deref().unwrap_or_default());
        self.line("Message", status.message.as_deref().unwrap_or_default());
    }
}

/// Describes a sandbox that exists.
pub(super) fn of_record(record: &Record, container: Option<&Inspection>) -> String {
    let mut page = Page::default();
    page.status(&record.sandbox.status);
    match container {
        Some(container) => describe(&mut page, container),
        None => {
            page.line("Image", &record.facts.origin.source);
            page.line("Container", "(none yet)");
        }
    }
    page.0
}

/// Describes a create that failed, or a sandbox that vanished.
pub(super) fn of_history(entry: &HistoryEntry) -> String {
    let mut page = Page::default();
    page.line("State", "Failed");
    page.line("Reason", &entry.reason);
    page.line("Message", &entry.message);
    page.line("Image", &entry.image);
    page.line("Created", entry.created_at);
    page.line("Ended", entry.ended_at);
    page.line("Container", "(gone)");
    page.0
}

fn describe(page: &mut Page, container: &Inspection) {
    let id: String = container.container.chars().take(SHORT_ID).collect();
    let time = |at: Option<WireTime>| at.map(|at| at.to_string()).unwrap_or_default();
    let number = |number: Option<i64>| number.map(|it| it.to_string()).unwrap_or_default();
    page.line("Container ID", id);
    page.line("Name", &container.name);
    page.line("Image", &container.image);
    page.line("Status", &container.status);
    page.line("Running", container.is_running);
    page.line("Paused", container.is_paused);
    page.line("OOMKilled", container.out_of_memory);
    page.line("Exit Code", number(container.exit_code));
    page.line("Restarts", number(container.restarts));
    page.line("Created", time(container.created));
    page.line("Started", time(container.started));
    page.line("Finished", time(container.finished));
    page.line(
        "Runtime",
        container.oci_runtime.as_deref().unwrap_or_default(),
    );
    page.line("Error", container.error.as_deref().unwrap_or_default());
    page.section("Resources");
    page.item(format_args!("CPU: {}", cores(container.nano_cpus)));
    page.item(format_args!(
        "Memory: {}",
        mebibytes(container.memory_bytes)
    ));
    page.item(format_args!("PIDs: {}", limit(number(container.pids))));
    let networks = container.networks.iter();
    page.items(
        "Network",
        networks.map(|(name, ip)| format!("{name}: {ip}")),
    );
    let ports = container.ports.iter();
    page.items(
        "Ports",
        ports.map(|(inside, outside)| match outside {
            Some(outside) => format!("{inside} -> {outside}"),
            None => inside.clone(),
        }),
    );
    let labels = container.labels.iter();
    page.items(
        "Labels",
        labels.map(|(name, value)| format!("{name}={value}")),
    );
    let names = container.environment.iter();
    page.items("Environment", names.map(|name| format!("{name}={MASK}")));
}

fn limit(amount: String) -> String {
    match amount.as_str() {
        "" => "unlimited".to_owned(),
        _ => amount,
    }
}

fn cores(nano_cpus: Option<i64>) -> String {
    // Two decimals, rounded down.
    let hundredths = nano_cpus.map(|nano| nano / 10_000_000);
    let text = hundredths.map(|it| format!("{}.{:02} cores", it / 100, it % 100));
    limit(text.unwrap_or_default())
}

fn mebibytes(bytes: Option<i64>) -> String {
    let text = bytes.map(|bytes| format!("{} MiB", bytes >> 20));
    limit(text.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use osb_runtime::{Phase, Vocabulary};

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    #[test]
    fn lines_are_aligned_and_values_of_the_environment_masked() {
        let mut facts = facts();
        facts.set_phase(Phase::Exited(3), at(20));
        let record = Record::derive(facts, 1, &Vocabulary::CONTAINERS.reasons);
        let container = Inspection {
            container: "0123456789abcdef".to_owned(),
            exit_code: Some(3),
            oci_runtime: Some("runsc".to_owned()),
            nano_cpus: Some(1_500_000_000),
            memory_bytes: Some(256 << 20),
            networks: vec![("n".to_owned(), "172.20.0.2".to_owned())],
            environment: vec!["HOME".to_owned()],
            ..Inspection::default()
        };
        let text = of_record(&record, Some(&container));
        for line in [
            "State:         Failed",
            "Container ID:  0123456789ab",
            "Exit Code:     3",
            "OOMKilled:     false",
            "Runtime:       runsc",
            "  CPU: 1.50 cores",
            "  Memory: 256 MiB",
            "  PIDs: unlimited",
            "  n: 172.20.0.2",
            "  (none)",
            "  HOME=***",
        ] {
            assert!(text.lines().any(|it| it == line), "{line:?} in {text}");
        }
    }
}
