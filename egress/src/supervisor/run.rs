//! The loop of launches.

use std::{
    error::Error,
    io,
    path::PathBuf,
    pin::pin,
    process::{Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::{
    Options,
    backoff::Backoff,
    breaker::Breaker,
    children::{self, Children, Exit},
    duration,
    events::{Event, EventLog, Kind, Reason, milliseconds},
    hooks::Hooks,
    status,
};
use crate::sockets::{self, Held};

/// Reason why the supervisor cannot begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum SetupError {
    /// The event log cannot be opened.
    #[error("cannot open the event log {}", .path.display())]
    EventLog {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The handler for SIGCHLD cannot be installed.
    #[error("cannot listen for the end of children")]
    Children(#[source] io::Error),
}

/// A worker under supervision.
#[derive(Debug)]
pub(super) struct Supervision {
    options: Options,
    /// Lent to each worker.
    sockets: Option<Held>,
    children: Children,
    events: EventLog,
    backoff: Backoff,
    breaker: Breaker,
    stop: CancellationToken,
}

/// When the next launch comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    AtOnce,
    AfterBackoff,
}

/// A worker that was started.
#[derive(Clone, Copy, Debug)]
struct Worker {
    pid: Pid,
    attempt: u64,
    started: Instant,
}

impl Worker {
    /// Event about this worker.
    fn event(self, kind: Kind) -> Event {
        Event {
            pid: Some(self.pid.as_raw_nonzero().get()),
            ..launch_event(kind, self.attempt)
        }
    }
}

fn launch_event(kind: Kind, attempt: u64) -> Event {
    Event {
        generation: Some(attempt),
        attempt: Some(attempt),
        ..Event::new(kind)
    }
}

impl Supervision {
    /// Prepares everything; nothing is started yet. The worker runs until `stop` is cancelled.
    ///
    /// # Errors
    /// See [`SetupError`].
    pub(super) fn new(
        options: Options,
        sockets: Option<Held>,
        stop: CancellationToken,
    ) -> Result<Self, SetupError> {
        let log = options.event_log.as_deref();
        let events = EventLog::open(&options.name, log).map_err(|source| SetupError::EventLog {
            path: options.event_log.clone().unwrap_or_default(),
            source,
        })?;
        Ok(Self {
            children: Children::listen().map_err(SetupError::Children)?,
            events,
            backoff: Backoff::new(&options),
            breaker: Breaker::new(&options),
            stop,
            sockets,
            options,
        })
    }

    /// Launches the worker again and again. Returns the exit status of the supervisor.
    pub(super) async fn run(mut self) -> u8 {
        let mut attempt = 0;
        while !self.stop.is_cancelled() {
            attempt += 1;
            let next = self.launch(attempt).await;
            if self.stop.is_cancelled() {
                break;
            }
            if let Some(launches) = self.breaker.tripped(Instant::now()) {
                self.report_burst(launches, attempt);
                if self.options.on_burst_exit {
                    return status::TRIPPED;
                }
            }
            self.pause(next, attempt + 1).await;
        }
        self.events.write(Event {
            reason: Some(Reason::Shutdown),
            ..Event::new(Kind::Shutdown)
        });
        status::STOPPED
    }

    /// Launches the worker and waits until it has ended and the hooks after it, too.
    async fn launch(&mut self, attempt: u64) -> Next {
        let is_prepared = self.run_pre_start(attempt).await;
        self.breaker.launched(Instant::now());
        if !is_prepared || self.stop.is_cancelled() {
            return Next::AfterBackoff;
        }
        let started = Instant::now();
        let pid = match self.start_worker() {
            Ok(pid) => pid,
            Err(error) => {
                self.report_failed_launch(&error, attempt);
                return Next::AfterBackoff;
            }
        };
        let worker = Worker {
            pid,
            attempt,
            started,
        };
        info!(
            pid = pid.as_raw_nonzero(),
            attempt, "the worker was started"
        );
        self.events.write(worker.event(Kind::Start));
        let exit = self.watch(worker).await;
        let uptime = started.elapsed();
        self.report_exit(worker, exit, uptime);
        let is_stable = uptime >= self.options.stable_after;
        if is_stable {
            self.report_stable(worker);
        }
        self.run_post_exit(worker, exit, uptime).await;
        // A worker that ran for less than a backoff would be restarted in a tight loop.
        match is_stable && uptime >= self.options.backoff_min {
            true => Next::AtOnce,
            false => Next::AfterBackoff,
        }
    }

    /// Starts the worker. Its standard input has the sockets that it is lent.
    fn start_worker(&self) -> io::Result<Pid> {
        let mut command = Command::new(&self.options.program);
        command.args(&self.options.arguments);
        let input = match &self.sockets {
            Some(held) => {
                command.env(sockets::VARIABLE, "stdin");
                held.lend()?.into()
            }
            None => Stdio::null(),
        };
        children::start(&mut command, input)
    }

    /// Waits for the worker's end, and stops it when the supervisor stops.
    async fn watch(&mut self, worker: Worker) -> Exit {
        let mut stable = pin!(sleep(self.options.stable_after));
        let mut grace = pin!(sleep(Duration::ZERO));
        let (mut was_stable, mut was_asked, mut was_killed) = (false, false, false);
        loop {
            tokio::select! {
                biased;
                exit = self.children.exit_of(worker.pid) => return exit,
                () = self.stop.cancelled(), if !was_asked => {
                    was_asked = true;
                    children::signal_group(worker.pid, Signal::TERM);
                    grace.as_mut().reset(Instant::now() + self.options.grace_period);
                }
                () = &mut grace, if was_asked && !was_killed => {
                    was_killed = true;
                    warn!(pid = worker.pid.as_raw_nonzero(), "the worker did not stop in time");
                    children::signal_group(worker.pid, Signal::KILL);
                }
                () = &mut stable, if !was_stable && !was_asked => {
                    was_stable = true;
                    self.report_stable(worker);
                }
            }
        }
    }

    /// Waits until the next launch is due, or the supervisor stops.
    async fn pause(&mut self, next: Next, next_attempt: u64) {
        let pause = match next {
            Next::AtOnce => Duration::ZERO,
            Next::AfterBackoff => self.backoff.next(rand::random()),
        };
        self.events.write(Event {
            sleep_ms: Some(milliseconds(pause)),
            next_attempt: Some(next_attempt),
            ..Event::new(Kind::Backoff)
        });
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            () = sleep(pause) => {}
            never = self.children.reap_orphans() => match never {},
        }
    }

    async fn run_pre_start(&mut self, attempt: u64) -> bool {
        let hooks = Hooks {
            kind: Kind::Prestart,
            programs: &self.options.pre_start,
            attempt,
            variables: &[],
            timeout: self.options.pre_start_timeout,
            stop: &self.stop,
        };
        hooks.run(&mut self.children, &mut self.events).await
    }

    /// Runs the hooks after an exit. They clean up, so they run while the supervisor stops, too.
    async fn run_post_exit(&mut self, worker: Worker, exit: Exit, uptime: Duration) {
        let hooks = Hooks {
            kind: Kind::Postexit,
            programs: &self.options.post_exit,
            attempt: worker.attempt,
            variables: &[
                ("WORKER_EXIT_CODE", exit.code().to_string()),
                ("WORKER_SIGNAL", exit.signal().unwrap_or_default()),
                ("WORKER_DURATION_MS", milliseconds(uptime).to_string()),
                ("WORKER_PID", worker.pid.as_raw_nonzero().to_string()),
                ("WORKER_ATTEMPT", worker.attempt.to_string()),
            ],
            timeout: self.options.post_exit_timeout,
            stop: &CancellationToken::new(),
        };
        // A failure is in the log and changes nothing.
        hooks.run(&mut self.children, &mut self.events).await;
    }

    fn report_exit(&mut self, worker: Worker, exit: Exit, uptime: Duration) {
        let reason = match exit {
            Exit::Unknown => Reason::NoProcessstate,
            _ if self.stop.is_cancelled() => Reason::Shutdown,
            Exit::Code(0) => Reason::Exited,
            Exit::Code(_) => Reason::Crashed,
            Exit::Signal(_) => Reason::Signaled,
        };
        let pid = worker.pid.as_raw_nonzero();
        match reason {
            Reason::Shutdown => info!(pid, ?exit, ?uptime, "the worker has stopped"),
            _ => warn!(pid, ?exit, ?uptime, "the worker has ended"),
        }
        self.events.write(Event {
            exit_code: Some(exit.code()),
            signal: exit.signal(),
            duration_ms: Some(milliseconds(uptime)),
            reason: Some(reason),
            ..worker.event(Kind::Exit)
        });
    }

    fn report_failed_launch(&mut self, error: &io::Error, attempt: u64) {
        error!(
            error = error as &dyn Error,
            attempt, "the worker cannot be started"
        );
        self.events.write(Event {
            reason: Some(Reason::LaunchFailed),
            error: Some(error.to_string()),
            ..launch_event(Kind::Exit, attempt)
        });
    }

    /// Resets the backoff, once for each worker.
    fn report_stable(&mut self, worker: Worker) {
        if self.backoff.reset() {
            self.events.write(Event {
                duration_ms: Some(milliseconds(worker.started.elapsed())),
                reset_backoff: Some(true),
                ..worker.event(Kind::Stable)
            });
        }
    }

    fn report_burst(&mut self, launches: usize, attempt: u64) {
        let window = duration::format(self.options.burst_window);
        error!(launches, window, "the worker was launched too often");
        self.events.write(Event {
            attempt: Some(attempt),
            attempts: Some(launches),
            window: Some(window),
            ..Event::new(Kind::BurstExit)
        });
    }
}
