//! What is known about a sandbox, and what clients are told.
//!
//! [`Facts`] are what the request, the runtime and the store say. A [`Record`] is derived from them
//! and never changed: each change makes a new one, serialised once, however often it is read.

use std::collections::BTreeMap;

use bytes::Bytes;
use osb_protocol::{
    SandboxId, WireTime,
    lifecycle::{ImageRef, Platform, Sandbox},
};
use osb_runtime::{Address, CreateSpec, Expiry, Observed, Phase, Stage};
use osb_store::Changes;
use secrecy::SecretString;

use super::state;

/// Everything that is known about one sandbox.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Its name.
    pub id: SandboxId,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Requested image.
    pub image: String,
    /// Snapshot it was made from.
    pub snapshot_id: Option<String>,
    /// Requested platform.
    pub platform: Option<Platform>,
    /// Command it lives as long as.
    pub entrypoint: Vec<String>,
    /// Limits as requested.
    pub resources: BTreeMap<String, String>,
    /// User labels as given at create.
    pub metadata: BTreeMap<String, String>,
    /// Extensions to echo.
    pub extensions: BTreeMap<String, String>,
    /// Expiry as given at create.
    pub expiry: Expiry,
    /// What the container does and since when; `None` until it runs for the first time.
    pub phase: Option<(Phase, WireTime)>,
    /// Whether the kernel killed something for want of memory since the container started.
    pub out_of_memory: bool,
    /// How to reach it.
    pub address: Address,
    /// Token of its execd.
    pub token: Option<SecretString>,
    /// What changed since create.
    pub changes: Changes,
    /// Why the last removal failed.
    pub removal_error: Option<String>,
    /// Stages of its create, in order.
    pub stages: Vec<StageAt>,
    /// What its create is doing just now.
    pub note: Option<String>,
}

/// When a stage was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageAt {
    /// The stage.
    pub stage: Stage,
    /// When.
    pub at: WireTime,
}

impl Facts {
    /// A sandbox that was accepted just now.
    #[must_use]
    pub fn accepted(spec: &CreateSpec) -> Self {
        let extensions = spec
            .extensions
            .iter()
            .map(|(suffix, value)| (format!("opensandbox.extensions.{suffix}"), value.clone()));
        Self {
            id: spec.id.clone(),
            created_at: spec.created_at,
            image: spec.image.clone(),
            snapshot_id: None,
            platform: spec.platform.clone(),
            entrypoint: spec.entrypoint.clone(),
            resources: spec.resources.clone(),
            metadata: spec.metadata.clone(),
            extensions: extensions.collect(),
            expiry: spec.expires_at.map_or(Expiry::Manual, Expiry::At),
            phase: None,
            out_of_memory: false,
            address: Address::default(),
            token: spec.token.clone(),
            changes: Changes::default(),
            removal_error: None,
            stages: vec![StageAt {
                stage: Stage::Accepted,
                at: spec.created_at,
            }],
            note: None,
        }
    }

    /// A sandbox that the runtime already had, with what the store knows of it.
    #[must_use]
    pub fn found(observed: Observed, changes: Changes) -> Self {
        Self {
            id: observed.id,
            created_at: observed.created_at,
            image: observed.image,
            snapshot_id: observed.snapshot_id,
            platform: observed.platform,
            entrypoint: observed.entrypoint,
            resources: observed.resources,
            metadata: observed.metadata,
            extensions: observed.extensions,
            expiry: observed.expiry,
            phase: Some((observed.phase, observed.since)),
            out_of_memory: observed.out_of_memory,
            address: observed.address,
            token: observed.token,
            changes,
            removal_error: None,
            stages: vec![StageAt {
                stage: Stage::Accepted,
                at: observed.created_at,
            }],
            note: None,
        }
    }

    /// Takes over what the runtime reports as of `at`. An end that is newer than the report stays:
    /// the end of a command may be told before its start is. A container that never ran is its
    /// create's business, which may have to make another one.
    pub fn observe(&mut self, observed: Observed, at: WireTime) {
        if observed.token.is_some() {
            self.token = observed.token;
        }
        let newer_end = matches!(self.phase, Some((Phase::Exited(_), ended)) if ended > at);
        let half_made = self.phase.is_none() && observed.phase == Phase::Created;
        if newer_end || half_made {
            return;
        }
        let ended = |phase| matches!(phase, Phase::Exited(_));
        let was_ended = self.phase.is_some_and(|(phase, _)| ended(phase));
        if was_ended && !ended(observed.phase) {
            self.out_of_memory = false;
        }
        // A list does not know that it ran out of memory.
        self.out_of_memory |= observed.out_of_memory;
        // A list does not know since when; what is known already is better.
        let unchanged = self.phase.filter(|(phase, _)| *phase == observed.phase);
        self.set_phase(
            observed.phase,
            unchanged.map_or(observed.since, |(_, since)| since),
        );
        self.address = observed.address;
    }

    /// The command ended. An end from before what is known was that of an earlier start.
    pub fn end(&mut self, code: i64, at: WireTime) {
        if self.phase.is_none_or(|(_, since)| since <= at) {
            self.set_phase(Phase::Exited(code), at);
        }
    }

    /// Whether the container that is known was there at `at`.
    #[must_use]
    pub fn had_container(&self, at: WireTime) -> bool {
        self.phase.is_some_and(|(_, since)| since <= at)
    }

    /// The container does something else now. Without a process it has no address: the engine gives
    /// it to the next one.
    pub fn set_phase(&mut self, phase: Phase, since: WireTime) {
        self.phase = Some((phase, since));
        if !matches!(phase, Phase::Running | Phase::Paused) {
            self.address.ip = None;
        }
    }

    /// When the sandbox shall be removed.
    #[must_use]
    pub fn expires_at(&self) -> Option<WireTime> {
        match self.expiry {
            Expiry::At(at) => Some(self.changes.expires_at.unwrap_or(at)),
            Expiry::Manual | Expiry::Unknown => None,
        }
    }

    /// User labels in force.
    #[must_use]
    pub fn metadata(&self) -> &BTreeMap<String, String> {
        self.changes.metadata.as_ref().unwrap_or(&self.metadata)
    }

    /// Whether it is being removed.
    #[must_use]
    pub fn is_deleted(&self) -> bool {
        self.changes.deleted_at.is_some()
    }

    /// Notes that a stage was reached, once. In a container whose command has ended nothing answers
    /// any more, whoever stopped to wait for it.
    pub fn reached(&mut self, stage: Stage, at: WireTime) {
        let ended = matches!(self.phase, Some((Phase::Exited(_), _)));
        if ended && stage >= Stage::Execd {
            return;
        }
        if self.stages.iter().all(|reached| reached.stage != stage) {
            self.stages.push(StageAt { stage, at });
            self.note = None;
        }
    }
}

/// One sandbox as it stands.
#[derive(Clone, Debug)]
pub struct Record {
    /// What clients are told.
    pub sandbox: Sandbox,
    /// The same as JSON.
    pub json: Bytes,
    /// What it is derived from.
    pub facts: Facts,
    /// Grows with every change of any sandbox.
    pub seq: u64,
}

impl Record {
    /// Derives what clients are told.
    #[must_use]
    pub fn derive(facts: Facts, seq: u64) -> Self {
        let from_snapshot = facts.snapshot_id.is_some();
        let sandbox = Sandbox {
            id: facts.id.clone(),
            image: (!from_snapshot).then(|| ImageRef {
                uri: facts.image.clone(),
            }),
            snapshot_id: facts.snapshot_id.clone(),
            platform: facts.platform.clone(),
            status: state::status(&facts),
            metadata: facts.metadata().clone(),
            extensions: facts.extensions.clone(),
            entrypoint: facts.entrypoint.clone(),
            expires_at: facts.expires_at(),
            created_at: facts.created_at,
        };
        let json = serde_json::to_vec(&sandbox).expect("maps have string keys, so this serialises");
        Self {
            sandbox,
            json: json.into(),
            facts,
            seq,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::state::tests::{at, facts};

    fn observed(phase: Phase, since: i64) -> Observed {
        Observed {
            id: "a".into(),
            phase,
            since: at(since),
            out_of_memory: false,
            created_at: at(10),
            image: String::new(),
            snapshot_id: None,
            entrypoint: Vec::new(),
            platform: None,
            metadata: BTreeMap::new(),
            extensions: BTreeMap::new(),
            resources: BTreeMap::new(),
            expiry: Expiry::Manual,
            address: Address::default(),
            token: None,
        }
    }

    #[test]
    fn an_end_that_is_told_before_the_start_stays_an_end() {
        let mut facts = facts();
        facts.end(1, at(21));
        facts.observe(observed(Phase::Running, 20), at(20));
        assert_eq!(facts.phase, Some((Phase::Exited(1), at(21))));
        facts.observe(observed(Phase::Running, 22), at(22));
        let restarted = Some((Phase::Running, at(22)));
        assert_eq!(facts.phase, restarted);
        facts.end(1, at(21));
        assert_eq!(facts.phase, restarted, "an earlier end, told late");
    }

    #[test]
    fn what_was_there_before_the_container_is_not_the_container() {
        let mut facts = facts();
        facts.observe(observed(Phase::Created, 19), at(30));
        assert_eq!(facts.phase, None, "its create may make another one");
        assert!(!facts.had_container(at(30)));
        facts.observe(observed(Phase::Running, 20), at(20));
        assert!(!facts.had_container(at(19)) && facts.had_container(at(20)));
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
        let killed = Observed {
            out_of_memory: true,
            ..observed(Phase::Exited(137), 21)
        };
        let mut facts = Facts::found(killed.clone(), Changes::default());
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
        assert!(facts.out_of_memory, "it was not told, but seen");
    }
}
