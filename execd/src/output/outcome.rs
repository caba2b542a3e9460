//! End of a run.

use std::time::Duration;

use jiff::Timestamp;

use crate::process::Exit;

/// Exit status of a command that could not start.
pub(crate) const NOT_STARTED: i32 = 255;

/// End of a run, with its time.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// Time of the end in Unix milliseconds.
    pub(crate) at: i64,
    /// Wall time since the start.
    pub(crate) took: Duration,
}

/// Ways in which a run ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process exited. `timed_out` is the time limit at which execd killed it.
    Exited {
        exit: Exit,
        timed_out: Option<Duration>,
    },
    /// No process was started; contains the reason.
    NotStarted(String),
    /// The run failed outside of a process.
    Failed {
        /// Name of the error on the wire.
        name: &'static str,
        /// Value of the error on the wire.
        value: String,
        /// Explanation for the user.
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

    /// Exit status for clients: [`NOT_STARTED`] without a process.
    pub(crate) fn exit_code(&self) -> i32 {
        match &self.end {
            End::Exited { exit, .. } => exit.wire_code(),
            End::NotStarted(_) | End::Failed { .. } => NOT_STARTED,
        }
    }

    /// Why the run failed.
    pub(crate) fn error(&self) -> Option<String> {
        let reasons = self.end.reasons();
        (!reasons.is_empty()).then(|| reasons.join(", "))
    }
}

impl End {
    /// Lines that explain the failure to the user; empty on success.
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
