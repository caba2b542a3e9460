//! Work that may block a worker thread, without a hand-over of the worker to another thread.
//!
//! A worker that blocks may be the only one that is awake, and then nothing notices new requests.
//! `block_in_place` wakes another thread for that beforehand, which costs more than the rest of a
//! short command's start. Here a thread watches the work instead, and wakes another worker when it
//! lasts. One worker at a time may be watched, so that others are left.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread::{self, Thread},
    time::{Duration, Instant},
};

use tokio::runtime::Handle;

use crate::limits;

thread_local! {
    /// Whether this thread runs watched work.
    static WATCHED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs watched work.
pub(super) fn is_watched() -> bool {
    WATCHED.get()
}

/// Watches the workers of one runtime.
#[derive(Debug)]
pub(super) struct Watch {
    shared: Arc<Shared>,
    watcher: Thread,
}

#[derive(Debug)]
struct Shared {
    /// When the work began, in milliseconds after `epoch` and at least 1; 0 while there is none.
    since: AtomicU64,
    epoch: Instant,
    /// Whether the watcher sleeps until it is woken.
    is_asleep: AtomicBool,
    /// Whether no more work can come.
    is_over: AtomicBool,
}

impl Watch {
    /// Starts a watcher for the runtime.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(super) fn start(runtime: Handle) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            since: AtomicU64::new(0),
            epoch: Instant::now(),
            is_asleep: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
        });
        let watched = Arc::clone(&shared);
        let watcher = thread::Builder::new()
            .name("execd-watch".to_owned())
            .stack_size(limits::WATCH_STACK)
            .spawn(move || {
                let mut quiet = Duration::ZERO;
                while !watched.is_over.load(SeqCst) {
                    quiet = watched.look(&runtime, quiet);
                }
            })?;
        Ok(Self {
            shared,
            watcher: watcher.thread().clone(),
        })
    }

    /// Runs work on this thread under watch. `Err` returns the work if other work is under watch.
    pub(super) fn run<T, W: FnOnce() -> T>(&self, work: W) -> Result<T, W> {
        let now = self.shared.now();
        if self
            .shared
            .since
            .compare_exchange(0, now, SeqCst, SeqCst)
            .is_err()
        {
            return Err(work);
        }
        let _end = End(&self.shared);
        if self.shared.is_asleep.swap(false, SeqCst) {
            self.watcher.unpark();
        }
        WATCHED.set(true);
        Ok(work())
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.is_over.store(true, SeqCst);
        self.watcher.unpark();
    }
}

/// Ends the watch, even if the work panics.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        WATCHED.set(false);
        self.0.since.store(0, SeqCst);
    }
}

impl Shared {
    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_millis()).map_or(u64::MAX, |millis| millis.max(1))
    }

    /// Sleeps for one tick, or until there is work after a time without. Then wakes a worker, if
    /// work has lasted that long. Returns for how long there has been no work.
    fn look(&self, runtime: &Handle, quiet: Duration) -> Duration {
        if quiet >= limits::WATCH_QUIET {
            self.is_asleep.store(true, SeqCst);
            // Work that began before is seen here; later work wakes this thread.
            if self.since.load(SeqCst) == 0 && !self.is_over.load(SeqCst) {
                thread::park();
            }
            self.is_asleep.store(false, SeqCst);
        }
        thread::park_timeout(limits::WATCH_TICK);
        match self.since.load(SeqCst) {
            0 => quiet + limits::WATCH_TICK,
            since => {
                let tick = limits::WATCH_TICK.as_millis();
                if u128::from(self.now().saturating_sub(since)) >= tick {
                    // Any task wakes a worker, which then also waits for requests.
                    runtime.spawn(async {});
                }
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::net::UnixStream, sync::mpsc};

    use tokio::{io::AsyncReadExt, runtime::Runtime};

    use super::*;

    #[test]
    fn sockets_are_noticed_while_watched_work_hangs() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let watch = Watch::start(runtime.handle().clone()).unwrap();
        let (mut begin, begins) = socket(&runtime);
        let (mut request, requests) = socket(&runtime);
        let (go, wait) = mpsc::channel();
        let (began, begun) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        // The worker that notices the first byte is the one that waits for sockets. Usually the
        // other one sleeps then, and nothing but the watcher wakes it.
        let hanging = runtime.spawn(async move {
            let mut begins = begins;
            begins.read_u8().await.unwrap();
            let hung = watch.run(|| {
                began.send(()).unwrap();
                wait.recv().unwrap();
                is_watched()
            });
            assert!(hung.is_ok_and(|watched| watched) && !is_watched());
            watch
        });
        runtime.spawn(async move {
            let mut requests = requests;
            while let Ok(byte) = requests.read_u8().await {
                answer.send(byte).unwrap();
            }
        });
        begin.write_all(b"x").unwrap();
        begun.recv().unwrap();
        request.write_all(b"y").unwrap();
        let answered = answers.recv_timeout(Duration::from_secs(60));
        go.send(()).unwrap();
        assert_eq!(answered, Ok(b'y'));
        let watch = runtime.block_on(hanging).unwrap();
        assert!(watch.run(|| ()).is_ok());
    }

    fn socket(runtime: &Runtime) -> (UnixStream, tokio::net::UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let _context = runtime.enter();
        (ours, tokio::net::UnixStream::from_std(theirs).unwrap())
    }

    #[test]
    fn one_worker_at_a_time_is_watched() {
        let runtime = Runtime::new().unwrap();
        let watch = Watch::start(runtime.handle().clone()).unwrap();
        let inner = watch.run(|| watch.run(|| ()).is_err());
        assert!(inner.is_ok_and(|refused| refused));
        assert!(watch.run(|| ()).is_ok());
    }

    #[test]
    fn a_watcher_that_fell_asleep_is_woken() {
        // Nothing drives this runtime, so the tasks that are to wake a worker stay visible.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let watch = Watch::start(runtime.handle().clone()).unwrap();
        let pause = || thread::park_timeout(limits::WATCH_TICK);
        while !watch.shared.is_asleep.load(SeqCst) {
            pause();
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        let noticed = watch.run(|| {
            while runtime.metrics().num_alive_tasks() == 0 && Instant::now() < deadline {
                pause();
            }
            runtime.metrics().num_alive_tasks() > 0
        });
        assert!(noticed.is_ok_and(|noticed| noticed));
    }
}
