//! Where sandboxes run.
//!
//! [`Runtime`] is what the domain asks of a back end; [`docker`] is the first real one, [`sim`] a
//! simulated one with delays and injected faults for tests, demos and work on the console. A back
//! end translates, it decides nothing: rules about sandboxes live in the server's domain.
//!
//! The truth about a sandbox is what the back end reports ([`Observed`]); whatever the server
//! remembers is derived from it. A back end therefore also tells what happens ([`RuntimeEvent`]),
//! so that nobody has to ask again and again.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod docker;
mod error;
mod event;
mod observed;
mod origin;
mod power;
mod reach;
mod role;
pub mod sim;
mod spec;
mod vocabulary;

pub use error::RuntimeError;
pub use event::RuntimeEvent;
pub use observed::{Address, Foreign, Observed, Phase, Ports, Status};
pub use origin::{Expiry, Origin, Source};
pub use power::{Pausing, PoolSpec, PoolStatus, Pools, Snapshots};
pub use reach::{NoRoute, Reach, Viewpoint};
pub use role::Role;
pub use spec::{Amendment, CreateSpec, KeptBy, Progress, Stage};
pub use vocabulary::{Codes, Fault, Reasons, Vocabulary};

use async_trait::async_trait;
use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_service::Supervisor;
use tokio::sync::mpsc;

/// Port that execd listens on inside every sandbox.
pub const EXECD_PORT: u16 = 44772;
/// Port whose traffic is published directly (contract: lifecycle §6.1).
pub const HTTP_PORT: u16 = 8080;

/// A place where sandboxes run. Calls are idempotent where a crash could repeat them.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Name for people and the console: `docker`, `sim`, …
    fn kind(&self) -> &'static str;

    /// The words for its states and errors.
    fn vocabulary(&self) -> &'static Vocabulary {
        &Vocabulary::CONTAINERS
    }

    /// What a create request may ask of it, beyond the powers below.
    fn create_features(&self) -> FeatureSet {
        FeatureSet::EMPTY
    }

    /// Everything it can do that not every runtime can.
    fn features(&self) -> FeatureSet {
        let powers = [
            (Feature::Pause, self.pausing().is_some()),
            (Feature::Snapshots, self.snapshots().is_some()),
            (Feature::Pools, self.pools().is_some()),
        ];
        let powers = powers.into_iter().filter(|(_, has)| *has);
        powers
            .map(|(feature, _)| feature)
            .chain(self.create_features().iter())
            .collect()
    }

    /// Freezing and thawing, if it can.
    fn pausing(&self) -> Option<&dyn Pausing> {
        None
    }

    /// Snapshots, if it has them.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// Pools, if it has them.
    fn pools(&self) -> Option<&dyn Pools> {
        None
    }

    /// How a port of a sandbox at this address is reached.
    ///
    /// # Errors
    /// When nothing leads there.
    fn reach(&self, address: &Address, port: u16, from: Viewpoint) -> Result<Reach, NoRoute>;

    /// Makes and starts a sandbox; returns once its container runs. On failure nothing of it is
    /// left behind. Stages are reported as they are reached.
    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError>;

    /// Stores a change of a sandbox's expiry or metadata, where the runtime stores such changes
    /// itself. Otherwise it does nothing and says so, and the caller's store keeps it.
    async fn write_back(&self, id: &SandboxId, change: &Amendment) -> Result<KeptBy, RuntimeError> {
        let _ = (id, change);
        Ok(KeptBy::Caller)
    }

    /// Kills and removes a sandbox with everything made for it. A missing one is fine.
    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// The last lines that the sandbox's own command wrote.
    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError>;

    /// Starts to tell what happens, beginning with [`RuntimeEvent::Synced`] (or
    /// [`RuntimeEvent::Lost`] when the back end does not answer) and after every interruption with
    /// `Synced` again. The task runs under `tasks` until those stop.
    fn watch(self: std::sync::Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent>;

    /// Removes what belongs to no sandbox and to no create under way: containers that were made but
    /// never started, and helpers of a server that died. Also mends what earlier releases left.
    async fn sweep(&self) -> Result<(), RuntimeError>;

    /// Sandboxes that another installation of the server made. They are none of ours to touch.
    async fn foreign(&self) -> Result<Vec<Foreign>, RuntimeError>;
}
