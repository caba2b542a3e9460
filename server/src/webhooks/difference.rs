//! Which events lie between what was announced of a sandbox and what it is now.
//!
//! Events follow from this comparison alone. Whatever keeps an announcement from being stored, a full
//! disk or the end of the server, the next comparison finds the same difference.

use osb_protocol::lifecycle::SandboxState;
use osb_store::{AnnouncedRow, HistoryEntry, Outcome};

use super::event::{EventType, SandboxEvent, bounded};
use crate::sandbox::Record;

/// State of a sandbox that was just accepted.
const PENDING: &str = "Pending";
/// State of a sandbox that can be used.
const RUNNING: &str = "Running";
/// State of a frozen sandbox.
const PAUSED: &str = "Paused";
/// State of a sandbox that does not work.
const FAILED: &str = "Failed";

/// What is new of a sandbox.
#[derive(Debug, Default)]
pub(super) struct Difference {
    /// What to store as announced; `None` when nothing changed.
    pub(super) row: Option<AnnouncedRow>,
    /// What happened, in order.
    pub(super) events: Vec<SandboxEvent>,
}

/// What a sandbox is, without an announcement.
pub(super) fn as_announced(record: &Record) -> AnnouncedRow {
    let sandbox = &record.sandbox;
    let is_starting = sandbox.status.state == SandboxState::Running && !is_usable(record);
    let state = match &sandbox.status.state {
        _ if is_starting => PENDING,
        // No event leads to these states; what comes next is compared with the last lasting one.
        SandboxState::Stopping | SandboxState::Pausing | SandboxState::Resuming => RUNNING,
        state => state.as_str(),
    };
    let (metadata, _) = bounded(&sandbox.metadata);
    let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
    AnnouncedRow {
        id: sandbox.id.clone(),
        state: state.to_owned(),
        reason: sandbox.status.reason.clone().unwrap_or_default(),
        expires_at: sandbox.expires_at,
        tenant: record.facts.origin.tenant.as_deref().map(str::to_owned),
        metadata: metadata.into_iter().map(owned).collect(),
    }
}

/// Compares a sandbox with what was announced of it; `None` if nothing was.
pub(super) fn compare(known: Option<&AnnouncedRow>, record: &Record) -> Difference {
    let now = as_announced(record);
    let mut events = Vec::new();
    let mut row = match known {
        Some(known) => known.clone(),
        None => {
            events.push(SandboxEvent {
                message: "The create was accepted.".to_owned(),
                ..event(EventType::Created, record, Some(PENDING), None)
            });
            AnnouncedRow {
                state: PENDING.to_owned(),
                ..now.clone()
            }
        }
    };
    for &kind in transitions(&row, record) {
        let state = match kind {
            EventType::Ready | EventType::Resumed => RUNNING,
            _ => now.state.as_str(),
        };
        events.push(event(kind, record, Some(state), Some(&row.state)));
        row.state = state.to_owned();
        row.reason.clone_from(&now.reason);
    }
    if let (Some(before), Some(after)) = (row.expires_at, now.expires_at)
        && before != after
    {
        events.push(SandboxEvent {
            previous_expires_at: Some(before),
            reason: "RENEWED".to_owned(),
            message: "Its expiry moved.".to_owned(),
            ..event(
                EventType::Renewed,
                record,
                Some(&row.state),
                Some(&row.state),
            )
        });
    }
    row.expires_at = now.expires_at;
    row.tenant = now.tenant;
    row.metadata = now.metadata;
    let is_new = known != Some(&row);
    Difference {
        row: is_new.then_some(row),
        events,
    }
}

/// Whether the create of a running sandbox is over, so that clients can use it.
fn is_usable(record: &Record) -> bool {
    record.facts.create_is_over
}

fn transitions(row: &AnnouncedRow, record: &Record) -> &'static [EventType] {
    let before = row.state.as_str();
    match &record.sandbox.status.state {
        SandboxState::Running if is_usable(record) => match before {
            RUNNING => &[],
            PAUSED => &[EventType::Resumed],
            _ => &[EventType::Ready],
        },
        SandboxState::Paused => match before {
            PAUSED => &[],
            PENDING => &[EventType::Ready, EventType::Paused],
            _ => &[EventType::Paused],
        },
        // A better reason may be known a moment later.
        SandboxState::Failed
            if before != FAILED || Some(&row.reason) != record.sandbox.status.reason.as_ref() =>
        {
            &[EventType::Failed]
        }
        SandboxState::Terminated if before != SandboxState::Terminated.as_str() => {
            &[EventType::Terminated]
        }
        _ => &[],
    }
}

fn event(
    kind: EventType,
    record: &Record,
    state: Option<&str>,
    previous: Option<&str>,
) -> SandboxEvent {
    let sandbox = &record.sandbox;
    SandboxEvent {
        kind,
        sandbox: sandbox.id.clone(),
        tenant: record.facts.origin.tenant.as_deref().map(str::to_owned),
        state: state.map(str::to_owned),
        previous_state: previous.map(str::to_owned),
        reason: sandbox.status.reason.clone().unwrap_or_default(),
        message: sandbox.status.message.clone().unwrap_or_default(),
        created_at: Some(sandbox.created_at),
        expires_at: sandbox.expires_at,
        previous_expires_at: None,
        metadata: sandbox.metadata.clone(),
    }
}

/// The events of a sandbox that is gone.
pub(super) fn end(known: Option<&AnnouncedRow>, entry: &HistoryEntry) -> Vec<SandboxEvent> {
    let kind = match entry.outcome {
        Outcome::CreateFailed => EventType::Failed,
        Outcome::Expired => EventType::Expired,
        Outcome::Deleted | Outcome::Abandoned | Outcome::Vanished => EventType::Deleted,
    };
    let last = SandboxEvent {
        kind,
        sandbox: entry.id.clone(),
        tenant: entry.tenant.clone(),
        state: None,
        previous_state: Some(PENDING.to_owned()),
        reason: entry.reason.clone(),
        message: entry.message.clone(),
        created_at: Some(entry.created_at),
        expires_at: None,
        previous_expires_at: None,
        metadata: std::collections::BTreeMap::new(),
    };
    match known {
        Some(known) => vec![SandboxEvent {
            tenant: known.tenant.clone().or_else(|| entry.tenant.clone()),
            previous_state: Some(known.state.clone()),
            expires_at: known.expires_at,
            metadata: known.metadata.clone(),
            ..last
        }],
        None => {
            let created = SandboxEvent {
                kind: EventType::Created,
                state: last.previous_state.clone(),
                previous_state: None,
                reason: String::new(),
                message: "The create was accepted.".to_owned(),
                ..last.clone()
            };
            vec![created, last]
        }
    }
}

/// The event of a sandbox that is gone without a history: another program removed it while no server
/// ran, or the store could not take its create.
pub(super) fn gone(known: &AnnouncedRow) -> SandboxEvent {
    SandboxEvent {
        kind: EventType::Deleted,
        sandbox: known.id.clone(),
        tenant: known.tenant.clone(),
        state: None,
        previous_state: Some(known.state.clone()),
        reason: "GONE".to_owned(),
        message: "It was gone, and its history does not say why.".to_owned(),
        created_at: None,
        expires_at: known.expires_at,
        previous_expires_at: None,
        metadata: known.metadata.clone(),
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;
    use osb_runtime::{Expiry, Phase, Vocabulary};
    use osb_store::EndedSpec;

    use super::*;
    use crate::sandbox::{
        Facts,
        state::tests::{at, facts},
    };

    fn record(facts: &Facts) -> Record {
        Record::derive(facts.clone(), 1, &Vocabulary::CONTAINERS.reasons)
    }

    /// A sandbox that changes, and what was announced of it.
    struct Story {
        facts: Facts,
        known: Option<AnnouncedRow>,
    }

    impl Story {
        fn new() -> Self {
            let mut facts = facts();
            let origin = std::sync::Arc::make_mut(&mut facts.origin);
            origin.expiry = Expiry::At(at(100));
            Self { facts, known: None }
        }

        /// Types of the events after a change, each with the states around it.
        fn after(&mut self, change: impl FnOnce(&mut Facts)) -> Vec<String> {
            change(&mut self.facts);
            let Difference { row, events } = compare(self.known.as_ref(), &record(&self.facts));
            self.known = row.or_else(|| self.known.take());
            let again = compare(self.known.as_ref(), &record(&self.facts));
            assert!(again.row.is_none() && again.events.is_empty(), "{again:?}");
            let shown = events.iter().map(|event| {
                let name = |state: &Option<String>| state.clone().unwrap_or_default();
                let (before, after) = (name(&event.previous_state), name(&event.state));
                format!("{} {before}>{after}", event.kind.as_str())
            });
            shown.collect()
        }

        fn phase(&mut self, phase: Phase, seconds: i64) -> Vec<String> {
            self.after(|facts| facts.set_phase(phase, at(seconds)))
        }
    }

    fn over(facts: &mut Facts) {
        facts.create_is_over = true;
    }

    #[test]
    fn each_change_is_an_event_once_and_in_order() {
        let mut story = Story::new();
        assert_eq!(story.after(|_| {}), ["sandbox.created >Pending"]);
        let running = story.phase(Phase::Running, 20);
        assert_eq!(running, [""; 0], "clients cannot use it yet");
        assert_eq!(story.after(over), ["sandbox.ready Pending>Running"]);
        let paused = story.phase(Phase::Paused, 21);
        assert_eq!(paused, ["sandbox.paused Running>Paused"]);
        let resumed = story.phase(Phase::Running, 22);
        assert_eq!(resumed, ["sandbox.resumed Paused>Running"]);
        let renewed = story.after(|facts| facts.changes.expires_at = Some(at(200)));
        assert_eq!(renewed, ["sandbox.renewed Running>Running"]);
        let failed = story.phase(Phase::Exited(3), 23);
        assert_eq!(failed, ["sandbox.failed Running>Failed"]);
        let better = story.after(|facts| facts.failed_hooks = Some("hook".into()));
        assert_eq!(better, ["sandbox.failed Failed>Failed"]);
        let again = story.phase(Phase::Running, 24);
        assert_eq!(again, ["sandbox.ready Failed>Running"]);
        let ended = story.phase(Phase::Exited(0), 25);
        assert_eq!(ended, ["sandbox.terminated Running>Terminated"]);
        let stopping = story.after(|facts| facts.changes.deleted_at = Some(at(26)));
        assert_eq!(stopping, [""; 0]);
    }

    #[test]
    fn what_was_missed_is_found_at_once() {
        let mut story = Story::new();
        over(&mut story.facts);
        let found = story.phase(Phase::Paused, 20);
        let expected = [
            "sandbox.created >Pending",
            "sandbox.ready Pending>Running",
            "sandbox.paused Running>Paused",
        ];
        assert_eq!(found, expected);
        let mut quick = Story::new();
        over(&mut quick.facts);
        let failed = quick.phase(Phase::Exited(1), 20);
        let expected = ["sandbox.created >Pending", "sandbox.failed Pending>Failed"];
        assert_eq!(failed, expected);
    }

    #[test]
    fn an_end_has_the_last_state_and_a_sandbox_of_no_announcement_was_created() {
        let entry = HistoryEntry {
            id: "a".into(),
            image: String::new(),
            created_at: at(1),
            ended_at: at(2),
            outcome: Outcome::Expired,
            reason: "EXPIRED".into(),
            message: "It expired.".into(),
            stages: Vec::new(),
            tenant: None,
            spec: EndedSpec::default(),
        };
        let known = as_announced(&record(&Story::new().facts));
        let known = AnnouncedRow {
            state: PAUSED.into(),
            tenant: Some("t".into()),
            ..known
        };
        let [event] = end(Some(&known), &entry).try_into().unwrap();
        assert_eq!((event.kind, event.state), (EventType::Expired, None));
        assert_eq!(event.previous_state.as_deref(), Some(PAUSED));
        assert_eq!(event.tenant.as_deref(), Some("t"));
        let kinds = |outcome| {
            let entry = HistoryEntry {
                outcome,
                ..entry.clone()
            };
            end(None, &entry)
                .iter()
                .map(|event| event.kind)
                .collect::<Vec<_>>()
        };
        let created = EventType::Created;
        assert_eq!(kinds(Outcome::CreateFailed), [created, EventType::Failed]);
        assert_eq!(kinds(Outcome::Abandoned), [created, EventType::Deleted]);
        let _: Option<WireTime> = gone(&known).expires_at;
        assert_eq!(gone(&known).kind, EventType::Deleted);
    }
}
