//! Events of a sandbox as lines of text. None of them is stored: they follow from its state.

use osb_protocol::WireTime;
use osb_runtime::{Cause, Inspection, Stage};
use osb_store::HistoryEntry;

use crate::sandbox::Record;

/// Longest output of a health check in an event, in characters.
const OUTPUT: usize = 200;

/// Something that happened to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, if that is known.
    pub at: Option<WireTime>,
    /// What, in a word.
    pub name: &'static str,
    /// What, in words.
    pub text: String,
}

impl Event {
    fn new(at: Option<WireTime>, name: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { at, name, text }
    }
}

/// A line.
impl std::fmt::Display for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let at = self.at.map_or_else(|| "-".to_owned(), |at| at.to_string());
        write!(f, "{at:<27}  {:<11}  {}", self.name, self.text)
    }
}

/// Events of a sandbox that exists, oldest first.
pub(super) fn of_record(
    record: &Record,
    container: Option<&Inspection>,
    checks: usize,
) -> Vec<Event> {
    let stages = record.facts.stages.iter();
    let reached: Vec<(&str, WireTime)> = stages.map(|it| (it.stage.as_str(), it.at)).collect();
    let mut events = stages_as_events(&reached);
    if let Some(container) = container {
        events.extend(of_container(container, checks));
    }
    let status = &record.sandbox.status;
    let reason = status.reason.as_deref().unwrap_or_default();
    let message = status.message.as_deref().unwrap_or_default();
    events.push(Event::new(
        status.last_transition_at,
        "State",
        format!("{} ({reason}): {message}", status.state),
    ));
    sorted(events)
}

/// Events of a create that failed, or of a sandbox that vanished.
pub(super) fn of_history(entry: &HistoryEntry) -> Vec<Event> {
    let stages = entry.stages.iter();
    let reached: Vec<(&str, WireTime)> = stages.map(|it| (it.stage.as_str(), it.at)).collect();
    let mut events = stages_as_events(&reached);
    let text = format!("{}: {}", entry.reason, entry.message);
    events.push(Event::new(Some(entry.ended_at), "Ended", text));
    sorted(events)
}

fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by_key(|event| (event.at.is_none(), event.at));
    events
}

fn stages_as_events(reached: &[(&str, WireTime)]) -> Vec<Event> {
    let mut before = None;
    let events = reached.iter().map(|(stage, at)| {
        let known = Stage::ALL.into_iter().find(|it| it.as_str() == *stage);
        let (name, what) = match known {
            Some(Stage::Accepted) | None => ("Accepted", "the request was accepted"),
            Some(Stage::Image) => ("Image", "the image is on the host"),
            Some(Stage::Created) => ("Created", "the container exists"),
            Some(Stage::Network) => ("Network", "the container runs and has an address"),
            Some(Stage::Execd) => ("Execd", "execd answers"),
            Some(Stage::Ready) => ("Ready", "clients may use the sandbox"),
        };
        let took = before.replace(*at).map(|before: WireTime| {
            let millis = at.unix_ms() - before.unix_ms();
            format!(", after {}.{:03} s", millis / 1000, millis.rem_euclid(1000))
        });
        Event::new(
            Some(*at),
            name,
            format!("{what}{}", took.unwrap_or_default()),
        )
    });
    events.collect()
}

fn of_container(container: &Inspection, checks: usize) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |at: Option<WireTime>, name, text: String| {
        events.push(Event::new(at, name, text));
    };
    if container.created.is_some() {
        let text = format!("container {} of image {}", container.name, container.image);
        add(container.created, "Container", text);
    }
    if container.started.is_some() {
        add(
            container.started,
            "Started",
            "the container was started".into(),
        );
    }
    if let Some(restarts) = container.restarts.filter(|count| *count > 0) {
        add(None, "Restarted", format!("{restarts} restarts"));
    }
    if container.out_of_memory {
        let text = "OOMKilled: the kernel killed a process because the memory limit was reached";
        add(container.finished, "OOM", text.into());
    }
    if let Some(code) = container.exit_code {
        let cause = Cause::of_exit(code, container.out_of_memory);
        let why = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
        add(
            container.finished,
            "Finished",
            format!("exit code {code}{why}"),
        );
    }
    if let Some(error) = &container.error {
        add(container.finished, "Error", error.clone());
    }
    let first = container.health_checks.len().saturating_sub(checks);
    for check in &container.health_checks[first..] {
        let output: String = check.output.trim().chars().take(OUTPUT).collect();
        let output = output.replace('\n', " ");
        let text = format!("exit code {}: {output}", check.exit_code);
        add(check.at, "HealthCheck", text);
    }
    events
}

#[cfg(test)]
mod tests {
    use osb_runtime::{HealthCheck, Phase, Vocabulary};

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    #[test]
    fn events_are_in_order_and_name_what_an_operator_searches_for() {
        let mut facts = facts();
        facts.reached(Stage::Image, at(12));
        facts.reached(Stage::Created, at(13));
        facts.out_of_memory = true;
        facts.set_phase(Phase::Exited(137), at(40));
        let record = Record::derive(facts, 1, &Vocabulary::CONTAINERS.reasons);
        let check = |seconds, output: &str| HealthCheck {
            at: Some(at(seconds)),
            exit_code: 1,
            output: output.to_owned(),
        };
        let container = Inspection {
            started: Some(at(14)),
            finished: Some(at(40)),
            out_of_memory: true,
            exit_code: Some(137),
            health_checks: vec![check(20, "old"), check(21, &"é\n".repeat(300))],
            ..Inspection::default()
        };
        let lines = of_record(&record, Some(&container), 1);
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let all = lines.join("\n");
        let place = |text: &str| all.find(text).unwrap_or_else(|| panic!("{text} in {all}"));
        let order = [
            "after 2.000 s",
            "Created",
            "Started",
            "HealthCheck",
            "OOMKilled",
        ];
        assert!(order.map(place).is_sorted(), "{all}");
        assert!(place("exit code 137") < place("Failed (CONTAINER_EXITED_ERROR)"));
        assert!(!all.contains("old"), "only the last check: {all}");
        assert_eq!(all.matches('é').count(), OUTPUT / 2);
        assert_eq!(all.lines().count(), lines.len());
    }
}
