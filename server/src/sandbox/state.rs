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
use osb_runtime::{Phase, Reasons, Role, Stage};

use super::Facts;

/// Exit status of execd when the entry point does not exist, as shells have it.
const NOT_FOUND: i64 = 127;
/// Exit status of execd when the entry point cannot be executed.
const NOT_EXECUTABLE: i64 = 126;
/// Exit status after SIGKILL.
const KILLED: i64 = 137;
/// Exit status after SIGTERM.
const TERMINATED: i64 = 143;

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
        Phase::Running => (
            SandboxState::Running,
            reasons.running,
            "The sandbox is running.".into(),
        ),
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
        Phase::Exited(0) => {
            let message = "The entry point ended with exit code 0.".into();
            (SandboxState::Terminated, reasons.exited, message)
        }
        Phase::Exited(code) => {
            let message = format!(
                "The entry point ended with exit code {code}{}.",
                why(facts, code)
            );
            (SandboxState::Failed, reasons.exited_error, message)
        }
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

fn why(facts: &Facts, code: i64) -> &'static str {
    match code {
        NOT_FOUND => ": the command was not found in the image",
        NOT_EXECUTABLE => ": the command cannot be executed",
        // The engine reports any process that ran out of memory; only a killed entry point says that
        // it was this one.
        KILLED if facts.out_of_memory => " because its memory limit was reached",
        KILLED => ": it was killed",
        TERMINATED => ": it was terminated by SIGTERM",
        _ => "",
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
        assert!(message(137).ends_with("137 because its memory limit was reached."));
        // A command's child may have been killed long before.
        assert!(message(1).ends_with("exit code 1."));
        assert!(message(127).ends_with("not found in the image."));
        assert!(message(143).ends_with("143: it was terminated by SIGTERM."));
    }
}
