//! The optional powers of the simulated back end.

use std::{collections::HashMap, time::Duration};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use osb_protocol::{SandboxId, WireTime};
use secrecy::SecretString;
use tokio::sync::mpsc;

use super::{Faults, KIND, SimRuntime, State, now};
use crate::{
    Capacity, Claim, ClaimMark, Copying, Diagnostics, DiskSpace, HostCapacity, Images, Inspection,
    LocalImage, LogFollow, LogLine, LogLines, LogQuery, LogStream, LogText, Metering, Pausing,
    Phase, Pools, RequestEnvironment, Role, RuntimeError, RuntimeEvent, UnusedImage, Usage,
    WaitingSandbox,
};

impl State {
    /// Removes a sandbox. Returns whether it existed.
    pub(super) fn remove(&mut self, id: &SandboxId) -> bool {
        self.specs.remove(id);
        self.release_volumes(id);
        self.readers.retain(|(of, _)| of != id);
        self.claims.remove(id);
        self.sandboxes.remove(id).is_some()
    }
}

impl SimRuntime {
    /// Sets how many bytes the writable layer of a sandbox takes.
    pub fn set_layer_size(&self, id: &SandboxId, bytes: u64) {
        self.locked().layer_sizes.insert(id.clone(), bytes);
    }

    /// Sets the images on the host. A create needs none of them.
    pub fn set_images(&self, images: impl IntoIterator<Item = LocalImage>) {
        let mut images: Vec<_> = images.into_iter().collect();
        images.sort();
        self.locked().images = images;
    }

    /// Sets how many sandboxes another server has on the same engine.
    pub fn set_foreign(&self, sandboxes: usize) {
        self.locked().foreign = sandboxes;
    }

    /// Freezes or thaws every container of a sandbox. After a failure, none has changed.
    async fn set_frozen(&self, id: &SandboxId, freeze: bool) -> Result<WireTime, RuntimeError> {
        let faults = self.available()?;
        if let Some(gate) = &faults.pause_gate {
            gate.notified().await;
        }
        self.available()?;
        let at = now();
        {
            let mut state = self.locked();
            let group = state.sandboxes.get_mut(id);
            let group = group.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
            match (freeze, group.observed.status.phase) {
                (true, Phase::Running) | (false, Phase::Paused) => {}
                (true, _) => return Err(RuntimeError::NotRunning(id.clone())),
                (false, _) => return Err(RuntimeError::NotPaused(id.clone())),
            }
            let before = group.frozen.clone();
            // The network's owner thaws before the containers that use it, and freezes after them.
            let mut roles: Vec<Role> = group.alive.iter().copied().collect();
            if !freeze {
                roles.reverse();
            }
            for role in roles {
                if faults.pause_fails == Some(role) {
                    group.frozen = before;
                    let (id, reason) = (
                        id.clone(),
                        format!("its {role} container: it does not freeze"),
                    );
                    return Err(match freeze {
                        true => RuntimeError::Pause { id, reason },
                        false => RuntimeError::Resume { id, reason },
                    });
                }
                match freeze {
                    true => group.frozen.insert(role),
                    false => group.frozen.remove(&role),
                };
            }
            let phase = if freeze {
                Phase::Paused
            } else {
                Phase::Running
            };
            (group.observed.status.phase, group.observed.status.since) = (phase, at);
        }
        let (id, paused) = (id.clone(), freeze);
        self.emit(RuntimeEvent::Paused { id, paused, at }).await;
        if faults.pause_answer_lost {
            return Err(RuntimeError::Unavailable {
                runtime: KIND,
                reason: "the answer was lost".to_owned(),
            });
        }
        Ok(at)
    }

    /// Freezes or thaws a sandbox, as an operator would. An unavailable engine reports it in the next
    /// full list only.
    pub async fn freeze_by_operator(&self, id: &SandboxId, freeze: bool) {
        let at = now();
        if let Some(group) = self.locked().sandboxes.get_mut(id) {
            let phase = if freeze {
                Phase::Paused
            } else {
                Phase::Running
            };
            (group.observed.status.phase, group.observed.status.since) = (phase, at);
            group.frozen = match freeze {
                true => group.alive.clone(),
                false => Default::default(),
            };
        }
        if self.available().is_ok() {
            let (id, paused) = (id.clone(), freeze);
            self.emit(RuntimeEvent::Paused { id, paused, at }).await;
        }
    }

    /// Returns the roles of a sandbox whose containers are frozen.
    #[must_use]
    pub fn frozen(&self, id: &SandboxId) -> Vec<Role> {
        let state = self.locked();
        let group = state.sandboxes.get(id);
        group.map_or_else(Vec::new, |group| group.frozen.iter().copied().collect())
    }
}

#[async_trait]
impl Pausing for SimRuntime {
    async fn pause(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        self.set_frozen(id, true).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        self.set_frozen(id, false).await
    }
}

#[async_trait]
impl Capacity for SimRuntime {
    async fn read_capacity(&self) -> Result<HostCapacity, RuntimeError> {
        self.available()?;
        Ok(HostCapacity {
            name: "simulated host".to_owned(),
            engine: "simulation".to_owned(),
            processors: 8,
            memory_bytes: 16 << 30,
            available_bytes: Some(12 << 30),
            disk: Some(DiskSpace {
                total: 100 << 30,
                free: 60 << 30,
            }),
            clock_ms: None,
        })
    }
}

#[async_trait]
impl Copying for SimRuntime {
    async fn read_environment(&self, id: &SandboxId) -> Result<RequestEnvironment, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let spec = state.specs.get(id);
        let spec = spec.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        let variables = spec.env.iter().map(|(name, value)| {
            let value = value.clone().map(SecretString::from);
            (name.clone(), value)
        });
        Ok(RequestEnvironment {
            variables: variables.collect(),
            hooks: spec.lifecycle.clone().map(SecretString::from),
            network_policy: spec.network_policy.as_ref().map(|it| it.rules.clone()),
        })
    }
}

#[async_trait]
impl Images for SimRuntime {
    async fn list_images(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        self.available()?;
        Ok(self.locked().images.clone())
    }

    /// All images that no sandbox was created from can be pulled again.
    async fn list_unused(&self) -> Result<Vec<UnusedImage>, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let groups = state.sandboxes.values();
        let used: Vec<_> = groups
            .map(|it| it.observed.origin.source.to_string())
            .collect();
        let images = state.images.iter();
        let unused = images.filter(|image| !used.contains(&image.reference));
        let unused = unused.map(|image| UnusedImage {
            id: image.reference.clone(),
            names: vec![image.reference.clone()],
            bytes: image.bytes,
            named_at: None,
        });
        Ok(unused.collect())
    }

    fn full_name(&self, reference: &str) -> String {
        reference.to_owned()
    }

    async fn remove_unused(&self, image: &UnusedImage) -> Result<bool, RuntimeError> {
        self.available()?;
        let images = &mut self.locked().images;
        let before = images.len();
        images.retain(|it| it.reference != image.id);
        Ok(images.len() < before)
    }

    async fn prune_build_cache(&self, _unused_for: Duration) -> Result<u64, RuntimeError> {
        self.available()?;
        Ok(0)
    }
}

#[async_trait]
impl Diagnostics for SimRuntime {
    async fn read_log(&self, id: &SandboxId, query: LogQuery) -> Result<LogText, RuntimeError> {
        let Faults {
            output, log_fails, ..
        } = self.available()?;
        if let Some(reason) = log_fails {
            return Err(RuntimeError::Other {
                runtime: KIND,
                op: "read the log",
                reason,
            });
        }
        let state = self.locked();
        let group = state.sandboxes.get(id);
        let group = group.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        let at = group.observed.origin.created_at;
        let lines = output.iter();
        let text: String = lines.map(|line| format!("{at} {line}\n")).collect();
        let from = text.len().saturating_sub(query.bytes);
        Ok(LogText::of_output(
            &text.as_bytes()[from..],
            &query,
            from > 0,
        ))
    }

    async fn open_log(&self, id: &SandboxId, wanted: LogFollow) -> Result<LogLines, RuntimeError> {
        let query = LogQuery {
            lines: wanted.tail,
            since: wanted.since,
            bytes: usize::MAX,
        };
        let tail = self.read_log(id, query).await?;
        let tail: Vec<_> = tail.text.lines().map(|line| Ok(line_of(line))).collect();
        let tail = stream::iter(tail);
        if !wanted.follow {
            return Ok(tail.boxed());
        }
        let (sender, printed) = mpsc::unbounded_channel();
        self.locked().readers.push((id.clone(), sender));
        let printed = stream::unfold(printed, async |mut printed| {
            let line = printed.recv().await?;
            Some((Ok(line), printed))
        });
        Ok(tail.chain(printed).boxed())
    }

    async fn inspect(&self, id: &SandboxId) -> Result<Inspection, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let group = state.sandboxes.get(id);
        let group = group.ok_or_else(|| RuntimeError::NotFound(id.clone()))?;
        let (origin, status) = (&group.observed.origin, &group.observed.status);
        let exit_code = match status.phase {
            Phase::Exited(code) => Some(code),
            _ => None,
        };
        Ok(Inspection {
            container: format!("simulated-{id}"),
            name: id.to_string(),
            image: origin.source.to_string(),
            status: format!("{:?}", status.phase).to_lowercase(),
            is_running: matches!(status.phase, Phase::Running | Phase::Paused),
            is_paused: status.phase == Phase::Paused,
            out_of_memory: status.out_of_memory,
            exit_code,
            created: Some(origin.created_at),
            started: (status.phase != Phase::Created).then_some(origin.created_at),
            finished: exit_code.map(|_| status.since),
            labels: origin.metadata.clone(),
            oci_runtime: self
                .options
                .secure
                .map(|kind| kind.usual_runtime().to_owned()),
            ..Inspection::default()
        })
    }
}

impl SimRuntime {
    /// Writes a line to those who follow a sandbox's log.
    pub fn print(&self, id: &SandboxId, text: &str) {
        let line = LogLine {
            at: Some(now()),
            stream: LogStream::Output,
            text: text.to_owned(),
        };
        let state = self.locked();
        for (_, reader) in state.readers.iter().filter(|(of, _)| of == id) {
            // A reader that has just gone.
            let _ = reader.send(line.clone());
        }
    }

    /// How many follow a sandbox's log.
    #[must_use]
    pub fn log_readers(&self, id: &SandboxId) -> usize {
        let mut state = self.locked();
        state.readers.retain(|(_, reader)| !reader.is_closed());
        state.readers.iter().filter(|(of, _)| of == id).count()
    }
}

/// A line of the simulated log: a time and a text.
fn line_of(line: &str) -> LogLine {
    let (time, text) = line.split_once(' ').unwrap_or((line, ""));
    LogLine {
        at: WireTime::parse(time).ok(),
        stream: LogStream::Output,
        text: text.to_owned(),
    }
}

/// Every simulated sandbox uses a quarter of a core, 64 MiB and two processes, and receives 1,000
/// bytes each second.
#[async_trait]
impl Metering for SimRuntime {
    async fn read_usage(&self, ids: &[SandboxId]) -> Vec<Option<Usage>> {
        let (state, at) = (self.locked(), now());
        let usage = |id: &SandboxId| {
            let observed = &state.sandboxes.get(id)?.observed;
            let runs = matches!(observed.status.phase, Phase::Running | Phase::Paused);
            let lived = at.unix_us() - observed.origin.created_at.unix_us();
            let lived_us = u64::try_from(lived).unwrap_or_default();
            runs.then_some(Usage {
                cpu_ns: lived_us * 250,
                memory_bytes: 64 << 20,
                processes: 2,
                received_bytes: Some(lived_us / 1000),
                sent_bytes: Some(0),
                read_bytes: None,
                written_bytes: None,
            })
        };
        ids.iter().map(usage).collect()
    }

    async fn read_layer_sizes(&self) -> Result<HashMap<SandboxId, u64>, RuntimeError> {
        self.available()?;
        Ok(self.locked().layer_sizes.clone())
    }
}

/// A waiting sandbox remembers its claim until it is removed.
#[async_trait]
impl Pools for SimRuntime {
    async fn claim(&self, sandbox: WaitingSandbox<'_>, claim: &Claim) -> Result<(), RuntimeError> {
        let faults = self.available()?;
        if let Some(gate) = &faults.claim_gate {
            gate.notified().await;
        }
        let id = &sandbox.origin.id;
        let failed = |reason: &str| RuntimeError::Start {
            id: id.clone(),
            reason: reason.to_owned().into(),
        };
        if faults.claim_unanswered {
            return Err(RuntimeError::ExecdSilent {
                id: id.clone(),
                reason: "no answer within 10 s".to_owned(),
            });
        }
        if let Some(reason) = &faults.claim_fails {
            return Err(failed(reason));
        }
        let mut state = self.locked();
        let waits = state.specs.get(id).is_some_and(|spec| spec.waits);
        if !waits {
            return Err(failed("no sandbox of this id waits for a claim"));
        }
        match state.claims.get(id) {
            Some(known) if known.id != claim.id => Err(failed("it was claimed already")),
            _ => {
                state.claims.insert(id.clone(), claim.clone());
                Ok(())
            }
        }
    }

    async fn is_waiting(&self, sandbox: WaitingSandbox<'_>) -> Result<bool, RuntimeError> {
        let faults = self.available()?;
        let state = self.locked();
        let id = &sandbox.origin.id;
        let observed = state.sandboxes.get(id).map(|it| &it.observed);
        let runs = observed.is_some_and(|it| it.status.phase == Phase::Running);
        if faults.claim_unanswered || !runs {
            return Err(RuntimeError::ExecdSilent {
                id: id.clone(),
                reason: "no answer within 10 s".to_owned(),
            });
        }
        Ok(faults.claims_forgotten || !state.claims.contains_key(id))
    }

    async fn claim_mark(&self, id: &SandboxId) -> Result<ClaimMark, RuntimeError> {
        let faults = self.available()?;
        Ok(match self.locked().claims.contains_key(id) {
            _ if faults.claim_marks_unknown => ClaimMark::Unknown,
            true => ClaimMark::Present,
            false => ClaimMark::Absent,
        })
    }
}

impl SimRuntime {
    /// Returns the claim that a sandbox was given to.
    #[must_use]
    pub fn claim_of(&self, id: &SandboxId) -> Option<Claim> {
        self.locked().claims.get(id).cloned()
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::{Feature, WireTime};

    use super::*;
    use crate::{
        CreateSpec, Observed, Origin, Runtime, Source, Stage,
        sim::{Faults, Options},
    };

    fn sim() -> SimRuntime {
        SimRuntime::with_options(Options {
            powers: true,
            sidecar: true,
            ..Options::default()
        })
    }

    async fn create(sim: &SimRuntime, id: &str, source: Source) -> Result<Observed, RuntimeError> {
        let created_at = WireTime::from_unix_us(1).unwrap();
        let spec = CreateSpec::new(Origin::new(id, source, created_at));
        sim.create(spec, &|_: Stage| {}).await
    }

    fn image() -> Source {
        Source::Image("debian:12".into())
    }

    #[test]
    fn features_follow_from_powers() {
        let features = sim().features();
        for power in [
            Feature::Pause,
            Feature::Snapshots,
            Feature::Pools,
            Feature::Templates,
        ] {
            assert!(features.contains(power), "{power}");
        }
        assert_eq!(SimRuntime::new().features().iter().count(), 0);
    }

    #[tokio::test]
    async fn an_image_is_removed_once() {
        let sim = sim();
        sim.set_images([LocalImage {
            reference: "old:1".to_owned(),
            bytes: 1,
        }]);
        let images = sim.images().unwrap();
        let unused = images.list_unused().await.unwrap();
        assert!(images.remove_unused(&unused[0]).await.unwrap());
        let again = images.remove_unused(&unused[0]).await;
        assert!(!again.unwrap(), "another round has removed it");
    }

    #[tokio::test]
    async fn a_group_is_created_and_removed_as_one() {
        let (sim, id) = (sim(), "a".into());
        create(&sim, "a", image()).await.unwrap();
        assert_eq!(sim.roles(&id), [Role::Main, Role::Egress]);
        Runtime::remove(&sim, &id).await.unwrap();
        assert_eq!(sim.roles(&id), []);
    }

    #[tokio::test]
    async fn a_pause_freezes_the_whole_group_or_nothing() {
        let (sim, id) = (sim(), SandboxId::from("a"));
        create(&sim, "a", image()).await.unwrap();
        let pausing = sim.pausing().unwrap();
        pausing.pause(&id).await.unwrap();
        assert_eq!(sim.frozen(&id), [Role::Main, Role::Egress]);
        pausing.resume(&id).await.unwrap();
        assert_eq!(sim.frozen(&id), []);
        sim.set_faults(Faults {
            pause_fails: Some(Role::Egress),
            ..Faults::default()
        });
        pausing.pause(&id).await.unwrap_err();
        assert_eq!(sim.frozen(&id), [], "rolled back");
        pausing.pause(&"b".into()).await.unwrap_err();
    }

    #[tokio::test]
    async fn a_waiting_sandbox_is_claimed_once() {
        let sim = sim();
        let pools = sim.pools().unwrap();
        let mut spec = CreateSpec::new(Origin::new(
            "a",
            image(),
            WireTime::from_unix_us(1).unwrap(),
        ));
        spec.waits = true;
        let made = sim.create(spec, &|_: Stage| {}).await.unwrap();
        create(&sim, "b", image()).await.unwrap();
        let claim = |id: &str| Claim {
            id: id.to_owned(),
            entrypoint: vec!["sleep".to_owned()],
            env: [("A".to_owned(), None)].into(),
        };
        let waiting = WaitingSandbox {
            origin: &made.origin,
            execd: None,
        };
        assert!(pools.is_waiting(waiting).await.unwrap());
        pools.claim(waiting, &claim("c-1")).await.unwrap();
        pools.claim(waiting, &claim("c-1")).await.unwrap();
        pools.claim(waiting, &claim("c-2")).await.unwrap_err();
        assert!(!pools.is_waiting(waiting).await.unwrap());
        assert_eq!(sim.claim_of(&"a".into()), Some(claim("c-1")));
        let other = Origin::new("b", image(), made.origin.created_at);
        let running = WaitingSandbox {
            origin: &other,
            execd: None,
        };
        pools.claim(running, &claim("c-1")).await.unwrap_err();
    }
}
