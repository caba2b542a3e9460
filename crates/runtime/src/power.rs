//! Optional powers of a runtime, beyond creating and removing sandboxes.
//!
//! Each power is a trait of its own, which [`Runtime`](crate::Runtime) returns where it is supported.
//! Otherwise the caller responds with
//! [`RuntimeError::Unsupported`](crate::RuntimeError::Unsupported).

use std::{collections::BTreeMap, fmt, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use osb_protocol::{SandboxId, WireTime};

use crate::{Origin, RuntimeError};

/// Freezes and thaws sandboxes with all their containers. A change is also reported as
/// [`RuntimeEvent::Paused`](crate::RuntimeEvent::Paused). Both calls return the
/// time after the change, by the back end's clock.
///
/// The main container decides: after a crash between two steps, or after an operator froze a single
/// container, [`Runtime::sweep`](crate::Runtime::sweep) brings the others to the same state.
#[async_trait]
pub trait Pausing: Send + Sync {
    /// Freezes a sandbox that runs. After a failure none of its containers is frozen, unless the
    /// back end does not answer or a container that the sandbox must not run without is missing.
    async fn pause(&self, id: &SandboxId) -> Result<WireTime, RuntimeError>;

    /// Thaws a frozen sandbox. After a failure it is still frozen, unless the back end does not
    /// answer.
    async fn resume(&self, id: &SandboxId) -> Result<WireTime, RuntimeError>;
}

/// A stored snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSnapshot {
    /// What the back end calls it.
    pub image: String,
    /// Bytes on disk that only it takes, without what its sandbox was created from. `None` if they
    /// cannot be read.
    pub size_bytes: Option<u64>,
}

/// Stores file systems of sandboxes, without anything that the server added to them: no labels, no
/// tokens, no environment of the request. What the image of the sandbox had is kept. Volumes are not
/// part of it.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// Checks that the file system of a sandbox can be stored at all, before a capture is accepted.
    ///
    /// # Errors
    /// [`RuntimeError::Uncapturable`], [`RuntimeError::NotFound`], and when the back end does not answer.
    async fn check(&self, sandbox: &SandboxId) -> Result<(), RuntimeError>;

    /// Stores the file system of a sandbox that runs under a snapshot's id, and freezes the sandbox
    /// meanwhile. That it is frozen is not reported. A create from [`Source::Snapshot`](crate::Source::Snapshot) with this id
    /// starts from it. One sandbox is captured at a time.
    ///
    /// # Errors
    /// [`RuntimeError::NotFound`], [`RuntimeError::Uncapturable`], [`RuntimeError::Capture`] and
    /// [`RuntimeError::CaptureTimedOut`]. After the last one, and when the back end does not answer, it may still appear later.
    async fn take(
        &self,
        sandbox: &SandboxId,
        snapshot: &str,
    ) -> Result<StoredSnapshot, RuntimeError>;

    /// Waits until a sandbox is thawed whose capture timed out, or was interrupted by the back end: the
    /// capture may go on there. Until then, that the sandbox is frozen is not reported, and no other
    /// capture of it should begin.
    async fn thawed(&self, sandbox: &SandboxId);

    /// Whether a capture that an earlier process began may still go on in the back end: the sandbox is
    /// frozen, and what is not stored yet may appear.
    ///
    /// # Errors
    /// When the back end does not answer.
    async fn may_go_on(&self, sandbox: &SandboxId) -> Result<bool, RuntimeError>;

    /// Looks for a snapshot. `None` if it is not stored.
    async fn find(&self, snapshot: &str) -> Result<Option<StoredSnapshot>, RuntimeError>;

    /// Removes a snapshot. Succeeds if there is none.
    ///
    /// # Errors
    /// [`RuntimeError::SnapshotInUse`] while sandboxes exist that were created from it.
    async fn remove(&self, snapshot: &str) -> Result<(), RuntimeError>;

    /// Lists the snapshots that this installation stored, by id, with the time since then, by the back
    /// end's clock. Also removes what a capture left that never got its name.
    async fn list(&self) -> Result<Vec<(String, Duration)>, RuntimeError>;
}

/// What the image of a template is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// An image, by its reference, which is pulled unless it is there.
    Image(String),
    /// A build. The back end runs its steps with its own rights.
    Build(Context),
}

/// What an image is built from.
#[derive(Clone, PartialEq, Eq)]
pub enum Context {
    /// The text of a Dockerfile that copies no files.
    Dockerfile(String),
    /// A tar archive with a `Dockerfile` at its root. It may be compressed.
    Archive(Bytes),
}

/// Omits what may contain secrets.
impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, bytes) = match self {
            Self::Dockerfile(text) => ("Dockerfile", text.len()),
            Self::Archive(archive) => ("Archive", archive.len()),
        };
        f.debug_tuple(kind).field(&bytes).finish()
    }
}

/// Image of a template that was made ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTemplate {
    /// What the back end calls it.
    pub image: String,
    /// Bytes of an image that was built, with what it is built on; `None` of one that was pulled, and
    /// where they cannot be read.
    pub size_bytes: Option<u64>,
}

/// Receives what a build writes, in pieces.
pub type BuildLog<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// Makes images ready for sandboxes, and keeps them under a template's id until they are removed: a
/// create from [`Source::Template`](crate::Source::Template) with this id starts from what was found
/// when the template was made.
#[async_trait]
pub trait Templates: Send + Sync {
    /// Why no template can be made from the image of this name. `None` if one may be.
    fn refusal(&self, image: &str) -> Option<&'static str>;

    /// Makes an image ready. `log` receives what a build writes, in pieces. A build ends when this is
    /// dropped, as far as the back end lets it be ended.
    ///
    /// # Errors
    /// [`RuntimeError::ImagePull`], [`RuntimeError::Refused`], [`RuntimeError::Build`], and when the back
    /// end does not answer; then it may still appear later.
    async fn make(
        &self,
        template: &str,
        recipe: &Recipe,
        log: BuildLog<'_>,
    ) -> Result<StoredTemplate, RuntimeError>;

    /// Looks for the image of a template. `None` if there is none.
    async fn find(&self, template: &str) -> Result<Option<StoredTemplate>, RuntimeError>;

    /// Removes the image of a template, unless it has other names. Succeeds if there is none.
    ///
    /// # Errors
    /// [`RuntimeError::TemplateInUse`] while sandboxes need it.
    async fn remove(&self, template: &str) -> Result<(), RuntimeError>;

    /// Lists the templates whose images this installation keeps, by id.
    async fn list(&self) -> Result<Vec<String>, RuntimeError>;
}

/// A sandbox that was created with [`CreateSpec::waits`](crate::CreateSpec::waits).
#[derive(Clone, Copy, Debug)]
pub struct WaitingSandbox<'a> {
    /// What it was created with.
    pub origin: &'a Origin,
    /// Host and port of its execd, as this process reaches it; `None` without a route.
    pub execd: Option<&'a str>,
}

/// What the client of a waiting sandbox asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct Claim {
    /// Identifies the claim: the same one may be repeated, any other is refused.
    pub id: String,
    /// Command whose exit ends the sandbox.
    pub entrypoint: Vec<String>,
    /// Environment, on top of what the sandbox was created with. `None` removes a variable.
    pub env: BTreeMap<String, Option<String>>,
}

/// Omits the values of the environment, which may contain secrets.
impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim")
            .field("id", &self.id)
            .field("entrypoint", &self.entrypoint)
            .field("env", &self.env.keys())
            .finish()
    }
}

/// Gives sandboxes that wait to clients (contract: lifecycle §10). Which pools there are and what waits
/// in them is the domain's to know; a waiting sandbox is created and removed like any other.
#[async_trait]
pub trait Pools: Send + Sync {
    /// Has a waiting sandbox start the entry point of a claim. Succeeds again for the same claim,
    /// whichever process asks, and after a restart of the sandbox starts the entry point again.
    ///
    /// # Errors
    /// [`RuntimeError::ExecdSilent`] if its execd does not answer, which may change;
    /// [`RuntimeError::Start`] if it was claimed by another claim, this process has no route to it, or
    /// its entry point does not start; [`RuntimeError::Refused`] if its environment cannot be set.
    async fn claim(&self, sandbox: WaitingSandbox<'_>, claim: &Claim) -> Result<(), RuntimeError>;

    /// Whether a sandbox still waits for a claim.
    ///
    /// # Errors
    /// [`RuntimeError::ExecdSilent`] or [`RuntimeError::Start`] if it cannot be asked.
    async fn is_waiting(&self, sandbox: WaitingSandbox<'_>) -> Result<bool, RuntimeError>;

    /// Whether a claim has left its mark in a sandbox, which may have ended, be frozen or not answer. There
    /// is none in a sandbox that the runtime does not have.
    ///
    /// # Errors
    /// When the runtime does not answer.
    async fn claim_mark(&self, id: &SandboxId) -> Result<ClaimMark, RuntimeError>;
}

/// What a look for the mark of a claim has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimMark {
    /// The sandbox was given to a client.
    Present,
    /// It was not.
    Absent,
    /// There may have been a claim all the same: the sandbox could not write a mark, or it cannot be seen
    /// from outside.
    Unknown,
}
