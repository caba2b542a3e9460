//! Snapshots of the simulated back end.

use std::time::Duration;

use async_trait::async_trait;
use osb_protocol::{SandboxId, WireTime};

use super::{Group, KIND, SimRuntime, now};
use crate::{Phase, RuntimeError, SecureKind, Snapshots, StoredSnapshot};

/// Size of every snapshot.
const SNAPSHOT_BYTES: u64 = 1_000;

#[async_trait]
impl Snapshots for SimRuntime {
    async fn check(&self, sandbox: &SandboxId) -> Result<(), RuntimeError> {
        self.available()?;
        if !self.locked().sandboxes.contains_key(sandbox) {
            return Err(RuntimeError::NotFound(sandbox.clone()));
        }
        match self.options.secure {
            Some(secure @ SecureKind::Gvisor) => Err(RuntimeError::Uncapturable {
                id: sandbox.clone(),
                secure,
            }),
            Some(SecureKind::Kata) | None => Ok(()),
        }
    }

    async fn take(
        &self,
        sandbox: &SandboxId,
        snapshot: &str,
    ) -> Result<StoredSnapshot, RuntimeError> {
        let faults = self.available()?;
        self.check(sandbox).await?;
        let _capture = CaptureGuard::new(self);
        if let Some(gate) = &faults.capture_gate {
            gate.notified().await;
        }
        if faults.capture_times_out {
            return Err(RuntimeError::CaptureTimedOut {
                snapshot: snapshot.to_owned(),
                seconds: 180,
            });
        }
        let failed = |reason: String| RuntimeError::Capture {
            snapshot: snapshot.to_owned(),
            reason,
        };
        if let Some(reason) = faults.capture_fails {
            return Err(failed(reason));
        }
        self.available()?;
        let mut state = self.locked();
        let group = state.sandboxes.get(sandbox);
        let group = group.ok_or_else(|| RuntimeError::NotFound(sandbox.clone()))?;
        if group.observed.status.phase != Phase::Running {
            return Err(failed(format!("sandbox {sandbox} does not run")));
        }
        let kept = (sandbox.clone(), now());
        state.snapshots.insert(snapshot.to_owned(), kept);
        Ok(stored(snapshot))
    }

    async fn thawed(&self, _sandbox: &SandboxId) {
        let gate = self.locked().faults.thaw_gate.clone();
        if let Some(gate) = gate {
            gate.notified().await;
        }
    }

    async fn may_go_on(&self, sandbox: &SandboxId) -> Result<bool, RuntimeError> {
        self.available()?;
        let state = self.locked();
        let status = state.sandboxes.get(sandbox).map(|it| &it.observed.status);
        Ok(status.is_some_and(|status| status.phase == Phase::Paused))
    }

    async fn find(&self, snapshot: &str) -> Result<Option<StoredSnapshot>, RuntimeError> {
        self.available()?;
        let is_stored = self.locked().snapshots.contains_key(snapshot);
        Ok(is_stored.then(|| stored(snapshot)))
    }

    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError> {
        let faults = self.available()?;
        if let Some(reason) = faults.snapshot_remove_fails {
            return Err(RuntimeError::Other {
                runtime: KIND,
                op: "remove the snapshot",
                reason,
            });
        }
        let mut state = self.locked();
        let uses = |group: &Group| group.observed.origin.source.snapshot_id() == Some(snapshot);
        if let Some((user, _)) = state.sandboxes.iter().find(|(_, group)| uses(group)) {
            return Err(RuntimeError::SnapshotInUse {
                snapshot: snapshot.to_owned(),
                reason: format!("sandbox {user} was created from it"),
            });
        }
        state.snapshots.remove(snapshot);
        Ok(())
    }

    async fn list(&self) -> Result<Vec<(String, Duration)>, RuntimeError> {
        self.available()?;
        let seconds = |at: WireTime| (now().unix_ms() - at.unix_ms()) / 1000;
        let age = |at| Duration::from_secs(u64::try_from(seconds(at)).unwrap_or_default());
        let state = self.locked();
        let stored = state.snapshots.iter();
        Ok(stored.map(|(id, (_, at))| (id.clone(), age(*at))).collect())
    }
}

fn stored(snapshot: &str) -> StoredSnapshot {
    StoredSnapshot {
        image: format!("sim-snapshots:{snapshot}"),
        size_bytes: Some(SNAPSHOT_BYTES),
    }
}

/// A capture under way, until dropped.
struct CaptureGuard<'a>(&'a SimRuntime);

impl<'a> CaptureGuard<'a> {
    fn new(runtime: &'a SimRuntime) -> Self {
        let mut state = runtime.locked();
        state.capturing += 1;
        state.most_capturing = state.most_capturing.max(state.capturing);
        Self(runtime)
    }
}

impl Drop for CaptureGuard<'_> {
    fn drop(&mut self) {
        self.0.locked().capturing -= 1;
    }
}

impl SimRuntime {
    /// Returns the ids of the stored snapshots.
    #[must_use]
    pub fn stored_snapshots(&self) -> Vec<String> {
        self.locked().snapshots.keys().cloned().collect()
    }

    /// Stores a snapshot of a sandbox at a time, as an earlier server process, or another program would.
    pub fn put_snapshot(&self, snapshot: &str, at: WireTime) {
        let kept = (SandboxId::from("gone"), at);
        self.locked().snapshots.insert(snapshot.to_owned(), kept);
    }

    /// Removes a snapshot, as another client of the engine would.
    pub fn lose_snapshot(&self, snapshot: &str) {
        self.locked().snapshots.remove(snapshot);
    }

    /// Returns how many captures are under way, and the most that were at once.
    #[must_use]
    pub fn captures(&self) -> (usize, usize) {
        let state = self.locked();
        (state.capturing, state.most_capturing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CreateSpec, Observed, Origin, Runtime, Source, Stage,
        sim::{Faults, Options},
    };

    fn sim() -> SimRuntime {
        SimRuntime::with_options(Options {
            powers: true,
            ..Options::default()
        })
    }

    async fn create(sim: &SimRuntime, id: &str, source: Source) -> Result<Observed, RuntimeError> {
        let created_at = WireTime::from_unix_us(1).unwrap();
        let spec = CreateSpec::new(Origin::new(id, source, created_at));
        sim.create(spec, &|_: Stage| {}).await
    }

    #[tokio::test]
    async fn a_snapshot_is_a_source_until_it_is_removed() {
        let sim = sim();
        let image = Source::Image("debian:12".into());
        create(&sim, "a", image).await.unwrap();
        let snapshots = sim.snapshots().unwrap();
        let taken = snapshots.take(&"a".into(), "s").await.unwrap();
        assert_eq!(snapshots.find("s").await.unwrap(), Some(taken));
        let source = Source::Snapshot("s".into());
        let copy = create(&sim, "b", source.clone()).await.unwrap();
        assert_eq!(copy.origin.source, source);
        let used = snapshots.remove("s").await.unwrap_err();
        assert!(matches!(used, RuntimeError::SnapshotInUse { .. }), "{used}");
        Runtime::remove(&sim, &"b".into()).await.unwrap();
        snapshots.remove("s").await.unwrap();
        assert_eq!(snapshots.find("s").await.unwrap(), None);
        let gone = create(&sim, "c", source).await.unwrap_err();
        assert!(matches!(gone, RuntimeError::NoSnapshot(_)), "{gone}");
        let missing = snapshots.take(&"x".into(), "t").await.unwrap_err();
        assert!(matches!(missing, RuntimeError::NotFound(_)), "{missing}");
    }

    #[tokio::test]
    async fn only_what_runs_is_captured() {
        let sim = sim();
        let image = Source::Image("debian:12".into());
        create(&sim, "a", image).await.unwrap();
        let (id, snapshots) = (SandboxId::from("a"), sim.snapshots().unwrap());
        sim.pausing().unwrap().pause(&id).await.unwrap();
        let paused = snapshots.take(&id, "s").await.unwrap_err();
        assert!(matches!(paused, RuntimeError::Capture { .. }), "{paused}");
        sim.pausing().unwrap().resume(&id).await.unwrap();
        sim.set_faults(Faults {
            capture_fails: Some("no space".to_owned()),
            ..Faults::default()
        });
        let failed = snapshots.take(&id, "s").await.unwrap_err();
        assert!(failed.to_string().contains("no space"), "{failed}");
        assert_eq!(sim.stored_snapshots(), [""; 0]);
    }
}
