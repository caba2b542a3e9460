//! Shell sessions and their state.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;

use crate::{
    env::{Variables, report::Reported},
    error::{ApiError, ApiResult},
    idle::{Activity, AwakeClock, Evictable, Full, Registry},
    limits,
};

/// Set by every shell itself.
const OF_THE_SHELL: &str = "_";
/// Nesting level of the shell: `bash` increments the inherited value. Runs are sequential, so each
/// begins with the session's initial value.
const DEPTH: &str = "SHLVL";

/// All sessions. Clones share them.
#[derive(Clone, Debug)]
pub struct Sessions {
    all: Arc<Registry<Session>>,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::with_clock(AwakeClock::default())
    }
}

/// Shell session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// Held by the current run: concurrent runs would lose each other's changes.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Cancelled when the session is deleted.
    pub(super) deleted: CancellationToken,
    pub(super) activity: Activity,
    state: Mutex<State>,
}

impl Evictable for Session {
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
pub(super) struct State {
    pub(super) variables: Variables,
    pub(super) cwd: Option<PathBuf>,
}

impl Sessions {
    fn with_clock(clock: AwakeClock) -> Self {
        let all = Arc::new(Registry::new(limits::SESSIONS, clock));
        Self { all }
    }

    /// Creates a session.
    ///
    /// # Errors
    /// When the limit is reached and all sessions are in use.
    pub(super) fn add(&self, state: State) -> ApiResult<String> {
        let id = uuid::Uuid::new_v4().to_string();
        let session = Session {
            id: id.clone(),
            turn: tokio::sync::Mutex::default(),
            deleted: CancellationToken::new(),
            activity: self.all.activity(),
            state: Mutex::new(state),
        };
        self.all.add(session).map_err(|Full| {
            let most = limits::SESSIONS;
            ApiError::TooManySessions(format!("{most} sessions exist already, all in use"))
        })?;
        Ok(id)
    }

    /// Session with this id.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub(super) fn get(&self, id: &str) -> ApiResult<Arc<Session>> {
        self.all.get(id).ok_or_else(|| not_found(id))
    }

    /// Removes a session and ends its run.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub(crate) fn delete(&self, id: &str) -> ApiResult<()> {
        let session = self.all.remove(id).ok_or_else(|| not_found(id))?;
        session.deleted.cancel();
        Ok(())
    }

    /// Ends sessions that have been idle for too long.
    pub(crate) fn end_idle(&self) {
        self.all.sweep();
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::no_session(format!("session {id} not found"))
}

impl Session {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// State for the next run.
    pub(super) fn state(&self) -> State {
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
    use crate::idle::manual;

    fn state() -> State {
        State {
            variables: Variables::default(),
            cwd: None,
        }
    }

    #[test]
    fn sessions_that_clients_left_behind_make_room_and_used_ones_never() {
        let (clock, millis) = manual::clock();
        let sessions = Sessions::with_clock(clock.clone());
        let ids: Vec<_> = (0..limits::SESSIONS)
            .map(|_| sessions.add(state()).unwrap())
            .collect();
        let refused = sessions.add(state()).unwrap_err();
        assert!(matches!(refused, ApiError::TooManySessions(_)), "{refused}");
        let oldest = sessions.get(&ids[0]).unwrap();
        let run = oldest.activity.begin();
        manual::pass(&clock, &millis, limits::IDLE_AT_LIMIT);
        for _ in 1..limits::SESSIONS {
            sessions.add(state()).unwrap();
        }
        assert!(sessions.add(state()).is_err());
        assert!(!oldest.deleted.is_cancelled() && sessions.get(&ids[1]).is_err());
        drop(run);
        manual::pass(&clock, &millis, limits::IDLE);
        sessions.end_idle();
        assert!(oldest.deleted.is_cancelled() && sessions.get(&ids[0]).is_err());
    }
}
