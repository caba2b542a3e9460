//! Where sandboxes run.
//!
//! [`Runtime`] is the interface between the server's domain and a back end. [`docker`] runs
//! containers; [`sim`] simulates them, with delays and injected faults, for tests, demos and work on
//! the console. A back end only translates: rules about sandboxes live in the domain.
//!
//! The back end's report of a sandbox ([`Observed`]) is authoritative, and the server derives its
//! own records from it. A back end also reports changes ([`RuntimeEvent`]), so that the server does
//! not have to poll.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod capacity;
mod cause;
mod clock;
mod copying;
mod diagnostics;
pub mod docker;
mod error;
mod event;
mod images;
mod log_lines;
mod observed;
mod origin;
mod power;
mod prepared;
mod pull_fault;
mod reach;
mod reason;
mod role;
mod secure;
pub mod sim;
mod spec;
mod usage;
mod vocabulary;
mod volume;

pub use capacity::{Capacity, DiskSpace, HostCapacity};
pub use cause::Cause;
pub use copying::{Copying, RequestEnvironment};
pub use diagnostics::{
    Diagnostics, HealthCheck, Inspection, LogQuery, LogText, MASK, names_secret,
};
pub use error::RuntimeError;
pub use event::RuntimeEvent;
pub use images::{Images, LocalImage, UnusedImage};
pub use log_lines::{LogFollow, LogLine, LogLines, LogStream};
pub use observed::{Address, Foreign, Observed, Phase, Ports, Status};
pub use origin::{Expiry, Origin, Source, new_id, new_token};
pub use power::{
    BuildLog, Claim, ClaimMark, Context, Pausing, Pools, Recipe, Snapshots, StoredSnapshot,
    StoredTemplate, Templates, WaitingSandbox,
};
pub use prepared::{Prepared, WarmSidecars};
pub use pull_fault::PullFault;
pub use reach::{NoRoute, Reach, Viewpoint};
pub use reason::Reason;
pub use role::Role;
pub use secure::{SecureKind, SecureRuntime};
pub use spec::{Amendment, CreateSpec, KeptBy, NetworkPolicy, Progress, SERVER_VARIABLES, Stage};
pub use usage::{Metering, Usage};
pub use vocabulary::{Codes, Fault, Reasons, Vocabulary};
pub use volume::VolumeFailure;

use async_trait::async_trait;
use osb_protocol::{Feature, FeatureSet, SandboxId};
use osb_service::Supervisor;
use tokio::sync::mpsc;

/// Port that execd listens on inside every sandbox.
pub const EXECD_PORT: u16 = 44772;
/// Port of the egress sidecar's API (contract: egress §1).
pub const EGRESS_PORT: u16 = 18080;
/// Port whose traffic is published directly (contract: lifecycle §6.1).
pub const HTTP_PORT: u16 = 8080;

/// A back end that runs sandboxes. Calls are idempotent where a crash could repeat them.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Name for logs and the console: `docker`, `sim`, …
    fn kind(&self) -> &'static str;

    /// Names of its states and errors in the API.
    fn vocabulary(&self) -> &'static Vocabulary {
        &Vocabulary::CONTAINERS
    }

    /// What keeps its sandboxes further from the host's kernel than plain containers, if anything does.
    fn secure_runtime(&self) -> Option<SecureRuntime> {
        None
    }

    /// Identifies the operator's settings that every sandbox gets when it is created: equal for equal
    /// ones. A sandbox that was started with others goes to no client.
    fn settings_digest(&self) -> String {
        format!("{:?}", self.secure_runtime())
    }

    /// Features that a create request may use, beyond the powers below.
    fn create_features(&self) -> FeatureSet {
        FeatureSet::EMPTY
    }

    /// All optional features.
    fn features(&self) -> FeatureSet {
        let powers = [
            (Feature::Pause, self.pausing().is_some()),
            (Feature::Snapshots, self.snapshots().is_some()),
            (Feature::Pools, self.pools().is_some()),
            (Feature::Templates, self.templates().is_some()),
            (Feature::Diagnostics, self.diagnostics().is_some()),
        ];
        let powers = powers.into_iter().filter(|(_, has)| *has);
        powers
            .map(|(feature, _)| feature)
            .chain(self.create_features().iter())
            .collect()
    }

    /// Freezing and thawing, where supported.
    fn pausing(&self) -> Option<&dyn Pausing> {
        None
    }

    /// Snapshots, where supported.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// Pools, where supported.
    fn pools(&self) -> Option<&dyn Pools> {
        None
    }

    /// Templates, where supported.
    fn templates(&self) -> Option<&dyn Templates> {
        None
    }

    /// Logs and settings of single sandboxes, where supported.
    fn diagnostics(&self) -> Option<&dyn Diagnostics> {
        None
    }

    /// Resource use of sandboxes, where it can be read.
    fn metering(&self) -> Option<&dyn Metering> {
        None
    }

    /// How large its host is, where it has one.
    fn capacity(&self) -> Option<&dyn Capacity> {
        None
    }

    /// What copies of its sandboxes need, where it can be read.
    fn copying(&self) -> Option<&dyn Copying> {
        None
    }

    /// The images on its host, where it has one.
    fn images(&self) -> Option<&dyn Images> {
        None
    }

    /// Counts of its warm sidecars, where it can keep some.
    fn warm_sidecars(&self) -> Option<WarmSidecars> {
        None
    }

    /// Lets a create use what was made in advance for one like it: the spec then has another id and
    /// another token of its sidecar. The caller has not shown the former ones to anything else, and
    /// calls [`Prepared::commit`] before it shows the new ones.
    fn prepare(&self, spec: &mut CreateSpec) {
        let _ = spec;
    }

    /// Resolves how a port of a sandbox at this address is reached.
    ///
    /// # Errors
    /// When the port has no route.
    fn reach(&self, address: &Address, port: u16, from: Viewpoint) -> Result<Reach, NoRoute>;

    /// Creates and starts a sandbox; returns once its container runs. A failed create leaves nothing
    /// behind. Reports each stage when it is reached.
    async fn create(
        &self,
        spec: CreateSpec,
        progress: &dyn Progress,
    ) -> Result<Observed, RuntimeError>;

    /// Stores a change of a sandbox's expiry or metadata, if the runtime stores such changes itself.
    /// Otherwise returns [`KeptBy::Caller`], and the caller must store it.
    async fn write_back(&self, id: &SandboxId, change: &Amendment) -> Result<KeptBy, RuntimeError> {
        let _ = (id, change);
        Ok(KeptBy::Caller)
    }

    /// Kills and removes a sandbox with everything created for it. Succeeds if there is none.
    async fn remove(&self, id: &SandboxId) -> Result<(), RuntimeError>;

    /// Reads the last lines of the output of the sandbox's entry point.
    async fn log_tail(&self, id: &SandboxId, lines: usize) -> Result<Vec<String>, RuntimeError>;

    /// Starts to report events. The first one, and the first after every interruption, is
    /// [`RuntimeEvent::Synced`], or [`RuntimeEvent::Lost`] while the back end does not answer. The
    /// task runs under `tasks` until those stop.
    fn watch(self: std::sync::Arc<Self>, tasks: &Supervisor) -> mpsc::Receiver<RuntimeEvent>;

    /// Removes what belongs to no sandbox and to no create in progress: containers that were never
    /// started, and helpers of a server that crashed. Also migrates what earlier releases created.
    async fn sweep(&self) -> Result<(), RuntimeError>;

    /// Lists the sandboxes that other installations of the server created, which must not be changed.
    async fn foreign(&self) -> Result<Vec<Foreign>, RuntimeError>;
}
