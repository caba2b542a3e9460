//! Shell sessions and their state.

use std::{path::PathBuf, sync::Mutex};

use tokio_util::sync::CancellationToken;

use crate::{
    env::{Variables, report::Reported},
    idle::{Activity, Evictable, Registry},
    limits,
};

/// Set by every shell itself.
const OF_THE_SHELL: &str = "_";
/// Nesting level of the shell: `bash` increments the inherited value. Runs are sequential, so each
/// begins with the session's initial value.
const DEPTH: &str = "SHLVL";

/// All shell sessions. Clones share them.
pub type ShellSessions = Registry<ShellSession>;

/// Shell session.
#[derive(Debug)]
pub struct ShellSession {
    pub(super) id: String,
    /// Held by the current run: concurrent runs would lose each other's changes.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Cancelled when the session is deleted.
    pub(super) deleted: CancellationToken,
    pub(super) activity: Activity,
    state: Mutex<ShellState>,
}

impl Evictable for ShellSession {
    const KIND: &'static str = "session";
    const LIMIT: usize = limits::SESSIONS;

    fn id(&self) -> &str {
        &self.id
    }

    fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Runs count as uses.
    fn is_working(&self) -> bool {
        false
    }

    fn end(&self) {
        self.deleted.cancel();
    }
}

/// State that a run begins with.
#[derive(Clone, Debug)]
pub(super) struct ShellState {
    pub(super) variables: Variables,
    pub(super) cwd: Option<PathBuf>,
}

impl ShellSession {
    /// Creates a session whose first run begins with this state.
    pub(super) fn new(id: String, activity: Activity, state: ShellState) -> Self {
        Self {
            id,
            turn: tokio::sync::Mutex::default(),
            deleted: CancellationToken::new(),
            activity,
            state: Mutex::new(state),
        }
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, ShellState> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// State for the next run.
    pub(super) fn state(&self) -> ShellState {
        self.locked().clone()
    }

    /// Saves the state that a run left.
    pub(super) fn adopt(&self, reported: Reported) {
        let mut state = self.locked();
        let depth = state.variables.get(DEPTH).map(ToOwned::to_owned);
        state.variables = reported.variables;
        state.variables.remove(OF_THE_SHELL);
        match depth {
            Some(depth) => state.variables.set(DEPTH, depth),
            None => state.variables.remove(DEPTH),
        }
        if reported.cwd.is_some() {
            state.cwd = reported.cwd;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ApiError, idle::manual};

    #[test]
    fn a_session_with_a_run_makes_no_room_and_does_not_end() {
        let (clock, millis) = manual::clock();
        let sessions = ShellSessions::with_clock(clock.clone());
        let add = || {
            let (variables, cwd) = (Variables::default(), None);
            let state = ShellState { variables, cwd };
            sessions.add(|id, activity| ShellSession::new(id, activity, state))
        };
        let ids: Vec<_> = (0..limits::SESSIONS).map(|_| add().unwrap()).collect();
        let refused = add().unwrap_err();
        assert!(matches!(refused, ApiError::TooManySessions(_)), "{refused}");
        let oldest = sessions.get(&ids[0]).unwrap();
        let run = oldest.activity.begin();
        manual::pass(&clock, &millis, limits::IDLE_AT_LIMIT);
        for _ in 1..limits::SESSIONS {
            add().unwrap();
        }
        assert!(add().is_err());
        assert!(!oldest.deleted.is_cancelled() && sessions.get(&ids[1]).is_err());
        drop(run);
        manual::pass(&clock, &millis, limits::IDLE);
        sessions.end_idle();
        assert!(oldest.deleted.is_cancelled() && sessions.get(&ids[0]).is_err());
    }
}
