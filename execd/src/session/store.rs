//! Sessions and their state.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;

use crate::{
    env::{Variables, report::Reported},
    error::{ApiError, ApiResult},
    limits,
};

/// Set by every shell for itself.
const OF_THE_SHELL: &str = "_";
/// How deep the shell is in others: `bash` counts one up from what it gets. Runs come one after the
/// other, so each begins with what the session began with.
const DEPTH: &str = "SHLVL";

/// All sessions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    all: Arc<Mutex<HashMap<String, Arc<Session>>>>,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    /// Held by the run under way: two at once would lose each other's changes.
    pub(super) turn: tokio::sync::Mutex<()>,
    /// Cancelled when the session is deleted.
    pub(super) deleted: CancellationToken,
    state: Mutex<State>,
}

/// What a run begins with.
#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) variables: Variables,
    pub(super) cwd: Option<PathBuf>,
}

impl Sessions {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.all.lock().expect("no holder of this lock panics")
    }

    /// Makes a session.
    ///
    /// # Errors
    /// When there are too many.
    pub(super) fn add(&self, state: State) -> ApiResult<String> {
        let id = uuid::Uuid::new_v4().to_string();
        let session = Session {
            id: id.clone(),
            turn: tokio::sync::Mutex::default(),
            deleted: CancellationToken::new(),
            state: Mutex::new(state),
        };
        let mut all = self.all();
        if all.len() >= limits::SESSIONS {
            let message = format!("{} sessions exist already", limits::SESSIONS);
            return Err(ApiError::runtime(message));
        }
        all.insert(id.clone(), Arc::new(session));
        Ok(id)
    }

    /// A session.
    ///
    /// # Errors
    /// 404 when there is none of that id.
    pub(super) fn get(&self, id: &str) -> ApiResult<Arc<Session>> {
        self.all().get(id).cloned().ok_or_else(|| not_found(id))
    }

    /// Forgets a session and ends what runs in it.
    ///
    /// # Errors
    /// 404 when there is none of that id.
    pub(crate) fn delete(&self, id: &str) -> ApiResult<()> {
        let session = self.all().remove(id).ok_or_else(|| not_found(id))?;
        session.deleted.cancel();
        Ok(())
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::no_session(format!("session {id} not found"))
}

impl Session {
    fn locked(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// What the next run begins with.
    pub(super) fn state(&self) -> State {
        self.locked().clone()
    }

    /// Takes over what a run left.
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
