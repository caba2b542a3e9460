//! The domain as the console sees it. The server implements this over the service that the REST
//! API uses too, so that there is one path to a sandbox.

mod access;
mod events;
mod pools;
mod settings;
mod snapshots;
mod templates;

pub use access::{AccessBackend, access_backend};
pub use events::{EventsBackend, events_backend};
pub use pools::{NewPool, PoolBackend, pool_backend};
pub use settings::{SettingsBackend, settings_backend};
pub use snapshots::{SnapshotBackend, snapshot_backend};
pub use templates::{TemplateBackend, template_backend};

use std::{collections::BTreeMap, sync::Arc};

use async_trait::async_trait;
use leptos::prelude::use_context;
use osb_protocol::{
    FieldError, SandboxId, WireTime,
    lifecycle::{MetricsHistory, SandboxCommand},
};

use crate::{
    error::ConsoleError,
    live::LogLine,
    view::{
        BulkAct, BulkResult, Diagnosis, HostImages, Original, Overview, PortAddress, SandboxDetail,
        SandboxRow,
    },
};

/// What pages, server functions and live topics ask the domain for.
#[async_trait]
pub trait ConsoleBackend: Send + Sync {
    /// Every sandbox, newest first. Served from memory.
    fn sandboxes(&self) -> Vec<SandboxRow>;

    /// What the overview shows.
    async fn overview(&self) -> Overview;

    /// Why what this backend says may be out of date: the runtime does not answer.
    fn trouble(&self) -> Option<String>;

    /// One sandbox with everything its page shows.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`].
    async fn sandbox(&self, id: &SandboxId) -> Result<SandboxDetail, ConsoleError>;

    /// Every rule of the API that this create request breaks; nothing is made.
    fn validate(&self, body: &serde_json::Value) -> Vec<FieldError>;

    /// The images on the host, as far as the caller may know them and the runtime says in time.
    async fn images(&self) -> HostImages;

    /// Accepts a create request of the API. The sandbox's page shows its progress.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn create(&self, body: serde_json::Value) -> Result<SandboxId, ConsoleError>;

    /// Refuses a form whose request is not worth sending because of these problems. Like
    /// [`Self::create`] it is the end of an act, which is recorded as failed.
    ///
    /// # Errors
    /// [`ConsoleError::Invalid`], always.
    fn refuse_create(&self, problems: Vec<FieldError>) -> Result<SandboxId, ConsoleError>;

    /// What a copy of a sandbox begins with, also of one that is gone.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn original(&self, id: &SandboxId) -> Result<Original, ConsoleError>;

    /// Accepts a create request like [`Self::create`] that takes these variables over from another
    /// sandbox, and what else the request does not say.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn create_copy(
        &self,
        body: serde_json::Value,
        of: &SandboxId,
        variables: Vec<String>,
    ) -> Result<SandboxId, ConsoleError>;

    /// Sets when a sandbox is removed. Only with `may_shorten` may that be earlier than before.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], [`ConsoleError::Shortens`] and [`ConsoleError::Refused`].
    async fn renew(
        &self,
        id: &SandboxId,
        expires_at: WireTime,
        may_shorten: bool,
    ) -> Result<WireTime, ConsoleError>;

    /// Removes a sandbox; returns once the intent is durable.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn delete(&self, id: &SandboxId) -> Result<(), ConsoleError>;

    /// Freezes a sandbox.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn pause(&self, id: &SandboxId) -> Result<(), ConsoleError>;

    /// Thaws a sandbox.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn resume(&self, id: &SandboxId) -> Result<(), ConsoleError>;

    /// Sets labels of a sandbox, and deletes those without a value; the others stay.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], [`ConsoleError::Invalid`] and [`ConsoleError::Refused`].
    async fn change_labels(
        &self,
        id: &SandboxId,
        patch: BTreeMap<String, Option<String>>,
    ) -> Result<(), ConsoleError>;

    /// The last lines that the entry point of a sandbox wrote.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn log(&self, id: &SandboxId) -> Result<Vec<LogLine>, ConsoleError>;

    /// The recorded resource use of a sandbox in steps of 10 or 60 seconds, also of one that is gone.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], and [`ConsoleError::Refused`] when nothing is recorded.
    async fn metrics(
        &self,
        id: &SandboxId,
        step_seconds: u32,
    ) -> Result<MetricsHistory, ConsoleError>;

    /// What an operator reads to find the fault of a sandbox; also of one whose create failed.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], and [`ConsoleError::Refused`] when the runtime cannot tell.
    async fn diagnosis(&self, id: &SandboxId) -> Result<Diagnosis, ConsoleError>;

    /// The last commands that a sandbox reports, newest first, also of one that is gone.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], and [`ConsoleError::Refused`] when none are recorded.
    async fn commands(&self, id: &SandboxId) -> Result<Vec<SandboxCommand>, ConsoleError>;

    /// Ends the command of a sandbox that began at this time.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`], and [`ConsoleError::Refused`] when it does not run or execd does not
    /// answer.
    async fn interrupt(&self, id: &SandboxId, started_at: WireTime) -> Result<(), ConsoleError>;

    /// Does the same to several sandboxes, a few at a time; one that fails does not stop the others.
    /// The results are in the order of the ids.
    async fn bulk(&self, act: BulkAct, ids: Vec<SandboxId>) -> Vec<BulkResult>;

    /// The sandboxes that ended, newest first, without the first `skip`.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be read.
    async fn ended(&self, skip: usize, limit: usize) -> Result<Vec<SandboxRow>, ConsoleError>;

    /// Number of the sandboxes that ended, up to `most`.
    ///
    /// # Errors
    /// [`ConsoleError::Refused`] when they cannot be counted.
    async fn ended_count(&self, most: usize) -> Result<usize, ConsoleError>;

    /// Where a port of a sandbox is reached.
    ///
    /// # Errors
    /// [`ConsoleError::NotFound`] and [`ConsoleError::Refused`].
    async fn port(&self, id: &SandboxId, port: u16) -> Result<PortAddress, ConsoleError>;
}

/// The backend of this request.
///
/// # Errors
/// [`ConsoleError::SignedOut`]: the server provides none without an open session.
pub fn backend() -> Result<Arc<dyn ConsoleBackend>, ConsoleError> {
    use_context::<Arc<dyn ConsoleBackend>>().ok_or(ConsoleError::SignedOut)
}
