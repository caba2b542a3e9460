//! Use of sessions, on a clock that ignores pauses of the sandbox.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

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
    pub(super) fn now(&self) -> Duration {
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
pub struct Activity(Arc<Uses>);

#[derive(Debug)]
struct Uses {
    clock: AwakeClock,
    under_way: AtomicUsize,
    last: Mutex<Duration>,
}

impl Activity {
    pub(super) fn new(clock: AwakeClock) -> Self {
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

    pub(super) fn touch(&self) {
        let now = self.0.clock.now();
        *self.last() = now;
    }

    /// Records a use that lasts until the result is dropped.
    pub(crate) fn begin(&self) -> Use {
        self.0.under_way.fetch_add(1, Ordering::Relaxed);
        Use(self.clone())
    }

    /// Time since the last use; zero during one.
    pub(super) fn idle(&self) -> Duration {
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
