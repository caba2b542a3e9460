//! Registry of isolated sessions.

use std::{
    collections::{HashMap, VecDeque},
    path::PathBuf,
    sync::{Arc, Mutex, OnceLock},
};

use tokio::sync::OnceCell;

use super::{
    capabilities::Probed, quota::Measurement, record::Background, session::Session, upper,
};
use crate::{
    config::IsolationConfig,
    error::{ApiError, ApiResult},
    limits,
};

/// All isolated sessions. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct IsolatedSessions {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    config: OnceLock<IsolationConfig>,
    probed: OnceCell<Probed>,
    all: Mutex<All>,
    /// Reason why sessions may not write more, if so.
    excess: Mutex<Option<String>>,
    /// Measurements of what sessions write.
    measurement: Measurement,
    /// Upper directories of earlier daemons.
    stale: Mutex<Vec<PathBuf>>,
}

#[derive(Debug, Default)]
struct All {
    sessions: HashMap<String, Arc<Session>>,
    starting: usize,
    closed: bool,
    /// Runs of sessions that ended on their own; the oldest is dropped first.
    orphans: VecDeque<Arc<Background>>,
}

/// Reserved slot for a session that is starting.
#[derive(Debug)]
pub(super) struct Admission(IsolatedSessions);

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.all().starting -= 1;
    }
}

impl IsolatedSessions {
    /// Sets the configuration. Must be called before the first session is created; otherwise the
    /// defaults apply. Existing upper directories belong to an earlier daemon.
    pub fn configure(&self, config: IsolationConfig) {
        let stale = upper::stale(&config.upper_root);
        *self
            .inner
            .stale
            .lock()
            .expect("no holder of this lock panics") = stale;
        let set = self.inner.config.set(config);
        debug_assert!(set.is_ok(), "there is one configuration");
    }

    pub(super) fn config(&self) -> &IsolationConfig {
        self.inner.config.get_or_init(IsolationConfig::default)
    }

    pub(super) fn probed(&self) -> &OnceCell<Probed> {
        &self.inner.probed
    }

    fn all(&self) -> std::sync::MutexGuard<'_, All> {
        self.inner
            .all
            .lock()
            .expect("no holder of this lock panics")
    }

    /// Reserves a slot for a session.
    ///
    /// # Errors
    /// 429 at the limit; 503 when the daemon is stopping.
    pub(super) fn admit(&self) -> ApiResult<Admission> {
        let mut all = self.all();
        if all.closed {
            return Err(unavailable("execd is stopping"));
        }
        if all.sessions.len() + all.starting >= limits::ISOLATED_SESSIONS {
            let message = format!(
                "{} isolated sessions exist already",
                limits::ISOLATED_SESSIONS
            );
            return Err(ApiError::TooManySessions(message));
        }
        all.starting += 1;
        Ok(Admission(self.clone()))
    }

    /// Lists a session. Returns false when the daemon is stopping, so the session must end.
    pub(super) fn add(&self, session: &Arc<Session>) -> bool {
        let mut all = self.all();
        all.sessions.insert(session.id.clone(), Arc::clone(session));
        !all.closed
    }

    /// Removes a session from the list. Runs of a session that ended on its own stay available.
    pub(super) fn forget(&self, session: &Session, by_itself: bool) {
        let mut all = self.all();
        all.sessions.remove(&session.id);
        let runs =
            std::mem::take(&mut *session.runs.lock().expect("no holder of this lock panics"));
        if by_itself {
            all.orphans.extend(runs.into_values());
            let beyond = all.orphans.len().saturating_sub(limits::ISOLATED_ORPHANS);
            all.orphans.drain(..beyond);
        }
    }

    /// Session with this id.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub(super) fn get(&self, id: &str) -> ApiResult<Arc<Session>> {
        let found = self.all().sessions.get(id).cloned();
        found.ok_or_else(not_found)
    }

    /// Background run, perhaps of a session that ended on its own.
    ///
    /// # Errors
    /// 404 when session or run does not exist.
    pub(super) fn run(&self, session: &str, id: &str) -> ApiResult<Arc<Background>> {
        let all = self.all();
        let no_run = || ApiError::NoIsolatedSession(format!("run not found: {id}"));
        match all.sessions.get(session) {
            Some(session) => {
                let runs = session.runs.lock().expect("no holder of this lock panics");
                runs.get(id).cloned().ok_or_else(no_run)
            }
            None => {
                let is_it = |run: &&Arc<Background>| run.is(session, id);
                all.orphans
                    .iter()
                    .find(is_it)
                    .cloned()
                    .ok_or_else(not_found)
            }
        }
    }

    /// All sessions, in the order of creation.
    pub(super) fn list(&self) -> Vec<Arc<Session>> {
        let mut sessions: Vec<_> = self.all().sessions.values().cloned().collect();
        sessions
            .sort_by(|one, other| (one.created_at, &one.id).cmp(&(other.created_at, &other.id)));
        sessions
    }

    /// Ends all sessions, and rejects new ones.
    pub async fn close(&self) {
        self.all().closed = true;
        let sessions = self.list();
        futures::future::join_all(sessions.iter().map(|session| session.end())).await;
    }

    /// Takes the upper directories of earlier daemons.
    pub(super) fn take_stale(&self) -> Vec<PathBuf> {
        std::mem::take(
            &mut *self
                .inner
                .stale
                .lock()
                .expect("no holder of this lock panics"),
        )
    }

    pub(super) fn measurement(&self) -> &Measurement {
        &self.inner.measurement
    }

    /// Reason why sessions may not write more, if so.
    pub(super) fn excess(&self) -> Option<String> {
        self.inner
            .excess
            .lock()
            .expect("no holder of this lock panics")
            .clone()
    }

    pub(super) fn set_excess(&self, excess: Option<String>) {
        *self
            .inner
            .excess
            .lock()
            .expect("no holder of this lock panics") = excess;
    }
}

fn not_found() -> ApiError {
    ApiError::NoIsolatedSession("session not found".to_owned())
}

/// Error for a temporary condition.
pub(super) fn unavailable(message: impl Into<String>) -> ApiError {
    ApiError::Unavailable(message.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_beyond_the_limit_is_refused_until_another_ends() {
        let sessions = IsolatedSessions::default();
        let mut admitted: Vec<_> = (0..limits::ISOLATED_SESSIONS)
            .map(|_| sessions.admit().unwrap())
            .collect();
        let refused = sessions.admit().unwrap_err();
        let message = "256 isolated sessions exist already".to_owned();
        assert_eq!(refused, ApiError::TooManySessions(message));
        admitted.pop();
        assert!(sessions.admit().is_ok());
    }
}
