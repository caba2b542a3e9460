//! A runtime whose caller is killed at a step.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use async_trait::async_trait;
use osb_protocol::{FeatureSet, SandboxId, WireTime};
use osb_runtime::{
    Address, Amendment, Claim, ClaimMark, CreateSpec, Foreign, KeptBy, Metering, NoRoute, Observed,
    Pausing, Pools, Progress, Reach, Runtime, RuntimeError, RuntimeEvent, Snapshots, Stage,
    StoredSnapshot, Viewpoint, WaitingSandbox, WarmSidecars, sim::SimRuntime,
};
use osb_service::Supervisor;
use tokio::sync::mpsc;

use super::fuse::Fuse;

pub(crate) struct KilledRuntime {
    pub(crate) inner: Arc<SimRuntime>,
    pub(crate) fuse: Arc<Fuse>,
    /// Calls that destroy something.
    pub(crate) destroying: Arc<AtomicUsize>,
}

/// Each stage of a create is a step.
struct Steps<'a> {
    progress: &'a dyn Progress,
    fuse: &'a Fuse,
}

impl Progress for Steps<'_> {
    fn reached(&self, stage: Stage) {
        self.progress.reached(stage);
        self.fuse.pass();
    }
}

#[async_trait]
impl Runtime for KilledRuntime {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    fn create_features(&self) -> FeatureSet {
        self.inner.create_features()
    }

    fn pausing(&self) -> Option<&dyn Pausing> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn pools(&self) -> Option<&dyn Pools> {
        Some(self)
    }

    // Not imported: its methods have the names of those of snapshots.
    fn templates(&self) -> Option<&dyn osb_runtime::Templates> {
        Some(self)
    }

    fn metering(&self) -> Option<&dyn Metering> {
        self.inner.metering()
    }

    fn warm_sidecars(&self) -> Option<WarmSidecars> {
        self.inner.warm_sidecars()
    }

    fn prepare(&self, spec: &mut CreateSpec) {
        self.inner.prepare(spec);
    }

    fn reach(&self, address: &Address, port: u16, from: Viewpoint) -> Result<Reach, NoRoute> {
        self.inner.reach(address, port, from)
    }

    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError> {
        let fuse = &*self.fuse;
        let progress = Steps { progress, fuse };
        fuse.step(self.inner.create(spec, &progress)).await
    }

    async fn write_back(&self, id: &SandboxId, change: &Amendment) -> Result<KeptBy, RuntimeError> {
        self.fuse.step(self.inner.write_back(id, change)).await
    }

    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError> {
        self.destroying.fetch_add(1, SeqCst);
        let removal = Runtime::remove(&*self.inner, id);
        self.fuse.step(removal).await
    }

    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError> {
        self.fuse.step(self.inner.log_tail(id, lines)).await
    }

    fn watch(self: Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent> {
        Arc::clone(&self.inner).watch(tasks)
    }

    async fn sweep(&self) -> Result<(), RuntimeError> {
        self.destroying.fetch_add(1, SeqCst);
        self.fuse.step(self.inner.sweep()).await
    }

    async fn foreign(&self) -> Result<Vec<Foreign>, RuntimeError> {
        self.fuse.step(self.inner.foreign()).await
    }
}

#[async_trait]
impl Pausing for KilledRuntime {
    async fn pause(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        self.fuse.step(self.inner.pause(id)).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<WireTime, RuntimeError> {
        self.fuse.step(self.inner.resume(id)).await
    }
}

/// Changes are steps.
#[async_trait]
impl Snapshots for KilledRuntime {
    async fn check(&self, sandbox: &SandboxId) -> Result<(), RuntimeError> {
        self.inner.check(sandbox).await
    }

    async fn take(
        &self,
        sandbox: &SandboxId,
        snapshot: &str,
    ) -> Result<StoredSnapshot, RuntimeError> {
        self.fuse.step(self.inner.take(sandbox, snapshot)).await
    }

    async fn thawed(&self, sandbox: &SandboxId) {
        self.inner.thawed(sandbox).await;
    }

    async fn may_go_on(&self, sandbox: &SandboxId) -> Result<bool, RuntimeError> {
        self.inner.may_go_on(sandbox).await
    }

    async fn find(&self, snapshot: &str) -> Result<Option<StoredSnapshot>, RuntimeError> {
        self.inner.find(snapshot).await
    }

    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError> {
        self.destroying.fetch_add(1, SeqCst);
        let removal = Snapshots::remove(&*self.inner, snapshot);
        self.fuse.step(removal).await
    }

    async fn list(&self) -> Result<Vec<(String, Duration)>, RuntimeError> {
        Snapshots::list(&*self.inner).await
    }
}

#[async_trait]
impl Pools for KilledRuntime {
    async fn claim(&self, sandbox: WaitingSandbox<'_>, claim: &Claim) -> Result<(), RuntimeError> {
        self.fuse.step(self.inner.claim(sandbox, claim)).await
    }

    async fn is_waiting(&self, sandbox: WaitingSandbox<'_>) -> Result<bool, RuntimeError> {
        self.inner.is_waiting(sandbox).await
    }

    async fn claim_mark(&self, id: &SandboxId) -> Result<ClaimMark, RuntimeError> {
        self.inner.claim_mark(id).await
    }
}
