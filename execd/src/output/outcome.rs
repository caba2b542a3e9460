//! How a run ended.

use std::time::Duration;

use jiff::Timestamp;

use crate::process::Exit;

/// The end of a run.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// When, in Unix milliseconds.
    pub(crate) at: i64,
    /// Wall time since just before the start.
    pub(crate) took: Duration,
}

/// The ways to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process ended, killed by us when its time was up.
    Exited {
        exit: Exit,
        timed_out: Option<Duration>,
    },
    /// It never ran.
    NotStarted(String),
    /// It failed, in words of its own.
    Failed {
        /// Class of the error.
        name: &'static str,
        /// Its value.
        value: String,
        /// Explanation for people.
        reason: String,
    },
}

impl Outcome {
    pub(crate) fn ended(exit: Exit, timed_out: Option<Duration>) -> Self {
        Self::now(End::Exited { exit, timed_out }, Duration::ZERO)
    }

    pub(crate) fn now(end: End, took: Duration) -> Self {
        let at = Timestamp::now().as_millisecond();
        Self { end, at, took }
    }
}

impl End {
    /// Reasons for the failure, in lines for people; empty on success.
    pub(crate) fn reasons(&self) -> Vec<String> {
        match self {
            Self::Exited {
                exit: Exit::Code(0),
                ..
            } => Vec::new(),
            Self::Exited {
                exit,
                timed_out: None,
            } => vec![exit.to_string()],
            Self::Exited {
                exit,
                timed_out: Some(limit),
            } => {
                vec![exit.to_string(), format!("timeout after {limit:?}")]
            }
            Self::NotStarted(reason) | Self::Failed { reason, .. } => vec![reason.clone()],
        }
    }
}
