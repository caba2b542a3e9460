//! API names of a runtime's states and errors (contract: lifecycle §12, §13).
//!
//! Every runtime has the same state machine and the same errors, but the contract names them
//! differently for each runtime.

use osb_protocol::error::code;

/// Reasons of a sandbox's states.
#[derive(Debug, PartialEq, Eq)]
pub struct Reasons {
    /// It is being created.
    pub starting: &'static str,
    /// It runs.
    pub running: &'static str,
    /// It is frozen.
    pub paused: &'static str,
    /// The runtime is restarting it.
    pub restarting: &'static str,
    /// Its command exited with status 0.
    pub exited: &'static str,
    /// Its command exited with another status.
    pub exited_error: &'static str,
    /// The runtime reports another state.
    pub unknown: &'static str,
}

/// An error whose code depends on the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The sandbox does not exist.
    NotFound,
    /// The sandbox is not in a state that allows the call.
    WrongState,
    /// The sandbox is not paused.
    NotPaused,
    /// The sandbox cannot be paused.
    Pause,
    /// The sandbox cannot be resumed.
    Resume,
    /// The runtime cannot answer a query.
    Query,
    /// The image cannot be pulled.
    ImagePull,
    /// The sandbox cannot be started.
    Start,
    /// The sandbox cannot be removed.
    Delete,
    /// execd cannot be provided to sandboxes.
    ExecdDistribution,
    /// A port cannot be reached.
    Endpoint,
}

/// Codes of errors that differ between runtimes.
#[derive(Debug, PartialEq, Eq)]
pub struct Codes {
    /// Code of [`Fault::NotFound`].
    pub not_found: &'static str,
    /// Code of [`Fault::WrongState`].
    pub wrong_state: &'static str,
    /// Code of [`Fault::NotPaused`].
    pub not_paused: &'static str,
    /// Code of [`Fault::Pause`].
    pub pause: &'static str,
    /// Code of [`Fault::Resume`].
    pub resume: &'static str,
    /// Code of [`Fault::ImagePull`].
    pub image_pull: &'static str,
    /// Code of [`Fault::Start`].
    pub start: &'static str,
    /// Code of [`Fault::Delete`].
    pub delete: &'static str,
    /// Code of [`Fault::Query`].
    pub query: &'static str,
    /// Code of [`Fault::ExecdDistribution`].
    pub execd_distribution: &'static str,
    /// Code of [`Fault::Endpoint`].
    pub endpoint: &'static str,
}

/// API names of one runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// Reasons of states.
    pub reasons: Reasons,
    /// Codes of errors.
    pub codes: Codes,
}

impl Vocabulary {
    /// Names for runtimes of containers, as the contract defines them for Docker.
    pub const CONTAINERS: Self = Self {
        reasons: Reasons {
            starting: "CONTAINER_STARTING",
            running: "CONTAINER_RUNNING",
            paused: "CONTAINER_PAUSED",
            restarting: "CONTAINER_RESTARTING",
            exited: "CONTAINER_EXITED",
            exited_error: "CONTAINER_EXITED_ERROR",
            unknown: "CONTAINER_STATE_UNKNOWN",
        },
        codes: Codes {
            not_found: code::SANDBOX_NOT_FOUND,
            wrong_state: code::SANDBOX_NOT_RUNNING,
            not_paused: code::SANDBOX_NOT_PAUSED,
            pause: code::PAUSE_FAILED,
            resume: code::RESUME_FAILED,
            image_pull: code::IMAGE_PULL_FAILED,
            start: code::START_FAILED,
            delete: code::DELETE_FAILED,
            query: code::SANDBOX_QUERY_FAILED,
            execd_distribution: code::EXECD_DISTRIBUTION_FAILED,
            endpoint: code::ENDPOINT_UNAVAILABLE,
        },
    };
}

impl Codes {
    /// Returns the code of an error.
    #[must_use]
    pub fn of(&self, fault: Fault) -> &'static str {
        match fault {
            Fault::NotFound => self.not_found,
            Fault::WrongState => self.wrong_state,
            Fault::NotPaused => self.not_paused,
            Fault::Pause => self.pause,
            Fault::Resume => self.resume,
            Fault::Query => self.query,
            Fault::ImagePull => self.image_pull,
            Fault::Start => self.start,
            Fault::Delete => self.delete,
            Fault::ExecdDistribution => self.execd_distribution,
            Fault::Endpoint => self.endpoint,
        }
    }
}
