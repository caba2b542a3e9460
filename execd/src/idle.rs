//! Idle sessions: how long each session that a client created has been unused, and which of them
//! end for it.
//!
//! A session ends after [`limits::IDLE`] without use. At the session limit, the session that has
//! been idle longest makes room for a new one, if it has been idle for [`limits::IDLE_AT_LIMIT`]. A
//! session that a client uses, or in which something runs, never ends here.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tracing::info;

use crate::limits;

/// Clock that counts while the daemon runs. While the sandbox is paused or the daemon is stopped,
/// clients cannot use their sessions, so that time does not count. The kernel does not report
/// pauses; they show as a gap between two readings, of which there is at least one every
/// [`limits::IDLE_TICK`].
#[derive(Clone)]
pub(crate) struct AwakeClock(Arc<Readings>);

struct Readings {
    /// Monotonic clock.
    read: Box<dyn Fn() -> Duration + Send + Sync>,
    state: Mutex<Reading>,
}

#[derive(Debug, Default)]
struct Reading {
    last: Duration,
    awake: Duration,
}

impl Default for AwakeClock {
    fn default() -> Self {
        let start = Instant::now();
        Self::reading(move || start.elapsed())
    }
}

impl AwakeClock {
    /// Creates a clock on top of another one, which must be monotonic.
    pub(crate) fn reading(read: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        let state = Mutex::new(Reading {
            last: read(),
            awake: Duration::ZERO,
        });
        Self(Arc::new(Readings {
            read: Box::new(read),
            state,
        }))
    }

    /// Counted time since the clock was created.
    fn now(&self) -> Duration {
        let mut state = self.0.state.lock().expect("no holder of this lock panics");
        let read = (self.0.read)();
        let since = read.saturating_sub(state.last);
        state.awake += since.min(limits::IDLE_GAP);
        state.last = read;
        state.awake
    }
}

impl fmt::Debug for AwakeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AwakeClock").field(&self.now()).finish()
    }
}

/// Last use of a session.
#[derive(Clone, Debug)]
pub(crate) struct Activity(Arc<Uses>);

#[derive(Debug)]
struct Uses {
    clock: AwakeClock,
    under_way: AtomicUsize,
    last: Mutex<Duration>,
}

impl Activity {
    fn new(clock: AwakeClock) -> Self {
        let last = Mutex::new(clock.now());
        let under_way = AtomicUsize::new(0);
        Self(Arc::new(Uses {
            clock,
            under_way,
            last,
        }))
    }

    fn last(&self) -> MutexGuard<'_, Duration> {
        self.0.last.lock().expect("no holder of this lock panics")
    }

    fn touch(&self) {
        let now = self.0.clock.now();
        *self.last() = now;
    }

    /// Records a use that lasts until the result is dropped.
    pub(crate) fn begin(&self) -> Use {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        Use(self.clone())
    }

    /// Time since the last use; zero during one.
    fn idle(&self) -> Duration {
        if self.0.under_way.load(Ordering::Relaxed) > 0 {
            return Duration::ZERO;
        }
        self.0.clock.now().saturating_sub(*self.last())
    }
}

/// Current use of a session.
#[derive(Debug)]
pub(crate) struct Use(Activity);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.touch();
        self.0.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Session in a [`Registry`].
pub(crate) trait Evictable {
    fn id(&self) -> &str;
    fn activity(&self) -> &Activity;
    /// Whether work in progress protects it from eviction.
    fn is_working(&self) -> bool;
    /// Releases its resources.
    fn end(&self);
}

/// Error at the session limit when no session can make room.
#[derive(Debug)]
pub(crate) struct Full;

/// All sessions of one type.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    all: Mutex<HashMap<String, Arc<T>>>,
    clock: AwakeClock,
    most: usize,
}

impl<T: Evictable> Registry<T> {
    /// Creates an empty registry with a session limit.
    pub(crate) fn new(most: usize, clock: AwakeClock) -> Self {
        let all = Mutex::default();
        Self { all, clock, most }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<String, Arc<T>>> {
        self.all.lock().expect("no holder of this lock panics")
    }

    /// Activity for a session that is being created.
    pub(crate) fn activity(&self) -> Activity {
        Activity::new(self.clock.clone())
    }

    /// Adds a session.
    pub(crate) fn add(&self, session: T) -> Result<(), Full> {
        let mut all = self.all();
        let evicted = if all.len() < self.most {
            None
        } else {
            Some(longest_idle(&all).ok_or(Full)?)
        };
        if let Some(evicted) = &evicted {
            all.remove(evicted.id());
        }
        all.insert(session.id().to_owned(), Arc::new(session));
        drop(all);
        if let Some(evicted) = evicted {
            end(&*evicted);
        }
        Ok(())
    }

    /// Looks up a session, which counts as a use of it.
    pub(crate) fn get(&self, id: &str) -> Option<Arc<T>> {
        let found = self.all().get(id).cloned()?;
        found.activity().touch();
        Some(found)
    }

    /// Removes a session without ending it.
    pub(crate) fn remove(&self, id: &str) -> Option<Arc<T>> {
        self.all().remove(id)
    }

    /// All sessions, in arbitrary order.
    pub(crate) fn list(&self) -> Vec<Arc<T>> {
        self.all().values().cloned().collect()
    }

    /// Ends sessions that have been idle for too long. Called every [`limits::IDLE_TICK`], which
    /// the clock needs.
    pub(crate) fn sweep(&self) {
        self.clock.now();
        let past = |session: &T| session.activity().idle() >= limits::IDLE && !session.is_working();
        let gone: Vec<_> = self
            .all()
            .extract_if(|_, session| past(session))
            .map(|(_, session)| session)
            .collect();
        for session in gone {
            end(&*session);
        }
    }
}

fn end(session: &impl Evictable) {
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

/// Clock that tests set.
#[cfg(test)]
pub(crate) mod manual {
    use std::sync::atomic::AtomicU64;

    use super::*;

    /// Creates a clock and the milliseconds that it reads.
    pub(crate) fn clock() -> (AwakeClock, Arc<AtomicU64>) {
        let millis = Arc::new(AtomicU64::new(0));
        let read = Arc::clone(&millis);
        let clock =
            AwakeClock::reading(move || Duration::from_millis(read.load(Ordering::Relaxed)));
        (clock, millis)
    }

    /// Advances the time, with the readings of a running daemon.
    pub(crate) fn pass(clock: &AwakeClock, millis: &AtomicU64, time: Duration) {
        let step = limits::IDLE_TICK;
        let mut left = time;
        while !left.is_zero() {
            let now = left.min(step);
            millis.fetch_add(u64::try_from(now.as_millis()).unwrap(), Ordering::Relaxed);
            clock.now();
            left -= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::{manual::pass, *};

    #[derive(Debug)]
    struct Member {
        id: String,
        activity: Activity,
        working: AtomicBool,
        ended: Arc<AtomicBool>,
    }

    impl Evictable for Member {
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

    fn add(registry: &Registry<Member>, id: &str) -> Result<Arc<AtomicBool>, Full> {
        let ended = Arc::<AtomicBool>::default();
        let member = Member {
            id: id.to_owned(),
            activity: registry.activity(),
            working: AtomicBool::new(false),
            ended: Arc::clone(&ended),
        };
        registry.add(member).map(|()| ended)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_day_without_a_use_ends_a_session_and_a_use_or_work_does_not_let_it_end() {
        let (clock, millis) = manual::clock();
        let registry = Registry::new(10, clock.clone());
        let [unused, used, working, asked] =
            ["unused", "used", "working", "asked"].map(|id| add(&registry, id).unwrap());
        let under_way = registry.get("used").unwrap().activity().begin();
        registry
            .get("working")
            .unwrap()
            .working
            .store(true, Ordering::Relaxed);
        pass(&clock, &millis, limits::IDLE - MINUTE);
        assert!(registry.get("asked").is_some());
        pass(&clock, &millis, MINUTE);
        registry.sweep();
        let ended = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        assert!(ended(&unused) && registry.get("unused").is_none());
        assert!(![&used, &working, &asked].into_iter().any(ended));
        drop(under_way);
        pass(&clock, &millis, limits::IDLE - MINUTE);
        registry.sweep();
        assert!(!ended(&used), "its last use ended less than a day ago");
        pass(&clock, &millis, MINUTE);
        registry.sweep();
        assert!(ended(&used) && ended(&asked) && !ended(&working));
    }

    #[test]
    fn time_in_which_the_daemon_did_not_run_does_not_count() {
        let (clock, millis) = manual::clock();
        let registry = Registry::new(1, clock.clone());
        let ended = add(&registry, "a").unwrap();
        // Paused for a year, twice.
        for _ in 0..2 {
            millis.fetch_add(365 * 24 * 3_600_000, Ordering::Relaxed);
            registry.sweep();
        }
        assert!(add(&registry, "b").is_err());
        assert!(!ended.load(Ordering::Relaxed));
        assert_eq!(clock.now(), 2 * limits::IDLE_GAP);
    }

    #[test]
    fn at_the_limit_the_longest_idle_makes_room_or_there_is_none() {
        let (clock, millis) = manual::clock();
        let registry = Registry::new(3, clock.clone());
        let [first, second, third] = ["1", "2", "3"].map(|id| {
            pass(&clock, &millis, MINUTE);
            add(&registry, id).unwrap()
        });
        pass(&clock, &millis, limits::IDLE_AT_LIMIT - 3 * MINUTE);
        assert!(add(&registry, "4").is_err(), "none is idle for long enough");
        pass(&clock, &millis, 3 * MINUTE);
        registry
            .get("1")
            .unwrap()
            .working
            .store(true, Ordering::Relaxed);
        registry.get("1").unwrap().activity().touch();
        let ended = |flag: &Arc<AtomicBool>| flag.load(Ordering::Relaxed);
        let fourth = add(&registry, "4").unwrap();
        assert!(ended(&second) && !ended(&first) && !ended(&third));
        pass(&clock, &millis, MINUTE);
        add(&registry, "5").unwrap();
        assert!(ended(&third) && !ended(&fourth));
        pass(&clock, &millis, limits::IDLE_AT_LIMIT);
        // The first is older, but something runs in it.
        add(&registry, "6").unwrap();
        assert!(ended(&fourth) && !ended(&first));
        assert_eq!(registry.list().len(), 3);
    }
}
