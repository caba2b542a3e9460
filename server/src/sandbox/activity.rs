//! What has happened lately: creates, their times and failures.

use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxState};
use osb_runtime::Stage;
use osb_store::{HistoryEntry, Outcome};

use super::{Error, Record, Service, lifecycle::now};

/// Time that is looked at.
const DAY_MS: i64 = 24 * HOUR_MS;
/// Most ended sandboxes that are looked at.
const ENDED_MAX: u32 = 5_000;
/// Ended sandboxes that are read from the store at once.
const PAGE: u32 = 500;
const HOUR_MS: i64 = 3_600_000;

/// What has happened within a day.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Creates and failures of each hour, oldest first. The day begins within the first one.
    pub hours: Vec<Hour>,
    /// Sandboxes that were asked for and exist.
    pub created_present: usize,
    /// Sandboxes that were asked for and ended.
    pub created_ended: usize,
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
    /// Whether it is gone.
    pub has_ended: bool,
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
    /// Beginning of the day, in Unix milliseconds: what happened then is outside. This is the bound of
    /// `age<24h` in the filter of the list, to which the numbers lead.
    first_ms: i64,
    /// Whether everything else ended before the day.
    is_complete: bool,
}

impl Counted {
    /// Counts the day up to this moment.
    fn until(now: WireTime) -> Self {
        let first_ms = now.unix_ms() - DAY_MS;
        let (first, last) = (hour_of(first_ms), hour_of(now.unix_ms()));
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
            first_ms,
            is_complete: false,
        }
    }

    /// The hour of a moment within the day. One that a clock put into the future is in the last.
    fn hour(&mut self, at: WireTime) -> Option<&mut Hour> {
        let (at, first) = (at.unix_ms(), self.first_ms);
        let last = self.activity.hours.len().checked_sub(1)?;
        let place = usize::try_from(hour_of(at) - hour_of(first)).ok()?;
        let is_within = at > first;
        let hours = &mut self.activity.hours;
        is_within.then(|| hours.get_mut(place.min(last))).flatten()
    }

    fn add_create(&mut self, at: WireTime, ready_ms: Option<i64>, has_ended: bool) {
        if let Some(hour) = self.hour(at) {
            hour.creates += 1;
            let activity = &mut self.activity;
            activity.create_ms.extend(ready_ms);
            match has_ended {
                true => activity.created_ended += 1,
                false => activity.created_present += 1,
            }
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
            false,
        );
        if sandbox.status.state == SandboxState::Failed {
            let status = &sandbox.status;
            self.add_failure(Failure {
                id: sandbox.id.clone(),
                has_ended: false,
                name: name(&sandbox.metadata),
                at: status.last_transition_at.unwrap_or(sandbox.created_at),
                reason: status.reason.clone().unwrap_or_default(),
                message: status.message.clone().unwrap_or_default(),
            });
        }
    }

    fn add_ended(&mut self, entry: HistoryEntry) {
        // Entries come in the order of their ends.
        if entry.ended_at.unix_ms() <= self.first_ms {
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
            true,
        );
        if matches!(entry.outcome, Outcome::CreateFailed | Outcome::Vanished) {
            self.add_failure(Failure {
                name: name(&entry.spec.metadata),
                has_ended: true,
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

/// The number of the hour of a moment in Unix milliseconds.
fn hour_of(ms: i64) -> i64 {
    ms.div_euclid(HOUR_MS)
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
        // Created before the day, ended within it.
        let first = now - DAY_MS;
        counted.add_ended(entry("c", first, first + 1, Outcome::Vanished));
        assert!(!counted.is_complete);
        counted.add_ended(entry("d", 0, first, Outcome::Vanished));
        assert!(counted.is_complete);
        let activity = counted.finish();
        assert_eq!(activity.hours.len(), 25, "the first and the last are parts");
        let counts: Vec<_> = activity
            .hours
            .iter()
            .map(|hour| (hour.creates, hour.failures))
            .filter(|counts| *counts != (0, 0))
            .collect();
        assert_eq!(counts, [(0, 1), (2, 1)]);
        assert_eq!(activity.hours[24].start, at(1_000 * HOUR_MS));
        assert_eq!((activity.created_present, activity.created_ended), (0, 2));
        assert_eq!(activity.create_ms, [700], "of those that became ready");
        let failed: Vec<_> = activity.failures.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(failed, ["b", "c"]);
        assert!(!activity.is_cut);
    }
}
