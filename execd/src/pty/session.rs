//! Terminal sessions and their holders.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use osb_protocol::execd::pty::PtyStatus;
use rustix::process::Signal;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::{
    process::{Running, read, read_now},
    screen::{Screen, Stream},
};
use crate::{
    base::Base,
    idle::{Activity, Evictable, Registry},
    limits,
    process::Exit,
};

/// All terminal sessions. Clones share them.
pub type Sessions = Registry<Session>;

impl Sessions {
    /// Sends every shell on a terminal the hangup signal.
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
pub struct Session {
    pub(super) id: String,
    cwd: Option<PathBuf>,
    command: Option<String>,
    pub(super) screen: Screen,
    state: Mutex<State>,
    /// Cancelled when the session is deleted.
    pub(super) deleted: CancellationToken,
    /// Connections are uses.
    pub(super) activity: Activity,
}

impl Evictable for Session {
    const KIND: &'static str = "pty session";
    const LIMIT: usize = limits::PTY_SESSIONS;

    fn id(&self) -> &str {
        &self.id
    }

    fn activity(&self) -> &Activity {
        &self.activity
    }

    /// The session's own command, or one that its shell waits for. What a shell left in the background
    /// of its terminal does not count.
    fn is_working(&self) -> bool {
        let Some(run) = self.run() else {
            return false;
        };
        self.command.is_some() || run.running.has_foreground_job()
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

/// One process of a session, from its start to its last byte.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) running: Running,
    /// Set when all its output is in the screen: how it ended, and the total then.
    pub(super) end: watch::Sender<Option<(Exit, u64)>>,
}

#[derive(Debug)]
struct Holder {
    number: u64,
    evict: CancellationToken,
    /// Closed when the holder has let go.
    gone: CancellationToken,
}

/// The exclusive right to write. Dropping it lets the next one in.
#[derive(Debug)]
pub(super) struct Hold {
    session: Arc<Session>,
    number: u64,
    /// Cancelled when another client takes over.
    pub(super) evicted: CancellationToken,
    gone: CancellationToken,
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.session.state();
        if state
            .holder
            .as_ref()
            .is_some_and(|holder| holder.number == self.number)
        {
            state.holder = None;
            self.session.screen.held_at(None);
        }
        drop(state);
        self.gone.cancel();
    }
}

impl Session {
    /// Creates a session without a process.
    pub(super) fn new(
        id: String,
        activity: Activity,
        cwd: Option<PathBuf>,
        command: Option<String>,
    ) -> Self {
        Self {
            id,
            cwd,
            command,
            screen: Screen::default(),
            state: Mutex::default(),
            deleted: CancellationToken::new(),
            activity,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// The process, while it runs or its output is being read.
    pub(super) fn run(&self) -> Option<Arc<Run>> {
        let run = self.state().run.clone();
        run.filter(|run| run.end.borrow().is_none())
    }

    pub(super) fn status(&self) -> PtyStatus {
        PtyStatus {
            session_id: self.id.clone(),
            running: self.run().is_some_and(|run| run.running.ended().is_none()),
            output_offset: self.screen.total(),
        }
    }

    /// Takes the session unless another client holds it.
    pub(super) fn hold(self: &Arc<Self>) -> Option<Hold> {
        let mut state = self.state();
        if state.holder.is_some() {
            return None;
        }
        let number = state.next_holder;
        state.next_holder += 1;
        let evicted = CancellationToken::new();
        let gone = CancellationToken::new();
        state.holder = Some(Holder {
            number,
            evict: evicted.clone(),
            gone: gone.clone(),
        });
        Some(Hold {
            session: Arc::clone(self),
            number,
            evicted,
            gone,
        })
    }

    /// Takes the session from its holder. `None` if the holder does not release it in time.
    pub(super) async fn take_over(self: &Arc<Self>) -> Option<Hold> {
        let taken = async {
            loop {
                if let Some(hold) = self.hold() {
                    return hold;
                }
                let holder = self
                    .state()
                    .holder
                    .as_ref()
                    .map(|holder| (holder.evict.clone(), holder.gone.clone()));
                if let Some((evict, gone)) = holder {
                    evict.cancel();
                    gone.cancelled().await;
                }
            }
        };
        tokio::time::timeout(limits::PTY_TAKEOVER, taken).await.ok()
    }

    /// The running process; started if none runs.
    ///
    /// # Errors
    /// The system's error, or an error for a deleted session.
    pub(super) fn started(self: &Arc<Self>, base: &Base, terminal: bool) -> io::Result<Arc<Run>> {
        let mut state = self.state();
        // Deleting ends the run that it finds under this lock: later there must be none.
        if self.deleted.is_cancelled() {
            let text = "the session was deleted";
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        if let Some(run) = state.run.as_ref().filter(|run| run.end.borrow().is_none()) {
            return Ok(Arc::clone(run));
        }
        let running = Running::start(base, self.cwd.as_deref(), self.command.as_deref(), terminal)?;
        info!(
            id = self.id,
            pid = running.process.pid().as_raw_nonzero(),
            "pty started"
        );
        let run = Arc::new(Run {
            running,
            end: watch::Sender::new(None),
        });
        base.tasks
            .spawn("pty", Arc::clone(self).pump(Arc::clone(&run)));
        state.run = Some(Arc::clone(&run));
        Ok(run)
    }

    /// Moves output to the screen until the process ended and everything it wrote is there.
    async fn pump(self: Arc<Self>, run: Arc<Run>) {
        let moves = run.running.outputs.iter().map(|(stream, end)| async {
            let mut buffer = vec![0; limits::PTY_READ];
            while let Some(len) = read(end, &mut buffer).await {
                self.screen.push(*stream, &buffer[..len]);
                self.screen.make_room(limits::PTY_PATIENCE).await;
            }
        });
        let all_closed = futures::future::join_all(moves);
        let exit = tokio::select! {
            _ = all_closed => run.running.process.exited().await,
            exit = run.running.process.exited() => exit,
        };
        // What the process wrote is in the kernel now; children of it may write on, and are not
        // waited for.
        for (stream, end) in &run.running.outputs {
            self.drain(*stream, end);
        }
        info!(id = self.id, %exit, "pty ended");
        run.end.send_replace(Some((exit, self.screen.total())));
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

    /// Bounded by what a ring takes: more than that would be pushed out anyway.
    fn drain(&self, stream: Stream, end: &super::process::End) {
        let mut buffer = vec![0; limits::PTY_READ];
        let mut left = limits::PTY_RING;
        while left > 0
            && let Some(len) = read_now(end, &mut buffer)
        {
            self.screen.push(stream, &buffer[..len]);
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

    fn add(sessions: &Sessions, command: Option<&str>) -> Arc<Session> {
        let command = command.map(str::to_owned);
        let id = sessions
            .add(|id, activity| Session::new(id, activity, None, command))
            .unwrap();
        sessions.get(&id).unwrap()
    }

    #[tokio::test]
    async fn nothing_starts_in_a_deleted_session() {
        let environment = Environment::new(Variables::default());
        let base = Base::new(environment, Supervisor::new());
        let sessions = Sessions::default();
        let session = add(&sessions, Some("true"));
        sessions.delete(&session.id).unwrap();
        assert!(session.started(&base, false).is_err());
        assert!(session.run().is_none());
    }

    /// A session with a shell that begins a job, left by its client.
    async fn left_with_a_job(sessions: &Sessions, base: &Base, terminal: bool) -> Arc<Session> {
        let session = add(sessions, None);
        let run = session.started(base, terminal).unwrap();
        assert!(!session.is_working(), "its shell waits for its client");
        write(&run.running.input, b"sleep 1000\n").await.unwrap();
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !session.is_working() {
            assert!(tokio::time::Instant::now() < deadline, "no job is seen");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        session
    }

    #[tokio::test]
    async fn a_terminal_ends_when_it_is_idle_and_not_while_a_job_runs_in_it() {
        let variables = Variables::from_iter([("PATH", "/usr/bin:/bin")]);
        let base = Base::new(Environment::new(variables), Supervisor::new());
        let (clock, millis) = manual::clock();
        let sessions = Sessions::with_clock(clock.clone());
        let working = [
            left_with_a_job(&sessions, &base, true).await,
            left_with_a_job(&sessions, &base, false).await,
        ];
        let with_command = add(&sessions, Some("sleep 1000"));
        with_command.started(&base, true).unwrap();
        let at_prompt = add(&sessions, None);
        let shell = at_prompt.started(&base, true).unwrap();
        manual::pass(&clock, &millis, limits::IDLE);
        sessions.end_idle();
        assert!(at_prompt.deleted.is_cancelled());
        zombie(&shell).await;
        for session in working.iter().chain([&with_command]) {
            assert!(!session.deleted.is_cancelled());
            assert!(sessions.get(&session.id).is_ok());
            session.end();
        }
    }

    /// Waits until a process was killed; in this test none is reaped before the end.
    async fn zombie(run: &Run) {
        let stat = format!("/proc/{}/stat", run.running.process.pid().as_raw_nonzero());
        let is_dead = || std::fs::read_to_string(&stat).is_ok_and(|stat| stat.contains(") Z "));
        let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
        while !is_dead() {
            assert!(tokio::time::Instant::now() < deadline, "the shell lives on");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}
