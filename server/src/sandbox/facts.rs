//! What the server knows about a sandbox: what the request, the runtime and the store say.

use std::{collections::BTreeMap, sync::Arc};

use osb_protocol::WireTime;
use osb_runtime::{
    Address, Amendment, CreateSpec, Expiry, KeptBy, Observed, Origin, Phase, Role, Stage, Status,
};
use osb_store::Changes;

/// Everything that is known about one sandbox.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What it was created with.
    pub origin: Arc<Origin>,
    /// What the container does and since when; `None` until it runs for the first time.
    pub phase: Option<(Phase, WireTime)>,
    /// Whether the kernel killed a process because the memory limit was reached since the container started.
    pub out_of_memory: bool,
    /// Why it ended before its entry point started, as far as its execd wrote it.
    pub failed_hooks: Option<Arc<str>>,
    /// The last line of its output, if it was read since it ended; empty if there was none.
    pub last_output: Option<Arc<str>>,
    /// How to reach it.
    pub address: Address,
    /// What changed since create, as far as our store keeps it.
    pub changes: Changes,
    /// What changed since create and is kept by the runtime.
    pub amendment: Amendment,
    /// A container without which the sandbox must not run, and which is gone.
    pub lost: Option<Role>,
    /// Why the last removal failed.
    pub removal_error: Option<String>,
    /// Stages of its create, in order.
    pub stages: Vec<StageAt>,
    /// What its create is doing just now.
    pub note: Option<String>,
    /// Whether its create was answered before execd answered, which it has not done since.
    pub execd_is_late: bool,
    /// Whether its create does not go on: clients may use it, if it runs.
    pub create_is_over: bool,
}

/// When a stage was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageAt {
    /// The stage.
    pub stage: Stage,
    /// When.
    pub at: WireTime,
}

/// Longest delay of a report, in microseconds: a list takes up to 30 s, and events are held back
/// meanwhile. A report that seems to be older was made after the clock had been set back.
const REPORT_DELAY_US: i64 = 120 * 1_000_000;

/// Whether the clock was set back between what is known `since` and a report as of `at`.
fn was_set_back(at: WireTime, since: WireTime) -> bool {
    since.unix_us().saturating_sub(at.unix_us()) > REPORT_DELAY_US
}

/// Whether a report as of `at` is older than what is known `since`.
fn is_older(at: WireTime, since: WireTime) -> bool {
    at < since && !was_set_back(at, since)
}

impl Facts {
    /// A sandbox whose create was accepted just now.
    #[must_use]
    pub fn accepted(spec: &CreateSpec) -> Self {
        Self::new(spec.origin.clone())
    }

    /// A sandbox that the runtime already had, with what the store knows of it.
    #[must_use]
    pub fn found(observed: Observed, changes: Changes) -> Self {
        let Observed { origin, mut status } = observed;
        forget_lost_address(&mut status);
        Self {
            phase: Some((status.phase, status.since)),
            out_of_memory: status.out_of_memory,
            address: status.address,
            amendment: status.amendment,
            lost: status.lost,
            changes,
            create_is_over: true,
            ..Self::new(origin)
        }
    }

    fn new(origin: Origin) -> Self {
        Self {
            stages: vec![StageAt {
                stage: Stage::Accepted,
                at: origin.created_at,
            }],
            origin: Arc::new(origin),
            phase: None,
            out_of_memory: false,
            failed_hooks: None,
            last_output: None,
            address: Address::default(),
            changes: Changes::default(),
            amendment: Amendment::default(),
            lost: None,
            removal_error: None,
            note: None,
            execd_is_late: false,
            create_is_over: false,
        }
    }

    /// Takes over what the runtime reports as of `at`, and returns whether that is news. An end that
    /// is newer than the report stays, because events may arrive out of order. A container that has
    /// not run belongs to a create, which may replace it, and may have started it since the report.
    pub fn observe(&mut self, mut observed: Status, at: WireTime) -> bool {
        forget_lost_address(&mut observed);
        let newer_end =
            matches!(self.phase, Some((Phase::Exited(_), ended)) if is_older(at, ended));
        let half_made = observed.phase == Phase::Created
            && self.phase.is_none_or(|(_, since)| is_older(at, since));
        if newer_end || half_made {
            return false;
        }
        let ended = |phase| matches!(phase, Phase::Exited(_));
        let was_ended = self.phase.is_some_and(|(phase, _)| ended(phase));
        let is_restarted = was_ended && !ended(observed.phase);
        // A list does not know that it ran out of memory.
        let out_of_memory = observed.out_of_memory || (self.out_of_memory && !is_restarted);
        let (phase, since) = self.phase_of(&observed, at);
        let is_set_back = self
            .phase
            .is_some_and(|(_, known)| was_set_back(since, known));
        let is_news = is_set_back
            || self.phase.is_none_or(|(known, _)| known != phase)
            || self.out_of_memory != out_of_memory
            || self.address != observed.address
            || self.amendment != observed.amendment
            || self.lost != observed.lost;
        self.set_phase(phase, since);
        self.out_of_memory = out_of_memory;
        self.address = observed.address;
        self.amendment = observed.amendment;
        self.lost = observed.lost;
        is_news
    }

    /// What a report as of `at` says of the phase and its beginning.
    fn phase_of(&self, observed: &Status, at: WireTime) -> (Phase, WireTime) {
        let reported = (observed.phase, observed.since);
        match self.phase {
            // By a clock that was set back since, it would begin in the future.
            Some((phase, since)) if phase == observed.phase && was_set_back(at, since) => {
                (phase, observed.since.min(at))
            }
            // A list does not know since when; what is known already is better.
            Some((phase, since)) if phase == observed.phase => (phase, since),
            Some((phase, since)) if is_freeze(phase, observed.phase) => match is_older(at, since) {
                // Begun before the last pause or resume, a list may show the state before it.
                true => (phase, since),
                // Engines know when a container was started, not when it was frozen.
                false => (observed.phase, at),
            },
            _ => reported,
        }
    }

    /// The sandbox was frozen or thawed at `at`. Reports of what is known already, of a change before
    /// it, and of a container that has ended since, change nothing.
    pub fn freeze(&mut self, frozen: bool, at: WireTime) {
        let phase = match frozen {
            true => Phase::Paused,
            false => Phase::Running,
        };
        if let Some((known, since)) = self.phase
            && is_freeze(known, phase)
            && !is_older(at, since)
        {
            self.set_phase(phase, at);
        }
    }

    /// The server has frozen or thawed the sandbox, at `at` by its estimate of the engine's clock. What
    /// is known by then came before, also if that estimate was ahead and has been corrected since.
    pub fn frozen_here(&mut self, frozen: bool, at: WireTime) {
        let known = self.phase.map(|(_, since)| since);
        let ahead = known.filter(|since| is_older(at, *since));
        self.freeze(frozen, ahead.unwrap_or(at));
    }

    /// The command ended. An end from before what is known was that of an earlier start.
    pub fn end(&mut self, code: i64, at: WireTime) {
        if self.phase.is_none_or(|(_, since)| !is_older(at, since)) {
            self.set_phase(Phase::Exited(code), at);
        }
    }

    /// A container that the sandbox needs has ended, and with it the sandbox's network.
    pub fn mark_lost(&mut self, role: Role, at: WireTime) {
        if self.had_container(at) {
            self.lost = Some(role);
            self.address.ip = None;
        }
    }

    /// Whether the container that is known was there at `at`.
    #[must_use]
    pub fn had_container(&self, at: WireTime) -> bool {
        self.phase.is_some_and(|(_, since)| !is_older(at, since))
    }

    /// The container does something else now. Without a process it has no address: the engine gives
    /// it to the next one.
    pub fn set_phase(&mut self, phase: Phase, since: WireTime) {
        self.phase = Some((phase, since));
        if !matches!(phase, Phase::Running | Phase::Paused) {
            self.address.ip = None;
        }
        if !matches!(phase, Phase::Exited(_)) {
            self.failed_hooks = None;
            self.last_output = None;
        }
    }

    /// When the sandbox expires.
    #[must_use]
    pub fn expires_at(&self) -> Option<WireTime> {
        match self.origin.expiry {
            Expiry::At(at) => {
                let renewed = self.changes.expires_at.or(self.amendment.expires_at);
                Some(renewed.unwrap_or(at))
            }
            Expiry::Manual | Expiry::Unknown => None,
        }
    }

    /// User labels in force.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        let patched = self.changes.metadata.as_ref();
        let patched = patched.or(self.amendment.metadata.as_ref());
        patched.unwrap_or(&self.origin.metadata)
    }

    /// Takes over a change that was stored.
    pub fn amend(&mut self, change: Amendment, kept_by: KeptBy) {
        match kept_by {
            KeptBy::Runtime => self.amendment.merge(&change),
            KeptBy::Caller => {
                let Amendment {
                    expires_at,
                    metadata,
                } = change;
                self.changes.expires_at = expires_at.or(self.changes.expires_at);
                self.changes.metadata = metadata.or_else(|| self.changes.metadata.take());
            }
        }
    }

    /// Whether it is being removed.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.changes.deleted_at.is_some()
    }

    /// Records the first time that a stage was reached. Stages that need a running execd are ignored
    /// once the command has ended.
    pub fn reached(&mut self, stage: Stage, at: WireTime) {
        let ended = matches!(self.phase, Some((Phase::Exited(_), _)));
        if ended && stage >= Stage::Execd {
            return;
        }
        if self.stages.iter().all(|reached| reached.stage != stage) {
            self.stages.push(StageAt { stage, at });
            self.note = None;
            self.execd_is_late &= stage < Stage::Execd;
        }
    }
}

/// A sandbox without its network has no address: the engine gives it to the next one.
fn forget_lost_address(status: &mut Status) {
    if status.lost.is_some() {
        status.address.ip = None;
    }
}

/// Whether only a pause or a resume lies between two phases.
fn is_freeze(one: Phase, other: Phase) -> bool {
    matches!(
        (one, other),
        (Phase::Running, Phase::Paused) | (Phase::Paused, Phase::Running)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    fn observed(phase: Phase, since: i64) -> Status {
        Status::new(phase, at(since))
    }

    #[test]
    fn an_end_that_is_reported_before_the_start_stays_an_end() {
        let mut facts = facts();
        facts.end(1, at(21));
        facts.observe(observed(Phase::Running, 20), at(20));
        assert_eq!(facts.phase, Some((Phase::Exited(1), at(21))));
        facts.observe(observed(Phase::Running, 22), at(22));
        let restarted = Some((Phase::Running, at(22)));
        assert_eq!(facts.phase, restarted);
        facts.end(1, at(21));
        assert_eq!(facts.phase, restarted, "an earlier end, reported late");
    }

    #[test]
    fn a_pause_begins_when_the_sandbox_is_frozen() {
        let mut facts = facts();
        facts.observe(observed(Phase::Running, 20), at(20));
        facts.freeze(true, at(30));
        let paused = Some((Phase::Paused, at(30)));
        assert_eq!(facts.phase, paused);
        facts.freeze(true, at(31));
        assert_eq!(facts.phase, paused, "its own event, reported later");
        facts.freeze(false, at(29));
        assert_eq!(facts.phase, paused, "an earlier resume, reported late");
        facts.observe(observed(Phase::Running, 20), at(29));
        assert_eq!(facts.phase, paused, "a list from before the pause");
        facts.observe(observed(Phase::Paused, 20), at(35));
        assert_eq!(facts.phase, paused, "a list that has the start");
        facts.observe(observed(Phase::Running, 20), at(40));
        let resumed = Some((Phase::Running, at(40)));
        assert_eq!(facts.phase, resumed, "thawed while events were lost");
        facts.observe(observed(Phase::Paused, 20), at(50));
        assert_eq!(facts.phase, Some((Phase::Paused, at(50))));
        facts.end(137, at(60));
        facts.freeze(false, at(61));
        assert_eq!(facts.phase, Some((Phase::Exited(137), at(60))));
    }

    #[test]
    fn a_pause_by_the_server_counts_though_its_clock_was_ahead_before() {
        let mut facts = facts();
        facts.observe(observed(Phase::Running, 20), at(20));
        facts.frozen_here(true, at(30));
        facts.frozen_here(false, at(29));
        assert_eq!(facts.phase, Some((Phase::Running, at(30))));
        // The engine's own report of the pause, in its time, is no news.
        facts.freeze(true, at(28));
        assert_eq!(facts.phase, Some((Phase::Running, at(30))));
        facts.end(137, at(31));
        facts.frozen_here(true, at(32));
        assert_eq!(facts.phase, Some((Phase::Exited(137), at(31))));
    }

    #[test]
    fn reports_count_after_the_clock_was_set_back() {
        const HOUR: i64 = 3600;
        let running = || {
            let mut facts = facts();
            facts.observe(observed(Phase::Running, 2 * HOUR), at(2 * HOUR));
            facts
        };
        let back = HOUR + 30;
        let mut paused = running();
        paused.freeze(true, at(back));
        assert_eq!(paused.phase, Some((Phase::Paused, at(back))));
        let mut listed = running();
        assert!(listed.observe(observed(Phase::Paused, 2 * HOUR), at(back)));
        assert_eq!(listed.phase, Some((Phase::Paused, at(back))));
        let mut ended = running();
        ended.end(1, at(back));
        assert_eq!(ended.phase, Some((Phase::Exited(1), at(back))));
        assert!(running().had_container(at(back)));
        // What stays as it is does not begin in the future, and that is news once.
        let mut same = running();
        assert!(same.observe(observed(Phase::Running, 2 * HOUR), at(back)));
        assert_eq!(same.phase, Some((Phase::Running, at(back))));
        assert!(!same.observe(observed(Phase::Running, 2 * HOUR), at(back + 60)));
        // A report that is merely late does not.
        let mut late = running();
        late.freeze(true, at(2 * HOUR - 30));
        assert_eq!(late.phase, Some((Phase::Running, at(2 * HOUR))));
    }

    #[test]
    fn what_was_there_before_the_container_is_not_the_container() {
        let mut facts = facts();
        facts.observe(observed(Phase::Created, 19), at(30));
        assert_eq!(facts.phase, None, "its create may make another one");
        assert!(!facts.had_container(at(30)));
        facts.observe(observed(Phase::Running, 20), at(20));
        assert!(!facts.had_container(at(19)) && facts.had_container(at(20)));
        facts.observe(observed(Phase::Created, 18), at(19));
        let started = Some((Phase::Running, at(20)));
        assert_eq!(facts.phase, started, "a list from before the start");
    }

    #[test]
    fn a_sandbox_without_its_network_has_no_address() {
        let address = Address {
            ip: Some("172.20.0.2".parse().unwrap()),
            ..Address::default()
        };
        let running = Status {
            address,
            ..observed(Phase::Running, 20)
        };
        let lost = Status {
            lost: Some(Role::Egress),
            ..running.clone()
        };
        let mut facts = facts();
        facts.observe(running.clone(), at(20));
        assert!(facts.address.ip.is_some());
        facts.mark_lost(Role::Egress, at(21));
        assert_eq!(facts.address.ip, None);
        assert!(!facts.observe(lost.clone(), at(22)), "no news");
        assert_eq!(facts.address.ip, None);
        facts.observe(running, at(23));
        assert_eq!((facts.lost, facts.address.ip.is_some()), (None, true));
        let origin = Origin::clone(&facts.origin);
        let found = Facts::found(
            Observed {
                origin,
                status: lost,
            },
            Changes::default(),
        );
        assert_eq!(found.address.ip, None, "after a restart of the server");
    }

    #[test]
    fn what_has_ended_is_not_ready() {
        let mut facts = facts();
        facts.end(1, at(21));
        for stage in Stage::ALL {
            facts.reached(stage, at(22));
        }
        let last = facts.stages.last().map(|reached| reached.stage);
        assert_eq!(last, Some(Stage::Network));
    }

    #[test]
    fn a_lack_of_memory_belongs_to_one_run() {
        let killed = Status {
            out_of_memory: true,
            ..observed(Phase::Exited(137), 21)
        };
        let mut facts = Facts::found(
            Observed {
                origin: Origin::clone(&facts().origin),
                status: killed.clone(),
            },
            Changes::default(),
        );
        assert!(facts.out_of_memory, "it outlives the server");
        facts.observe(observed(Phase::Exited(137), 21), at(22));
        assert!(facts.out_of_memory, "a list does not know");
        facts.observe(observed(Phase::Running, 23), at(23));
        assert!(!facts.out_of_memory, "started again");
        facts.out_of_memory = true;
        facts.observe(observed(Phase::Running, 23), at(24));
        assert!(facts.out_of_memory, "the same run, seen again");
        facts.out_of_memory = false;
        facts.observe(killed, at(25));
        assert!(facts.out_of_memory, "seen without an event");
    }
}
