//! Sessions that clients create, and the end of those that no client uses.
//!
//! A session ends after [`limits::IDLE`] without use. At the session limit, the session that has
//! been idle longest makes room for a new one, if it has been idle for [`limits::IDLE_AT_LIMIT`]. A
//! session that a client uses, or in which something runs, never ends here.

mod clock;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tracing::info;

pub(crate) use self::clock::Activity;
use self::clock::AwakeClock;
#[cfg(test)]
pub(crate) use self::clock::manual;
use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Session of a [`Registry`].
pub trait Evictable {
    /// Name of the session type in messages to clients.
    const KIND: &'static str;
    /// Maximum number of sessions.
    const LIMIT: usize;

    /// Id, by which clients name the session.
    fn id(&self) -> &str;
    /// Record of its uses.
    fn activity(&self) -> &Activity;
    /// Whether work in progress protects it from eviction.
    fn is_working(&self) -> bool;
    /// Ends what runs in it, and releases its resources.
    fn end(&self);
}

/// All sessions of one type. Clones share them.
#[derive(Debug)]
pub struct Registry<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    sessions: Mutex<HashMap<String, Arc<T>>>,
    clock: AwakeClock,
}

impl<T> Clone for Registry<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Evictable> Default for Registry<T> {
    fn default() -> Self {
        Self::with_clock(AwakeClock::default())
    }
}

impl<T: Evictable> Registry<T> {
    /// Creates an empty registry that measures idle time by this clock.
    pub(crate) fn with_clock(clock: AwakeClock) -> Self {
        let sessions = Mutex::default();
        Self(Arc::new(Inner { sessions, clock }))
    }

    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Arc<T>>> {
        self.0
            .sessions
            .lock()
            .expect("no holder of this lock panics")
    }

    /// Adds a session, made from its new id and the record of its uses. Returns the id.
    ///
    /// # Errors
    /// 429 at the limit when no session can make room.
    pub(crate) fn add(&self, make: impl FnOnce(String, Activity) -> T) -> ApiResult<String> {
        let id = uuid::Uuid::new_v4().to_string();
        let session = make(id.clone(), Activity::new(self.0.clock.clone()));
        let mut sessions = self.sessions();
        let evicted = if sessions.len() < T::LIMIT {
            None
        } else {
            Some(longest_idle(&sessions).ok_or_else(|| all_in_use::<T>())?)
        };
        if let Some(evicted) = &evicted {
            sessions.remove(evicted.id());
        }
        sessions.insert(id.clone(), Arc::new(session));
        drop(sessions);
        if let Some(evicted) = evicted {
            evict(&*evicted);
        }
        Ok(id)
    }

    /// Looks up a session, which counts as a use of it.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub(crate) fn get(&self, id: &str) -> ApiResult<Arc<T>> {
        let found = self.sessions().get(id).cloned();
        let found = found.ok_or_else(|| not_found::<T>(id))?;
        found.activity().touch();
        Ok(found)
    }

    /// Removes a session and ends it.
    ///
    /// # Errors
    /// 404 when it does not exist.
    pub(crate) fn delete(&self, id: &str) -> ApiResult<()> {
        let removed = self.sessions().remove(id);
        removed.ok_or_else(|| not_found::<T>(id))?.end();
        Ok(())
    }

    /// All sessions, in arbitrary order.
    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.sessions().values().cloned().collect()
    }

    /// Ends sessions that have been idle for too long. Must be called every
    /// [`limits::IDLE_TICK`], which the clock needs.
    pub(crate) fn end_idle(&self) {
        self.0.clock.now();
        let past = |session: &T| session.activity().idle() >= limits::IDLE && !session.is_working();
        let idle: Vec<_> = self
            .sessions()
            .extract_if(|_, session| past(session))
            .map(|(_, session)| session)
            .collect();
        for session in idle {
            evict(&*session);
        }
    }
}

fn not_found<T: Evictable>(id: &str) -> ApiError {
    ApiError::no_session(format!("{} {id} not found", T::KIND))
}

fn all_in_use<T: Evictable>() -> ApiError {
    let (limit, kind) = (T::LIMIT, T::KIND);
    ApiError::TooManySessions(format!("{limit} {kind}s exist already, all in use"))
}

fn evict(session: &impl Evictable) {
    let idle = session.activity().idle();
    info!(
        id = session.id(),
        ?idle,
        "session ended because no client used it"
    );
    session.end();
}

/// Session to evict, if there is one.
fn longest_idle<T: Evictable>(all: &HashMap<String, Arc<T>>) -> Option<Arc<T>> {
    let idle = |session: &Arc<T>| session.activity().idle();
    let mut sessions: Vec<_> = all
        .values()
        .map(|session| (idle(session), session))
        .collect();
    sessions.retain(|(idle, _)| *idle >= limits::IDLE_AT_LIMIT);
    sessions.sort_by_key(|(idle, _)| std::cmp::Reverse(*idle));
    sessions
        .into_iter()
        .find(|(_, session)| !session.is_working())
        .map(|(_, session)| Arc::clone(session))
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering},
        time::Duration,
    };

    use super::{manual::pass, *};

    #[derive(Debug)]
    struct TestSession<const LIMIT: usize> {
        id: String,
        activity: Activity,
        working: AtomicBool,
        ended: AtomicBool,
    }

    impl<const LIMIT: usize> Evictable for TestSession<LIMIT> {
        const KIND: &'static str = "test session";
        const LIMIT: usize = LIMIT;

        fn id(&self) -> &str {
            &self.id
        }

        fn activity(&self) -> &Activity {
            &self.activity
        }

        fn is_working(&self) -> bool {
            self.working.load(Ordering::Relaxed)
        }

        fn end(&self) {
            self.ended.store(true, Ordering::Relaxed);
        }
    }

    impl<const LIMIT: usize> TestSession<LIMIT> {
        fn work(&self) {
            self.working.store(true, Ordering::Relaxed);
        }

        fn has_ended(&self) -> bool {
            self.ended.load(Ordering::Relaxed)
        }
    }

    fn add<const LIMIT: usize>(
        registry: &Registry<TestSession<LIMIT>>,
    ) -> ApiResult<Arc<TestSession<LIMIT>>> {
        let id = registry.add(|id, activity| TestSession {
            id,
            activity,
            working: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        })?;
        registry.get(&id)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn only_unused_sessions_without_work_end_after_a_day() {
        let (clock, millis) = manual::clock();
        let registry = Registry::<TestSession<10>>::with_clock(clock.clone());
        let [unused, used, working, looked_up] = [(); 4].map(|()| add(&registry).unwrap());
        let under_way = used.activity().begin();
        working.work();
        pass(&clock, &millis, limits::IDLE - MINUTE);
        assert!(registry.get(looked_up.id()).is_ok());
        pass(&clock, &millis, MINUTE);
        registry.end_idle();
        assert!(unused.has_ended());
        let missing = registry.get(unused.id()).unwrap_err().to_string();
        assert_eq!(missing, format!("test session {} not found", unused.id()));
        assert!(
            ![&used, &working, &looked_up]
                .iter()
                .any(|session| session.has_ended())
        );
        drop(under_way);
        pass(&clock, &millis, limits::IDLE - MINUTE);
        registry.end_idle();
        assert!(!used.has_ended(), "its last use ended less than a day ago");
        pass(&clock, &millis, MINUTE);
        registry.end_idle();
        assert!(used.has_ended() && looked_up.has_ended() && !working.has_ended());
    }

    #[test]
    fn time_in_which_the_daemon_did_not_run_does_not_count() {
        let (clock, millis) = manual::clock();
        let registry = Registry::<TestSession<1>>::with_clock(clock.clone());
        let session = add(&registry).unwrap();
        // Paused for a year, twice.
        for _ in 0..2 {
            millis.fetch_add(365 * 24 * 3_600_000, Ordering::Relaxed);
            registry.end_idle();
        }
        let refused = add(&registry).unwrap_err();
        let message = "1 test sessions exist already, all in use";
        assert_eq!(refused, ApiError::TooManySessions(message.to_owned()));
        assert!(!session.has_ended());
        assert_eq!(clock.now(), 2 * limits::IDLE_GAP);
    }

    #[test]
    fn the_longest_idle_session_makes_room_at_the_limit() {
        let (clock, millis) = manual::clock();
        let registry = Registry::<TestSession<3>>::with_clock(clock.clone());
        let [first, second, third] = [(); 3].map(|()| {
            pass(&clock, &millis, MINUTE);
            add(&registry).unwrap()
        });
        pass(&clock, &millis, limits::IDLE_AT_LIMIT - 3 * MINUTE);
        assert!(add(&registry).is_err(), "none is idle for long enough");
        pass(&clock, &millis, 3 * MINUTE);
        first.work();
        first.activity().touch();
        let fourth = add(&registry).unwrap();
        assert!(second.has_ended() && !first.has_ended() && !third.has_ended());
        pass(&clock, &millis, MINUTE);
        add(&registry).unwrap();
        assert!(third.has_ended() && !fourth.has_ended());
        pass(&clock, &millis, limits::IDLE_AT_LIMIT);
        // The first session is older, but has work in progress.
        add(&registry).unwrap();
        assert!(fourth.has_ended() && !first.has_ended());
        assert_eq!(registry.list().len(), 3);
    }

    #[test]
    fn a_deleted_session_ends_once() {
        let registry = Registry::<TestSession<1>>::default();
        let session = add(&registry).unwrap();
        registry.delete(session.id()).unwrap();
        assert!(session.has_ended());
        assert!(registry.delete(session.id()).is_err());
    }
}
