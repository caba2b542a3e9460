//! The optional powers of the simulated back end.

use std::collections::HashMap;

use async_trait::async_trait;
use futures::{StreamExt, stream};
use osb_protocol::{SandboxId, WireTime};
use secrecy::SecretString;
use tokio::sync::mpsc;

use super::{Faults, KIND, SimRuntime, State, now};
use crate::{
    Capacity, Copying, Diagnostics, DiskSpace, HostCapacity, Images, Inspection, LocalImage,
    LogFollow, LogLine, LogLines, LogQuery, LogStream, LogText, Metering, Pausing, Phase, PoolSpec,
    PoolStatus, Pools, RequestEnvironment, Role, RuntimeError, RuntimeEvent, Snapshots, Source,
    Usage,
};

/// A pool. Its ready sandboxes are only counted.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    spec: PoolSpec,
    ready: u32,
}

impl State {
    /// Claims a sandbox of a pool.
    pub(super) fn claim(&mut self, name: &str) -> Result<(), RuntimeError> {
        let pool = self.pools.get_mut(name);
        let pool = pool.ok_or_else(|| RuntimeError::NoPool(name.to_owned()))?;
        if pool.ready == 0 {
            return Err(RuntimeError::PoolEmpty(name.to_owned()));
        }
        pool.ready -= 1;
        Ok(())
    }

    /// Removes a sandbox, whose pool then provides another. Returns whether it existed.
    pub(super) fn remove(&mut self, id: &SandboxId) -> bool {
        self.specs.remove(id);
        self.readers.retain(|(of, _)| of != id);
        let Some(group) = self.sandboxes.remove(id) else {
            return false;
        };
        if let Source::Pool(name) = &group.observed.origin.source
            && let Some(pool) = self.pools.get_mut(name)
        {
            pool.ready = (pool.ready + 1).min(pool.spec.warm);
        }
        true
    }

    fn claimed(&self, name: &str) -> u32 {
        let of_pool = |source: &Source| matches!(source, Source::Pool(pool) if pool == name);
        let claimed = self
            .sandboxes
            .values()
            .filter(|group| of_pool(&group.observed.origin.source));
        u32::try_from(claimed.count()).unwrap_or(u32::MAX)
    }
}

impl SimRuntime {
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
        })
    }
}

#[async_trait]
impl Images for SimRuntime {
    async fn list_images(&self) -> Result<Vec<LocalImage>, RuntimeError> {
        self.available()?;
        Ok(self.locked().images.clone())
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

#[async_trait]
impl Snapshots for SimRuntime {
    async fn take(&self, sandbox: &SandboxId, snapshot: &str) -> Result<(), RuntimeError> {
        self.available()?;
        let mut state = self.locked();
        if !state.sandboxes.contains_key(sandbox) {
            return Err(RuntimeError::NotFound(sandbox.clone()));
        }
        state.snapshots.insert(snapshot.to_owned(), sandbox.clone());
        Ok(())
    }

    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError> {
        self.available()?;
        self.locked().snapshots.remove(snapshot);
        Ok(())
    }
}

#[async_trait]
impl Pools for SimRuntime {
    async fn apply(&self, pool: PoolSpec) -> Result<(), RuntimeError> {
        self.available()?;
        let name = pool.name.clone();
        let pool = Pool {
            ready: pool.warm,
            spec: pool,
        };
        self.locked().pools.insert(name, pool);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<PoolStatus>, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let status = |(name, pool): (&String, &Pool)| PoolStatus {
            spec: pool.spec.clone(),
            ready: pool.ready,
            claimed: state.claimed(name),
        };
        Ok(state.pools.iter().map(status).collect())
    }

    async fn remove(&self, name: &str) -> Result<(), RuntimeError> {
        self.available()?;
        self.locked().pools.remove(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::{Feature, WireTime};

    use super::*;
    use crate::{
        CreateSpec, Observed, Origin, Runtime, Stage,
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
        for power in [Feature::Pause, Feature::Snapshots, Feature::Pools] {
            assert!(features.contains(power), "{power}");
        }
        assert_eq!(SimRuntime::new().features().iter().count(), 0);
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
    async fn a_snapshot_is_a_source_until_it_is_removed() {
        let sim = sim();
        create(&sim, "a", image()).await.unwrap();
        let snapshots = sim.snapshots().unwrap();
        snapshots.take(&"a".into(), "s").await.unwrap();
        let source = Source::Snapshot("s".into());
        let copy = create(&sim, "b", source.clone()).await.unwrap();
        assert_eq!(copy.origin.source, source);
        snapshots.remove("s").await.unwrap();
        let gone = create(&sim, "c", source).await.unwrap_err();
        assert!(matches!(gone, RuntimeError::NoSnapshot(_)), "{gone}");
        let missing = snapshots.take(&"x".into(), "t").await.unwrap_err();
        assert!(matches!(missing, RuntimeError::NotFound(_)), "{missing}");
    }

    #[tokio::test]
    async fn a_claim_takes_a_ready_sandbox() {
        let sim = sim();
        let pools = sim.pools().unwrap();
        let source = Source::Pool("p".into());
        let none = create(&sim, "a", source.clone()).await.unwrap_err();
        assert!(matches!(none, RuntimeError::NoPool(_)), "{none}");
        let spec = PoolSpec {
            name: "p".into(),
            source: image(),
            warm: 1,
        };
        pools.apply(spec.clone()).await.unwrap();
        create(&sim, "a", source.clone()).await.unwrap();
        let empty = create(&sim, "b", source.clone()).await.unwrap_err();
        assert!(matches!(empty, RuntimeError::PoolEmpty(_)), "{empty}");
        let status = PoolStatus {
            spec,
            ready: 0,
            claimed: 1,
        };
        assert_eq!(pools.list().await.unwrap(), [status]);
        Runtime::remove(&sim, &"a".into()).await.unwrap();
        create(&sim, "b", source).await.unwrap();
        pools.remove("p").await.unwrap();
        assert_eq!(pools.list().await.unwrap(), []);
    }
}
