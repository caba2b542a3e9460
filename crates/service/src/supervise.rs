//! Tasks with an owner: each has a name, its panic is logged, and shutdown waits for it within a
//! bound. Nothing else in the workspace may call `tokio::spawn` (clippy.toml).

use std::{future::Future, time::Duration};

use tokio::task::JoinHandle;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, error, info_span};

/// Owns the tasks of a process or of one part of it. Clones share the tasks.
#[derive(Clone, Debug, Default)]
pub struct Supervisor {
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Every task ended by itself.
    Gracefully,
    /// The time was up; that many tasks still ran.
    TimedOut(usize),
}

impl Supervisor {
    /// A supervisor without tasks.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled to ask the tasks to end. Long-lived tasks select on it.
    #[must_use]
    pub fn stopping(&self) -> &CancellationToken {
        &self.stop
    }

    /// A supervisor whose tasks also stop when this one's do, and can be stopped on their own.
    #[must_use]
    pub fn child(&self) -> Self {
        Self {
            stop: self.stop.child_token(),
            tasks: self.tasks.clone(),
        }
    }

    /// Starts a task. It is not cancelled from outside: it must watch [`Supervisor::stopping`] if it
    /// does not end by itself.
    pub fn spawn<F>(&self, name: &'static str, task: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let reported = ReportPanic { name };
        let task = async move {
            let output = task.await;
            std::mem::forget(reported);
            output
        };
        self.tasks
            .spawn(task.instrument(info_span!("task", task = name)))
    }

    /// Starts a task that is dropped as soon as the supervisor stops: for work that may be cut at
    /// any await point, such as a connection that idles.
    pub fn spawn_abortable<F>(&self, name: &'static str, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let stop = self.stop.clone();
        self.spawn(name, async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = task => {}
            }
        });
    }

    /// Asks every task to end.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Asks every task to end and waits for that, at most for `limit`.
    pub async fn drain(&self, limit: Duration) -> Drained {
        self.stop.cancel();
        self.tasks.close();
        match tokio::time::timeout(limit, self.tasks.wait()).await {
            Ok(()) => Drained::Gracefully,
            Err(_) => Drained::TimedOut(self.tasks.len()),
        }
    }

    /// Tasks that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.tasks.len()
    }
}

/// Logs when it is dropped by a panic: a task that dies silently is an outage without a trace.
struct ReportPanic {
    name: &'static str,
}

impl Drop for ReportPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            error!(task = self.name, "task panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn drain_waits_for_tasks_that_watch_the_token() {
        let supervisor = Supervisor::new();
        let stop = supervisor.stopping().clone();
        let task = supervisor.spawn("waits", async move {
            stop.cancelled().await;
            7
        });
        assert_eq!(supervisor.running(), 1);
        assert_eq!(
            supervisor.drain(Duration::from_secs(30)).await,
            Drained::Gracefully
        );
        assert_eq!(task.await.unwrap(), 7);
    }

    #[tokio::test(start_paused = true)]
    async fn drain_gives_up_on_tasks_that_do_not_end() {
        let supervisor = Supervisor::new();
        supervisor.spawn("stuck", std::future::pending::<()>());
        supervisor.spawn_abortable("idle", std::future::pending());
        assert_eq!(
            supervisor.drain(Duration::from_secs(5)).await,
            Drained::TimedOut(1)
        );
    }

    #[tokio::test]
    async fn a_child_can_stop_alone() {
        let parent = Supervisor::new();
        let child = parent.child();
        child.stop();
        assert!(child.stopping().is_cancelled());
        assert!(!parent.stopping().is_cancelled());
    }
}
