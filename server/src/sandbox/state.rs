//! The state machine (contract: lifecycle §12).
//!
//! ```text
//!            ┌────────────── create fails: gone, history entry ──▶
//!  POST ──▶ Pending ──▶ Running ◀──▶ Paused          (freeze, thaw)
//!                          │  ▲
//!             command ends │  │ the operator restarts the container
//!                          ▼  │
//!                Terminated (0), Failed (else)
//!
//!  any ── DELETE or expiry ──▶ Stopping ──▶ gone, history entry
//!                                 │ removal fails: retried
//!                                 ▼
//!                               Failed (REMOVAL_FAILED) ──▶ gone
//!
//!  a container that the sandbox must not run without ends ──▶ Failed (EGRESS_LOST)
//! ```
//!
//! Nothing here is stored: the state follows from the [`Facts`].

use osb_protocol::lifecycle::{SandboxState, SandboxStatus};
use osb_runtime::{Cause, Phase, Reasons, Role, Stage};

use super::{Facts, explain};

/// Longest life of an entry point that "ended at once", in milliseconds.
const AT_ONCE_MS: i64 = 10_000;

/// The state with reason, message and time.
#[must_use]
pub fn status(facts: &Facts, reasons: &Reasons) -> SandboxStatus {
    let (state, reason, message) = describe(facts, reasons);
    let at = match (facts.changes.deleted_at, facts.phase) {
        (Some(deleted), _) => deleted,
        (None, Some((_, since))) => since,
        (None, None) => facts
            .stages
            .last()
            .map_or(facts.origin.created_at, |stage| stage.at),
    };
    SandboxStatus {
        state,
        reason: Some(reason.to_owned()),
        message: Some(message),
        last_transition_at: Some(at),
    }
}

fn describe(facts: &Facts, reasons: &Reasons) -> (SandboxState, &'static str, String) {
    if facts.is_deleted() {
        return match &facts.removal_error {
            None => (
                SandboxState::Stopping,
                "DELETING",
                "The sandbox is being removed.".into(),
            ),
            Some(error) => {
                let message = format!("The sandbox could not be removed yet: {error}");
                (SandboxState::Failed, "REMOVAL_FAILED", message)
            }
        };
    }
    let Some((phase, _)) = facts.phase else {
        return (SandboxState::Pending, reasons.starting, pending(facts));
    };
    if let (Some(role), false) = (facts.lost, matches!(phase, Phase::Exited(_))) {
        return lost(role);
    }
    match phase {
        Phase::Running => {
            let late = facts.execd_is_late.then_some(Cause::ExecdSilent);
            let message = explain("The sandbox is running.".into(), late);
            (SandboxState::Running, reasons.running, message)
        }
        Phase::Paused => (
            SandboxState::Paused,
            reasons.paused,
            "The sandbox is frozen.".into(),
        ),
        Phase::Restarting => (
            SandboxState::Running,
            reasons.restarting,
            "The container is restarting.".into(),
        ),
        Phase::Created => (
            SandboxState::Pending,
            reasons.starting,
            "The container is starting.".into(),
        ),
        Phase::Exited(_) if facts.failed_hooks.is_some() => {
            let why = facts.failed_hooks.as_deref().unwrap_or_default();
            let message = format!("The sandbox ended before its entry point started: {why}.");
            (SandboxState::Failed, "LIFECYCLE_HOOK_FAILED", message)
        }
        Phase::Exited(0) => (SandboxState::Terminated, reasons.exited, ended(facts, 0)),
        Phase::Exited(code) => (
            SandboxState::Failed,
            reasons.exited_error,
            ended(facts, code),
        ),
        Phase::Unknown => {
            let message = "The runtime reports a state that is not known.".into();
            (SandboxState::Unknown, reasons.unknown, message)
        }
    }
}

/// A sandbox whose main container runs without another one that it must not run without.
fn lost(role: Role) -> (SandboxState, &'static str, String) {
    let reason = match role {
        Role::Main => "MAIN_LOST",
        Role::Egress => "EGRESS_LOST",
    };
    let message = format!("The {role} container ended, and the sandbox must not run without it.");
    (SandboxState::Failed, reason, message)
}

/// What is known about the end of the entry point, if it ended, also of a sandbox that is being
/// deleted.
pub(super) fn end_of_entry_point(facts: &Facts) -> Option<String> {
    match facts.phase? {
        (Phase::Exited(code), _) => Some(ended(facts, code)),
        _ => None,
    }
}

/// What is known about the end of an entry point.
fn ended(facts: &Facts, code: i64) -> String {
    let cause = Cause::of_exit(code, facts.out_of_memory);
    let why = match cause {
        Some(Cause::EntrypointNotFound) => ": the command was not found in the image",
        Some(Cause::EntrypointNotExecutable) => ": the command cannot be executed",
        Some(Cause::OutOfMemory) => " because its memory limit was reached",
        Some(Cause::Killed) => ": it was killed",
        Some(Cause::Terminated) => ": it was terminated by SIGTERM",
        _ => "",
    };
    let text = format!("The entry point ended with exit code {code}{why}.");
    match cause {
        Some(cause) => format!("{text} {}", cause.fix()),
        None => explain(text, ended_at_once(facts).then_some(Cause::EntrypointEnded)),
    }
}

fn ended_at_once(facts: &Facts) -> bool {
    let started = facts.stages.iter().find(|it| it.stage == Stage::Network);
    let ended = facts.phase.map(|(_, ended)| ended);
    match (started, ended) {
        (Some(started), Some(ended)) => ended.unix_ms() - started.at.unix_ms() < AT_ONCE_MS,
        _ => false,
    }
}

fn pending(facts: &Facts) -> String {
    let stage = facts
        .stages
        .last()
        .map_or(Stage::Accepted, |reached| reached.stage);
    let doing = match stage {
        Stage::Accepted => "The image is being provided",
        Stage::Image => "The container is being made",
        Stage::Created => "The container is being started",
        Stage::Network | Stage::Execd | Stage::Ready => "execd is starting",
    };
    match &facts.note {
        Some(note) => format!("{doing}: {note}."),
        None => format!("{doing}."),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use osb_protocol::WireTime;
    use osb_runtime::{CreateSpec, Origin, Source, Vocabulary};

    use super::*;

    pub(crate) fn facts() -> Facts {
        let source = Source::Image("debian:12".into());
        Facts::accepted(&CreateSpec::new(Origin {
            entrypoint: vec!["sleep".into(), "1".into()],
            ..Origin::new("a", source, at(10))
        }))
    }

    pub(crate) fn at(seconds: i64) -> WireTime {
        WireTime::from_unix_us(seconds * 1_000_000).unwrap()
    }

    fn status(facts: &Facts) -> SandboxStatus {
        super::status(facts, &Vocabulary::CONTAINERS.reasons)
    }

    fn seen(facts: &Facts) -> (String, String) {
        let status = status(facts);
        (status.state.to_string(), status.reason.unwrap())
    }

    #[test]
    fn phases_become_the_contracts_states() {
        for (phase, state, reason) in [
            (Phase::Created, "Pending", "CONTAINER_STARTING"),
            (Phase::Running, "Running", "CONTAINER_RUNNING"),
            (Phase::Paused, "Paused", "CONTAINER_PAUSED"),
            (Phase::Restarting, "Running", "CONTAINER_RESTARTING"),
            (Phase::Exited(0), "Terminated", "CONTAINER_EXITED"),
            (Phase::Exited(3), "Failed", "CONTAINER_EXITED_ERROR"),
            (Phase::Unknown, "Unknown", "CONTAINER_STATE_UNKNOWN"),
        ] {
            let mut facts = facts();
            facts.phase = Some((phase, at(20)));
            assert_eq!(seen(&facts), (state.into(), reason.into()));
            assert_eq!(status(&facts).last_transition_at, Some(at(20)));
        }
    }

    #[test]
    fn pending_says_what_is_going_on() {
        let mut facts = facts();
        assert_eq!(
            seen(&facts),
            ("Pending".into(), "CONTAINER_STARTING".into())
        );
        facts.note = Some("Downloading 3f0c".into());
        let message = status(&facts).message.unwrap();
        assert_eq!(message, "The image is being provided: Downloading 3f0c.");
        facts.reached(Stage::Image, at(11));
        assert_eq!(
            status(&facts).message.unwrap(),
            "The container is being made."
        );
        assert_eq!(status(&facts).last_transition_at, Some(at(11)));
    }

    #[test]
    fn deletion_wins_and_a_failed_one_gives_the_reason() {
        let mut facts = facts();
        facts.phase = Some((Phase::Running, at(20)));
        facts.changes.deleted_at = Some(at(30));
        assert_eq!(seen(&facts), ("Stopping".into(), "DELETING".into()));
        facts.removal_error = Some("device busy".into());
        assert_eq!(seen(&facts), ("Failed".into(), "REMOVAL_FAILED".into()));
        assert!(status(&facts).message.unwrap().contains("device busy"));
    }

    #[test]
    fn a_sandbox_that_lost_its_sidecar_has_failed() {
        let mut facts = facts();
        facts.phase = Some((Phase::Running, at(20)));
        facts.mark_lost(Role::Egress, at(19));
        assert_eq!(seen(&facts).0, "Running", "an end of an earlier group");
        facts.mark_lost(Role::Egress, at(21));
        assert_eq!(seen(&facts), ("Failed".into(), "EGRESS_LOST".into()));
        facts.end(0, at(22));
        assert_eq!(
            seen(&facts),
            ("Terminated".into(), "CONTAINER_EXITED".into())
        );
    }

    #[test]
    fn a_failed_hook_is_not_the_entry_points_failure() {
        let mut facts = facts();
        facts.set_phase(Phase::Exited(127), at(20));
        facts.failed_hooks = Some("the preStart hook failed: exit status 127".into());
        let (state, reason) = seen(&facts);
        assert_eq!(
            (state.as_str(), reason.as_str()),
            ("Failed", "LIFECYCLE_HOOK_FAILED")
        );
        let message = status(&facts).message.unwrap();
        assert!(
            message.contains("before its entry point started"),
            "{message}"
        );
        facts.set_phase(Phase::Running, at(21));
        assert_eq!(seen(&facts).0, "Running", "started again");
        facts.end(1, at(22));
        assert_eq!(seen(&facts).1, "CONTAINER_EXITED_ERROR", "another run");
    }

    #[test]
    fn only_a_killed_entry_point_lacked_memory() {
        let mut facts = facts();
        facts.out_of_memory = true;
        let mut message = |code| {
            facts.phase = Some((Phase::Exited(code), at(20)));
            status(&facts).message.unwrap()
        };
        assert!(message(137).contains("137 because its memory limit was reached. Raise"));
        // A command's child may have been killed long before.
        assert!(message(1).ends_with("exit code 1."));
        assert!(message(127).contains("not found in the image. Check `entrypoint`"));
        assert!(message(143).contains("143: it was terminated by SIGTERM."));
    }

    #[test]
    fn an_entry_point_that_ends_at_once_gets_advice() {
        let ended = |seconds| {
            let mut facts = facts();
            facts.reached(Stage::Network, at(20));
            facts.set_phase(Phase::Exited(0), at(seconds));
            status(&facts).message.unwrap()
        };
        assert!(
            ended(21).ends_with(Cause::EntrypointEnded.fix()),
            "{}",
            ended(21)
        );
        assert_eq!(ended(60), "The entry point ended with exit code 0.");
    }

    #[test]
    fn a_silent_execd_shows_until_it_answers() {
        let mut facts = facts();
        facts.phase = Some((Phase::Running, at(20)));
        facts.execd_is_late = true;
        let message = status(&facts).message.unwrap();
        assert!(message.contains("execd does not answer"), "{message}");
        facts.reached(Stage::Execd, at(30));
        assert_eq!(status(&facts).message.unwrap(), "The sandbox is running.");
    }
}
