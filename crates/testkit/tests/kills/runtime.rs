//! A runtime whose caller is killed at a step.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use async_trait::async_trait;
use osb_protocol::{FeatureSet, SandboxId, WireTime};
use osb_runtime::{
    Address, Amendment, CreateSpec, Foreign, KeptBy, Metering, NoRoute, Observed, Pausing,
    Progress, Reach, Runtime, RuntimeError, RuntimeEvent, Stage, Viewpoint, sim::SimRuntime,
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

    fn metering(&self) -> Option<&dyn Metering> {
        self.inner.metering()
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
