//! Terminal sessions and their holders.

use std::{
    io,
    sync::{Arc, Mutex},
};

use osb_protocol::execd::pty::PtyStatus;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    process::{PtyProcess, Start, read, read_now},
    scrollback::{Scrollback, Stream},
};
use crate::{
    base::Base,
    blocking::start_in_place,
    idle::{Activity, Evictable, Registry},
    limits,
    process::Exit,
};

/// All terminal sessions. Clones share them.
pub type PtySessions = Registry<PtySession>;

impl PtySessions {
    /// Sends SIGHUP to every shell on a terminal.
    pub(crate) fn hang_up(&self) {
        for session in self.list() {
            if let Some(run) = session.run().filter(|run| run.running.is_terminal()) {
                run.running.process.signal(Signal::HUP);
            }
        }
    }
}

/// Terminal session.
#[derive(Debug)]
pub struct PtySession {
    pub(super) id: String,
    start: Start,
    pub(super) scrollback: Scrollback,
    state: Mutex<State>,
    /// Cancelled when the session is deleted.
    pub(super) deleted: CancellationToken,
    /// Every connection is a use while it lasts.
    pub(super) activity: Activity,
}

impl Evictable for PtySession {
    const KIND: &'static str = "pty session";
    const LIMIT: usize = limits::PTY_SESSIONS;

    fn id(&self) -> &str {
        &self.id
    }

    fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Whether the session's command runs, or a command that its shell waits for. Background jobs
    /// of a shell do not count.
    fn is_working(&self) -> bool {
        let Some(run) = self.run() else {
            return false;
        };
        self.start.command.is_some() || run.running.has_foreground_job()
    }

    fn end(&self) {
        self.deleted.cancel();
        if let Some(run) = self.run() {
            run.running.process.kill_tree();
        }
    }
}

#[derive(Debug, Default)]
struct State {
    run: Option<Arc<Run>>,
    holder: Option<Holder>,
    next_holder: u64,
}

/// Run of a session's process, from its start to the last byte of its output.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) running: PtyProcess,
    /// Exit and final output offset, set when the scrollback has all output.
    pub(super) end: watch::Sender<Option<(Exit, u64)>>,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    evict: CancellationToken,
    /// Cancelled when the holder has released the session.
    released: CancellationToken,
}

/// Exclusive right to write to a session; released on drop.
#[derive(Debug)]
pub(super) struct HolderGuard {
    session: Arc<PtySession>,
    number: u64,
    /// Cancelled when another client takes over.
    pub(super) evicted: CancellationToken,
    released: CancellationToken,
}

impl Drop for HolderGuard {
    fn drop(&mut self) {
        let mut state = self.session.state();
        if state
            .holder
            .as_ref()
            .is_some_and(|holder| holder.number == self.number)
        {
            state.holder = None;
            self.session.scrollback.set_holder(None);
        }
        drop(state);
        self.released.cancel();
    }
}

impl PtySession {
    /// Creates a session without a process.
    pub(super) fn new(id: String, activity: Activity, start: Start) -> Self {
        Self {
            id,
            start,
            scrollback: Scrollback::default(),
            state: Mutex::default(),
            deleted: CancellationToken::new(),
            activity,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Current run, until all its output has been read.
    pub(super) fn run(&self) -> Option<Arc<Run>> {
        let run = self.state().run.clone();
        run.filter(|run| run.end.borrow().is_none())
    }

    pub(super) fn status(&self) -> PtyStatus {
        PtyStatus {
            session_id: self.id.clone(),
            running: self.run().is_some_and(|run| run.running.ended().is_none()),
            output_offset: self.scrollback.total(),
        }
    }

    /// Makes the caller the holder, unless there is one.
    pub(super) fn try_hold(self: &Arc<Self>) -> Option<HolderGuard> {
        let mut state = self.state();
        if state.holder.is_some() {
            return None;
        }
        let number = state.next_holder;
        state.next_holder += 1;
        let evicted = CancellationToken::new();
        let released = CancellationToken::new();
        state.holder = Some(Holder {
            number,
            evict: evicted.clone(),
            released: released.clone(),
        });
        Some(HolderGuard {
            session: Arc::clone(self),
            number,
            evicted,
            released,
        })
    }

    /// Evicts the holder and takes its place. `None` if the holder does not release the session in
    /// time.
    pub(super) async fn take_over(self: &Arc<Self>) -> Option<HolderGuard> {
        let taken = async {
            loop {
                if let Some(hold) = self.try_hold() {
                    return hold;
                }
                let holder = self
                    .state()
                    .holder
                    .as_ref()
                    .map(|holder| (holder.evict.clone(), holder.released.clone()));
                if let Some((evict, released)) = holder {
                    evict.cancel();
                    released.cancelled().await;
                }
            }
        };
        tokio::time::timeout(limits::PTY_TAKEOVER, taken).await.ok()
    }

    /// Starts a process unless one runs, and returns its run. Only the holder calls this, so two
    /// starts never overlap.
    ///
    /// # Errors
    /// The system's error, or an error for a deleted session.
    pub(super) async fn ensure_started(
        self: &Arc<Self>,
        base: &Base,
        terminal: bool,
    ) -> io::Result<Arc<Run>> {
        self.refuse_deleted()?;
        if let Some(run) = self.run() {
            return Ok(run);
        }
        // Without the lock: the directory or the program may lie on a file system that hangs, and
        // other requests read the state meanwhile.
        let running = start_in_place(|| PtyProcess::start(base, &self.start, terminal)).await;
        let running = running.map_err(io::Error::other)??;
        info!(
            id = self.id,
            pid = running.process.pid().as_raw_nonzero(),
            "pty started"
        );
        let run = Arc::new(Run {
            running,
            end: watch::Sender::new(None),
        });
        self.state().run = Some(Arc::clone(&run));
        base.tasks
            .spawn("pty", Arc::clone(self).pump(Arc::clone(&run)));
        // A delete ends the run that it finds. One that came before the run was there found none.
        if let Err(deleted) = self.refuse_deleted() {
            run.running.process.kill_tree();
            return Err(deleted);
        }
        Ok(run)
    }

    fn refuse_deleted(&self) -> io::Result<()> {
        if self.deleted.is_cancelled() {
            let text = "the session was deleted";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        Ok(())
    }

    /// Moves output to the scrollback until the process has ended and everything it wrote is there.
    async fn pump(self: Arc<Self>, run: Arc<Run>) {
        let moves = run.running.outputs.iter().map(|(stream, end)| async {
            let mut buffer = vec![0; limits::PTY_READ];
            while let Some(len) = read(end, &mut buffer).await {
                self.scrollback.push(*stream, &buffer[..len]);
                self.scrollback.make_room(limits::PTY_PATIENCE).await;
            }
        });
        let all_closed = futures::future::join_all(moves);
        let exit = tokio::select! {
            _ = all_closed => run.running.process.exited().await,
            exit = run.running.process.exited() => exit,
        };
        // The kernel now holds everything that the process wrote. Its children may write more,
        // which this does not wait for.
        for (stream, end) in &run.running.outputs {
            self.drain(*stream, end);
        }
        info!(id = self.id, %exit, "pty ended");
        run.end.send_replace(Some((exit, self.scrollback.total())));
        let mut state = self.state();
        // The descriptors close with the last connection that uses them, which hangs up the
        // terminal for its remaining processes.
        if state
            .run
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, &run))
        {
            state.run = None;
        }
    }

    /// Moves available output to the scrollback, at most as much as it holds.
    fn drain(&self, stream: Stream, end: &super::process::AsyncDescriptor) {
        let mut buffer = vec![0; limits::PTY_READ];
        let mut left = limits::PTY_RING;
        while left > 0
            && let Some(len) = read_now(end, &mut buffer)
        {
            self.scrollback.push(stream, &buffer[..len]);
            left = left.saturating_sub(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use osb_service::Supervisor;

    use super::*;
    use crate::{
        env::{Environment, Variables},
        idle::manual,
        pty::process::write,
    };

    fn add(sessions: &PtySessions, command: Option<&str>) -> Arc<PtySession> {
        let start = Start {
            command: command.map(str::to_owned),
            ..Start::default()
        };
        let id = sessions
            .add(|id, activity| PtySession::new(id, activity, start))
            .unwrap();
        sessions.get(&id).unwrap()
    }

    #[tokio::test]
    async fn a_deleted_session_starts_no_process() {
        let environment = Environment::new(Variables::default());
        let base = Base::new(environment, Supervisor::new());
        let sessions = PtySessions::default();
        let session = add(&sessions, Some("true"));
        sessions.delete(&session.id).unwrap();
        assert!(session.ensure_started(&base, false).await.is_err());
        assert!(session.run().is_none());
    }

    /// Creates a session whose shell runs a job and has no client.
    async fn left_with_a_job(
        sessions: &PtySessions,
        base: &Base,
        terminal: bool,
    ) -> Arc<PtySession> {
        let session = add(sessions, None);
        let run = session.ensure_started(base, terminal).await.unwrap();
        assert!(!session.is_working(), "the shell waits for input");
        write(&run.running.input, b"sleep 1000\n").await.unwrap();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !session.is_working() {
            assert!(
                tokio::time::Instant::now() < deadline,
                "the job is not detected"
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        session
    }

    #[tokio::test]
    async fn an_idle_terminal_ends_unless_a_job_runs_in_it() {
        let variables = Variables::from_iter([("PATH", "/usr/bin:/bin")]);
        let base = Base::new(Environment::new(variables), Supervisor::new());
        let (clock, millis) = manual::clock();
        let sessions = PtySessions::with_clock(clock.clone());
        let working = [
            left_with_a_job(&sessions, &base, true).await,
            left_with_a_job(&sessions, &base, false).await,
        ];
        let with_command = add(&sessions, Some("sleep 1000"));
        with_command.ensure_started(&base, true).await.unwrap();
        let at_prompt = add(&sessions, None);
        let shell = at_prompt.ensure_started(&base, true).await.unwrap();
        manual::pass(&clock, &millis, limits::IDLE);
        sessions.end_idle();
        assert!(at_prompt.deleted.is_cancelled());
        killed(&shell).await;
        for session in working.iter().chain([&with_command]) {
            assert!(!session.deleted.is_cancelled());
            assert!(sessions.get(&session.id).is_ok());
            session.end();
        }
    }

    /// Waits until a process is a killed. The test reaps no process.
    async fn killed(run: &Run) {
        let stat = format!("/proc/{}/stat", run.running.process.pid().as_raw_nonzero());
        let is_dead = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !is_dead() {
            assert!(tokio::time::Instant::now() < deadline, "the shell lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
