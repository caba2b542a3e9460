//! What has happened lately: creates, their times and failures.

use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxState};
use osb_runtime::Stage;
use osb_store::{HistoryEntry, Outcome};

use super::{Error, Record, Service, lifecycle::now};

/// Hours that are counted, the present one included.
pub const HOURS: usize = 24;
/// Most ended sandboxes that are looked at.
const ENDED_MAX: u32 = 5_000;
/// Ended sandboxes that are read from the store at once.
const PAGE: u32 = 500;
const HOUR_MS: i64 = 3_600_000;

/// What has happened within the last hours.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Creates and failures of each hour, oldest first.
    pub hours: Vec<Hour>,
    /// Times of creates that succeeded, from acceptance to readiness, in milliseconds, ascending.
    pub create_ms: Vec<i64>,
    /// Failures, newest first.
    pub failures: Vec<Failure>,
    /// Whether more ended than was looked at.
    pub is_cut: bool,
}

/// What happened in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hour {
    /// Its beginning.
    pub start: WireTime,
    /// Sandboxes that were asked for.
    pub creates: u32,
    /// Sandboxes that failed.
    pub failures: u32,
}

/// A sandbox that failed, in its create or later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The sandbox.
    pub id: SandboxId,
    /// Its label `name`.
    pub name: Option<String>,
    /// When.
    pub at: WireTime,
    /// Why, as a code.
    pub reason: String,
    /// Why, in words.
    pub message: String,
}

impl Service {
    /// What has happened to the sandboxes within the scope.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn activity(&self) -> Result<Activity, Error> {
        let mut counted = Counted::until(now());
        for record in self.snapshot().0 {
            counted.add_record(&record);
        }
        let mut skip = 0;
        while skip < ENDED_MAX && !counted.is_complete {
            let page = self.recent_history(skip, PAGE).await?;
            let read = u32::try_from(page.len()).unwrap_or(PAGE);
            for entry in page {
                counted.add_ended(entry);
            }
            counted.is_complete |= read < PAGE;
            skip += PAGE;
        }
        Ok(counted.finish())
    }
}

/// What was counted so far.
struct Counted {
    activity: Activity,
    /// Beginning of the first hour, in Unix milliseconds.
    first_ms: i64,
    /// Whether everything else ended before the first hour.
    is_complete: bool,
}

impl Counted {
    /// Counts the hours up to this moment.
    fn until(now: WireTime) -> Self {
        let last = now.unix_ms().div_euclid(HOUR_MS);
        let first = last - i64::try_from(HOURS - 1).unwrap_or_default();
        let hour = |hour: i64| Hour {
            start: WireTime::from_unix_ms(hour * HOUR_MS).unwrap_or(now),
            creates: 0,
            failures: 0,
        };
        Self {
            activity: Activity {
                hours: (first..=last).map(hour).collect(),
                ..Activity::default()
            },
            first_ms: first * HOUR_MS,
            is_complete: false,
        }
    }

    fn hour(&mut self, at: WireTime) -> Option<&mut Hour> {
        let hour = (at.unix_ms() - self.first_ms).div_euclid(HOUR_MS);
        self.activity.hours.get_mut(usize::try_from(hour).ok()?)
    }

    fn add_create(&mut self, at: WireTime, ready_ms: Option<i64>) {
        if let Some(hour) = self.hour(at) {
            hour.creates += 1;
            self.activity.create_ms.extend(ready_ms);
        }
    }

    fn add_failure(&mut self, failure: Failure) {
        if let Some(hour) = self.hour(failure.at) {
            hour.failures += 1;
            self.activity.failures.push(failure);
        }
    }

    fn add_record(&mut self, record: &Record) {
        let sandbox = &record.sandbox;
        let stages = &record.facts.stages;
        let at = |stage| stages.iter().find(|it| it.stage == stage).map(|it| it.at);
        self.add_create(
            sandbox.created_at,
            took(at(Stage::Accepted), at(Stage::Ready)),
        );
        if sandbox.status.state == SandboxState::Failed {
            let status = &sandbox.status;
            self.add_failure(Failure {
                id: sandbox.id.clone(),
                name: name(&sandbox.metadata),
                at: status.last_transition_at.unwrap_or(sandbox.created_at),
                reason: status.reason.clone().unwrap_or_default(),
                message: status.message.clone().unwrap_or_default(),
            });
        }
    }

    fn add_ended(&mut self, entry: HistoryEntry) {
        // Entries come in the order of their ends.
        if entry.ended_at.unix_ms() < self.first_ms {
            self.is_complete = true;
            return;
        }
        let stages = &entry.stages;
        let at = |stage: Stage| {
            let found = stages.iter().find(|it| it.stage == stage.as_str());
            found.map(|it| it.at)
        };
        self.add_create(
            entry.created_at,
            took(at(Stage::Accepted), at(Stage::Ready)),
        );
        if matches!(entry.outcome, Outcome::CreateFailed | Outcome::Vanished) {
            self.add_failure(Failure {
                name: name(&entry.spec.metadata),
                id: entry.id,
                at: entry.ended_at,
                reason: entry.reason,
                message: entry.message,
            });
        }
    }

    fn finish(self) -> Activity {
        let mut activity = self.activity;
        activity.create_ms.sort_unstable();
        activity
            .failures
            .sort_by_key(|failure| std::cmp::Reverse(failure.at));
        activity.is_cut = !self.is_complete;
        activity
    }
}

fn took(accepted: Option<WireTime>, ready: Option<WireTime>) -> Option<i64> {
    Some((ready?.unix_ms() - accepted?.unix_ms()).max(0))
}

fn name(metadata: &std::collections::BTreeMap<String, String>) -> Option<String> {
    let name = metadata.get("name").map(|name| name.trim());
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use osb_store::{EndedSpec, StageTime};

    use super::*;

    fn at(ms: i64) -> WireTime {
        WireTime::from_unix_ms(ms).unwrap()
    }

    fn entry(id: &str, created: i64, ended: i64, outcome: Outcome) -> HistoryEntry {
        let stage = |stage: &str, ms| StageTime {
            stage: stage.to_owned(),
            at: at(ms),
        };
        HistoryEntry {
            id: id.into(),
            image: "x".to_owned(),
            created_at: at(created),
            ended_at: at(ended),
            outcome,
            reason: "IMAGE_PULL_FAILED".to_owned(),
            message: "no such image".to_owned(),
            stages: match outcome {
                Outcome::CreateFailed => vec![stage("accepted", created)],
                _ => vec![stage("accepted", created), stage("ready", created + 700)],
            },
            tenant: None,
            spec: EndedSpec::default(),
        }
    }

    #[test]
    fn creates_and_failures_stand_in_their_hours() {
        // Half past an hour.
        let now = 1_000 * HOUR_MS + HOUR_MS / 2;
        let mut counted = Counted::until(at(now));
        counted.add_ended(entry("a", now - 60_000, now, Outcome::Deleted));
        counted.add_ended(entry("b", now - 60_000, now - 1, Outcome::CreateFailed));
        // Created before the first hour, ended within it.
        let first = now - HOUR_MS * 23;
        counted.add_ended(entry("c", first - HOUR_MS, first, Outcome::Vanished));
        assert!(!counted.is_complete);
        counted.add_ended(entry("d", 0, first - HOUR_MS, Outcome::Vanished));
        assert!(counted.is_complete);
        let activity = counted.finish();
        assert_eq!(activity.hours.len(), HOURS);
        let counts: Vec<_> = activity
            .hours
            .iter()
            .map(|hour| (hour.creates, hour.failures))
            .filter(|counts| *counts != (0, 0))
            .collect();
        assert_eq!(counts, [(0, 1), (2, 1)]);
        assert_eq!(activity.hours[HOURS - 1].start, at(1_000 * HOUR_MS));
        assert_eq!(activity.create_ms, [700], "of those that became ready");
        let failed: Vec<_> = activity.failures.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(failed, ["b", "c"]);
        assert!(!activity.is_cut);
    }
}
