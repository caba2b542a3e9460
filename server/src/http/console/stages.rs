//! Stages of a sandbox's create, for its page: only what is known.

use osb_app::view::{Stage as Step, StageState};
use osb_protocol::{WireTime, lifecycle::SandboxState};
use osb_runtime::{Phase, Source, Stage};
use osb_store::{HistoryEntry, Outcome};

use crate::sandbox::{Facts, Record, lifecycle::START_FAILED};

/// Name of the step that follows the stages of a create.
const COMMAND: &str = "command";

/// States of the stages that were not reached: of the first, and of the others.
type Rest = (StageState, StageState);

/// Stages of a sandbox that exists.
pub(super) fn of_record(record: &Record) -> Vec<Step> {
    let facts = &record.facts;
    let ran = !matches!(facts.phase, None | Some((Phase::Created, _)));
    let furthest = facts.stages.iter().map(|it| it.stage).max();
    // A container that ran was created, even if this server did not see it.
    let furthest = furthest.max(ran.then_some(Stage::Network));
    let at = |stage| Some(facts.stages.iter().find(|it| it.stage == stage)?.at);
    let mut steps = steps(at, furthest, rest(facts, ran));
    if steps.iter().all(|step| step.state != StageState::Failed) {
        let mut later = failed_later(record);
        // Without execd's stage it is not known whether the command failed once the sandbox was ready, or
        // its create before that.
        if steps.iter().any(|step| step.state == StageState::Unknown)
            && let Some(step) = later.as_mut().filter(|step| step.name == COMMAND)
        {
            step.state = StageState::Unknown;
        }
        steps.extend(later);
    }
    steps
}

fn rest(facts: &Facts, ran: bool) -> Rest {
    use StageState::{Current, Failed, Missed, Open, Unknown};
    // Only the server that created it has seen the later stages.
    let seen = facts.stages.iter().any(|it| it.stage != Stage::Accepted);
    match facts.phase {
        // Its execd wrote why the entry point did not start.
        _ if ran && !seen && facts.failed_hooks.is_some() => (Failed, Missed),
        _ if ran && !seen => (Unknown, Unknown),
        // A failed create whose remains could not be removed. Of an image that is on the host already
        // runtimes report only once something was made from it.
        None if facts.is_deleted() && facts.removal_error.is_some() && !seen => (Unknown, Unknown),
        None if facts.is_deleted() && facts.removal_error.is_some() => (Failed, Missed),
        _ if facts.is_deleted() => (Missed, Missed),
        Some((Phase::Exited(0), _)) => (Missed, Missed),
        Some((Phase::Exited(_), _)) => (Failed, Missed),
        _ => (Current, Open),
    }
}

/// A failure after the create.
fn failed_later(record: &Record) -> Option<Step> {
    let facts = &record.facts;
    let (name, at) = match (facts.changes.deleted_at, facts.phase) {
        (Some(deleted), _) => ("removal", deleted),
        (None, Some((_, since))) => (COMMAND, since),
        (None, None) => return None,
    };
    let failed = record.sandbox.status.state == SandboxState::Failed;
    failed.then(|| Step {
        name: name.to_owned(),
        state: StageState::Failed,
        at: Some(at),
    })
}

/// Stages of a sandbox that is gone.
pub(super) fn of_history(entry: &HistoryEntry) -> Vec<Step> {
    let at = |stage: Stage| {
        let mut stages = entry.stages.iter();
        Some(stages.find(|it| it.stage == stage.as_str())?.at)
    };
    let furthest = Stage::ALL.into_iter().rfind(|stage| at(*stage).is_some());
    let rest = match entry.outcome {
        Outcome::CreateFailed => (StageState::Failed, StageState::Missed),
        // Its end was not observed.
        _ => (StageState::Unknown, StageState::Unknown),
    };
    let mut steps = steps(at, furthest, rest);
    if entry.outcome == Outcome::CreateFailed && furthest == Some(Stage::Accepted) {
        blame_after_image(entry, &mut steps);
    }
    steps
}

/// Corrects the stages of a failed create whose image was not reported. Of an image that is on the host
/// already runtimes report only once something was made from it, so that a start that fails earlier
/// does not mean that the image is missing.
fn blame_after_image(entry: &HistoryEntry, steps: &mut [Step]) {
    if entry.reason != START_FAILED {
        return;
    }
    // What is kept on the host may be gone from it, which has the same reason.
    let created = match Source::of_text(&entry.image).is_kept_here() {
        true => StageState::Unknown,
        false => StageState::Failed,
    };
    for step in steps {
        if step.name == Stage::Image.as_str() {
            step.state = StageState::Unknown;
        } else if step.name == Stage::Created.as_str() {
            step.state = created;
        }
    }
}

fn steps(
    at: impl Fn(Stage) -> Option<WireTime>,
    furthest: Option<Stage>,
    (first, others): Rest,
) -> Vec<Step> {
    let mut next = first;
    let step = |stage: Stage| Step {
        name: stage.as_str().to_owned(),
        state: if furthest >= Some(stage) {
            StageState::Done
        } else {
            std::mem::replace(&mut next, others)
        },
        at: at(stage),
    };
    Stage::ALL.map(step).into()
}

#[cfg(test)]
mod tests {
    use osb_runtime::Vocabulary;
    use osb_store::{EndedSpec, StageTime};

    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    /// Words for the six steps, and for what may follow them.
    fn seen(steps: &[Step]) -> String {
        let words = steps.iter().map(|step| match step.state {
            StageState::Done => "done".to_owned(),
            StageState::Current => "current".to_owned(),
            StageState::Open => "open".to_owned(),
            StageState::Failed => format!("{} failed", step.name),
            StageState::Missed => "missed".to_owned(),
            StageState::Unknown => "unknown".to_owned(),
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// A sandbox whose create was seen up to this stage, and that is in this phase.
    fn shown(reached: Stage, phase: Option<Phase>, change: impl Fn(&mut Facts)) -> String {
        let mut facts = facts();
        for stage in Stage::ALL.into_iter().filter(|it| *it <= reached) {
            facts.reached(stage, at(11));
        }
        facts.phase = phase.map(|phase| (phase, at(20)));
        change(&mut facts);
        seen(&of_record(&Record::derive(
            facts,
            1,
            &Vocabulary::CONTAINERS.reasons,
        )))
    }

    fn unchanged(_: &mut Facts) {}

    #[test]
    fn a_create_under_way_shows_what_it_does() {
        assert_eq!(
            shown(Stage::Image, None, unchanged),
            "done, done, current, open, open, open"
        );
        assert_eq!(
            shown(Stage::Network, Some(Phase::Running), unchanged),
            "done, done, done, done, current, open"
        );
        assert_eq!(
            shown(Stage::Ready, Some(Phase::Running), unchanged),
            "done, done, done, done, done, done"
        );
    }

    #[test]
    fn a_failure_stands_where_it_happened() {
        assert_eq!(
            shown(Stage::Network, Some(Phase::Exited(3)), unchanged),
            "done, done, done, done, execd failed, missed"
        );
        assert_eq!(
            shown(Stage::Ready, Some(Phase::Exited(3)), unchanged),
            "done, done, done, done, done, done, command failed"
        );
        assert_eq!(
            shown(Stage::Network, Some(Phase::Exited(0)), unchanged),
            "done, done, done, done, missed, missed"
        );
        assert_eq!(
            shown(Stage::Ready, Some(Phase::Running), |facts| {
                facts.changes.deleted_at = Some(at(30));
                facts.removal_error = Some("busy".to_owned());
            }),
            "done, done, done, done, done, done, removal failed"
        );
        assert_eq!(
            shown(Stage::Image, None, |facts| {
                facts.changes.deleted_at = Some(at(30));
                facts.removal_error = Some("busy".to_owned());
            }),
            "done, done, created failed, missed, missed, missed"
        );
        assert_eq!(
            shown(Stage::Accepted, None, |facts| {
                facts.changes.deleted_at = Some(at(30));
                facts.removal_error = Some("busy".to_owned());
            }),
            "done, unknown, unknown, unknown, unknown, unknown, removal failed"
        );
    }

    #[test]
    fn what_no_server_saw_is_not_claimed() {
        assert_eq!(
            shown(Stage::Accepted, Some(Phase::Running), unchanged),
            "done, done, done, done, unknown, unknown"
        );
        assert_eq!(
            shown(Stage::Accepted, Some(Phase::Exited(1)), unchanged),
            "done, done, done, done, unknown, unknown, unknown"
        );
        assert_eq!(
            shown(Stage::Accepted, Some(Phase::Exited(1)), |facts| {
                facts.failed_hooks = Some("preStart[0] ended with 1".into());
            }),
            "done, done, done, done, execd failed, missed"
        );
    }

    #[test]
    fn the_history_of_a_failed_create_names_the_stage() {
        let entry = |outcome, stages: &[&str]| HistoryEntry {
            id: "a".into(),
            image: "x".to_owned(),
            created_at: at(10),
            ended_at: at(20),
            outcome,
            reason: "IMAGE_PULL_FAILED".to_owned(),
            message: String::new(),
            stages: stages
                .iter()
                .map(|stage| StageTime {
                    stage: (*stage).to_owned(),
                    at: at(11),
                })
                .collect(),
            tenant: None,
            spec: EndedSpec::default(),
        };
        let failed = entry(Outcome::CreateFailed, &["accepted"]);
        assert_eq!(
            seen(&of_history(&failed)),
            "done, image failed, missed, missed, missed, missed"
        );
        let started = |image: &str, stages| {
            let mut failed = entry(Outcome::CreateFailed, stages);
            failed.reason = START_FAILED.to_owned();
            failed.image = image.to_owned();
            seen(&of_history(&failed))
        };
        // The image was on the host, and no port was free.
        assert_eq!(
            started("x", &["accepted"]),
            "done, unknown, created failed, missed, missed, missed"
        );
        assert_eq!(
            started("x", &["accepted", "image", "created"]),
            "done, done, done, network failed, missed, missed"
        );
        let snapshot = Source::Snapshot("s".into()).to_string();
        assert_eq!(
            started(&snapshot, &["accepted"]),
            "done, unknown, unknown, missed, missed, missed"
        );
        let vanished = entry(Outcome::Vanished, &[]);
        assert_eq!(
            seen(&of_history(&vanished)),
            "unknown, unknown, unknown, unknown, unknown, unknown"
        );
    }
}
