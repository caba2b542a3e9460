//! The words a runtime brings: reasons of states and codes of errors (contract: lifecycle §12, §13).
//!
//! The state machine and the errors are the same for every runtime; clients of the contract know
//! them under different names.

use osb_protocol::error::code;

/// Reason words of a sandbox's states.
#[derive(Debug, PartialEq, Eq)]
pub struct Reasons {
    /// It is being made.
    pub starting: &'static str,
    /// It runs.
    pub running: &'static str,
    /// It is frozen.
    pub paused: &'static str,
    /// The runtime starts it again.
    pub restarting: &'static str,
    /// Its command ended with status 0.
    pub exited: &'static str,
    /// Its command ended with another status.
    pub exited_error: &'static str,
    /// The runtime reports something else.
    pub unknown: &'static str,
}

/// An error whose code depends on the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No such sandbox.
    NotFound,
    /// The sandbox is not in a state that allows the call.
    WrongState,
    /// The runtime could not say what was asked.
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

/// Codes of the errors that differ by runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Codes {
    /// Code of [`Fault::NotFound`].
    pub not_found: &'static str,
    /// Code of [`Fault::WrongState`].
    pub wrong_state: &'static str,
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

/// The words of one runtime.
#[derive(Debug, PartialEq, Eq)]
pub struct Vocabulary {
    /// Reasons of states.
    pub reasons: Reasons,
    /// Codes of errors.
    pub codes: Codes,
}

impl Vocabulary {
    /// Words of runtimes that run containers, as the contract has them for Docker.
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
    /// The code of an error.
    #[must_use]
    pub fn of(&self, fault: Fault) -> &'static str {
        match fault {
            Fault::NotFound => self.not_found,
            Fault::WrongState => self.wrong_state,
            Fault::Query => self.query,
            Fault::ImagePull => self.image_pull,
            Fault::Start => self.start,
            Fault::Delete => self.delete,
            Fault::ExecdDistribution => self.execd_distribution,
            Fault::Endpoint => self.endpoint,
        }
    }
}
