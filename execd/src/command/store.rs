//! Records of commands, for status, logs, events and interruption. Records of running commands are
//! always kept. Those of finished ones are removed, oldest first, when they are too old or too
//! many; their output is removed earlier if its total is too large (contract: execd A2.4).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use jiff::Timestamp;
use osb_protocol::execd::command::CommandStatus;
use tokio::time::Instant;

use super::once::Keys;
use crate::{
    blocking::Starts,
    error::{ApiError, ApiResult},
    limits,
    output::{Journal, Log, Outcome, OutputUsage},
    process::Process,
};

/// Record of one command.
#[derive(Debug)]
pub(super) struct Record {
    id: String,
    content: String,
    background: bool,
    started_at: Timestamp,
    output: Mutex<Kept>,
    process: OnceLock<Process>,
    ended: OnceLock<Ended>,
}

/// Retained output of a command.
#[derive(Clone, Debug, Default)]
pub(super) struct Kept {
    /// Events of the response to its start.
    pub(super) events: Option<Arc<Journal>>,
    /// Output of a background command.
    pub(super) log: Option<Arc<Log>>,
}

#[derive(Debug)]
struct Ended {
    exit_code: i32,
    error: Option<String>,
    at: Timestamp,
}

impl Record {
    pub(super) fn new(id: &str, content: String, background: bool, output: Kept) -> Self {
        Self {
            id: id.to_owned(),
            content,
            background,
            started_at: Timestamp::now(),
            output: Mutex::new(output),
            process: OnceLock::new(),
            ended: OnceLock::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether its output goes to a log.
    pub(super) fn is_background(&self) -> bool {
        self.background
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.output.lock().expect("no holder of this lock panics")
    }

    /// Retained output.
    pub(super) fn output(&self) -> Kept {
        self.kept().clone()
    }

    /// Sets the process; called once, right after the start.
    pub(super) fn started(&self, process: Process) {
        let set = self.process.set(process);
        debug_assert!(set.is_ok(), "a command starts once");
    }

    /// The process, while it runs.
    pub(super) fn running(&self) -> Option<&Process> {
        self.process.get().filter(|_| self.ended.get().is_none())
    }

    pub(super) fn status(&self) -> CommandStatus {
        let ended = self.ended.get();
        CommandStatus {
            id: self.id.clone(),
            content: self.content.clone(),
            running: ended.is_none(),
            exit_code: ended.map(|ended| ended.exit_code),
            error: ended.and_then(|ended| ended.error.clone()),
            started_at: self.started_at,
            finished_at: ended.map(|ended| ended.at),
        }
    }
}

/// All commands. Clones share them.
#[derive(Clone, Debug)]
pub struct Commands {
    state: Arc<Mutex<State>>,
    keys: Arc<Keys>,
    starts: Starts,
}

#[derive(Debug)]
struct State {
    records: HashMap<String, Arc<Record>>,
    running: usize,
    /// In the order in which they ended.
    finished: VecDeque<(Instant, Arc<Record>)>,
    /// Size of all their command texts.
    content: usize,
    /// Retained events. They do not displace logs, which are promised to clients for longer.
    events: Outputs<Journal>,
    /// Retained logs.
    logs: Outputs<Log>,
    /// Memory limit of each of the two.
    memory: u64,
}

/// Output of finished commands, oldest first.
#[derive(Debug)]
struct Outputs<T> {
    kept: VecDeque<(Arc<Record>, Arc<T>, OutputUsage)>,
    held: OutputUsage,
}

impl<T> Default for Outputs<T> {
    fn default() -> Self {
        Self {
            kept: VecDeque::new(),
            held: OutputUsage::default(),
        }
    }
}

impl<T> Outputs<T> {
    fn add(&mut self, record: &Arc<Record>, output: Arc<T>, held: OutputUsage) {
        self.held += held;
        self.kept.push_back((Arc::clone(record), output, held));
    }

    fn pop(&mut self) -> Option<(Arc<Record>, Arc<T>)> {
        let (record, output, held) = self.kept.pop_front()?;
        self.held -= held;
        Some((record, output))
    }

    /// Removes the output of a record, if it is the oldest here.
    fn forget(&mut self, record: &Arc<Record>) -> Option<Arc<T>> {
        let (oldest, ..) = self.kept.front()?;
        Arc::ptr_eq(oldest, record)
            .then(|| self.pop())?
            .map(|(_, output)| output)
    }

    /// Removes the oldest output if the total is too large. The newest stays whatever its size,
    /// because its client has not seen it yet.
    fn excess(&mut self, memory: u64) -> Option<(Arc<Record>, Arc<T>)> {
        let full = self.held.memory > memory
            || self.held.disk > limits::FINISHED_OUTPUT
            || self.held.files > limits::FINISHED_FILES;
        (full && self.kept.len() > 1).then(|| self.pop())?
    }

    /// Counts the output of one record again.
    fn recount(&mut self, record: &Arc<Record>, held: impl Fn(&T) -> OutputUsage) {
        // The newest are last.
        let mut newest_first = self.kept.iter_mut().rev();
        if let Some((_, output, counted)) =
            newest_first.find(|(other, ..)| Arc::ptr_eq(other, record))
        {
            self.held -= *counted;
            *counted = held(output);
            self.held += *counted;
        }
    }

    fn count(&mut self, held: impl Fn(&T) -> OutputUsage) {
        self.held = OutputUsage::default();
        for (_, output, counted) in &mut self.kept {
            *counted = held(output);
            self.held += *counted;
        }
    }
}

/// Removed output. Freeing it may block in the file system, so a background thread does it.
#[derive(Debug, Default)]
struct Discarded {
    events: Vec<Arc<Journal>>,
    logs: Vec<Arc<Log>>,
}

impl Discarded {
    fn give_up(self) {
        let nothing = self.events.is_empty() && self.logs.is_empty();
        if let Ok(runtime) = tokio::runtime::Handle::try_current()
            && !nothing
        {
            runtime.spawn_blocking(move || drop(self));
        }
    }
}

impl Commands {
    /// Creates an empty store. Output of finished commands may use this many bytes of memory.
    #[must_use]
    pub(crate) fn new(memory: u64) -> Self {
        let state = State {
            records: HashMap::new(),
            running: 0,
            finished: VecDeque::new(),
            content: 0,
            events: Outputs::default(),
            logs: Outputs::default(),
            memory,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            keys: Arc::default(),
            starts: Starts::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Keys of idempotent requests.
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Workers that start commands.
    pub(super) fn starts(&self) -> &Starts {
        &self.starts
    }

    /// Registers a command that is about to start, so that clients can query it as soon as they
    /// know its id.
    ///
    /// # Errors
    /// When too many commands run.
    pub(super) fn admit(&self, record: Record) -> ApiResult<Arc<Record>> {
        let mut state = self.state();
        if state.running >= limits::RUNNING {
            let message = format!("{} commands are running already", limits::RUNNING);
            return Err(ApiError::runtime(message));
        }
        state.running += 1;
        let record = Arc::new(record);
        let id = record.id.clone();
        state.records.insert(id, Arc::clone(&record));
        Ok(record)
    }

    /// Removes a command that did not start.
    pub(super) fn forget(&self, id: &str) {
        let mut state = self.state();
        if state.records.remove(id).is_some() {
            state.running -= 1;
        }
    }

    /// Records the end of a command.
    pub(super) fn finish(&self, record: &Arc<Record>, outcome: &Outcome) {
        let ended = Ended {
            exit_code: outcome.exit_code(),
            error: outcome.error(),
            at: Timestamp::now(),
        };
        let set = record.ended.set(ended);
        debug_assert!(set.is_ok(), "a command ends once");
        let Kept { events, log } = record.output();
        let mut state = self.state();
        state.running -= 1;
        state.content += record.content.len();
        if let Some(events) = events {
            let held = events.usage();
            state.events.add(record, events, held);
        }
        if let Some(log) = log {
            let held = log.usage();
            state.logs.add(record, log, held);
        }
        state
            .finished
            .push_back((Instant::now(), Arc::clone(record)));
        let discarded = state.evict();
        drop(state);
        discarded.give_up();
    }

    /// Counts the events of an ended command again, because they have moved to disk since.
    pub(super) fn recount(&self, record: &Arc<Record>) {
        self.state().events.recount(record, Journal::usage);
    }

    /// Record of a command.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Record>> {
        self.state().records.get(id).cloned()
    }

    /// Removes expired records and output. Called at intervals, and whenever a command ends.
    pub fn sweep(&self) {
        let mut state = self.state();
        // Logs grow after the end, while descendants hold the pipes.
        state.logs.count(Log::usage);
        state.events.count(Journal::usage);
        let discarded = state.evict();
        drop(state);
        discarded.give_up();
    }
}

impl State {
    fn evict(&mut self) -> Discarded {
        let mut discarded = Discarded::default();
        while self.is_past() {
            if let Some((_, oldest)) = self.finished.pop_front() {
                self.records.remove(&oldest.id);
                self.content -= oldest.content.len();
                discarded.events.extend(self.events.forget(&oldest));
                discarded.logs.extend(self.logs.forget(&oldest));
            }
        }
        while let Some((record, events)) = self.events.excess(self.memory) {
            record.kept().events = None;
            discarded.events.push(events);
        }
        while let Some((record, log)) = self.logs.excess(self.memory) {
            record.kept().log = None;
            discarded.logs.push(log);
        }
        discarded
    }

    /// Whether to remove the oldest. The newest stays whatever its size.
    fn is_past(&self) -> bool {
        let too_many =
            self.finished.len() > limits::FINISHED || self.content > limits::FINISHED_CONTENT;
        let oldest = self.finished.front();
        too_many && self.finished.len() > 1
            || oldest.is_some_and(|(at, _)| at.elapsed() >= limits::RETENTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        output::{Replay, Source, Writer},
        process::Exit,
    };

    fn commands() -> Commands {
        Commands::new(1 << 20)
    }

    fn record(id: &str, content: String) -> Record {
        Record::new(id, content, false, Kept::default())
    }

    fn finish(commands: &Commands, id: &str, content: String) {
        let record = commands.admit(record(id, content)).unwrap();
        commands.finish(&record, &Outcome::ended(Exit::Code(3), None));
    }

    #[test]
    fn status_contains_the_end() {
        let commands = commands();
        let record = commands.admit(record("a", "x".into())).unwrap();
        assert!(record.status().running);
        commands.finish(&record, &Outcome::ended(Exit::Code(3), None));
        let status = commands.get("a").unwrap().status();
        assert_eq!((status.running, status.exit_code), (false, Some(3)));
        assert_eq!(status.error.as_deref(), Some("exit status 3"));
        assert!(status.finished_at >= Some(status.started_at));
    }

    #[test]
    fn finished_records_are_bounded_and_the_oldest_goes_first() {
        let commands = commands();
        let running = commands.admit(record("r", String::new()));
        for index in 0..limits::FINISHED + 5 {
            finish(&commands, &index.to_string(), String::new());
        }
        assert!(running.is_ok() && commands.get("r").is_some());
        assert!(commands.get("4").is_none());
        assert!(commands.get("5").is_some());
        finish(&commands, "big", "x".repeat(limits::FINISHED_CONTENT + 1));
        assert!(commands.get("big").is_some());
        assert!(commands.get("5").is_none());
        finish(&commands, "next", String::new());
        assert!(commands.get("big").is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn finished_records_are_forgotten_after_a_day() {
        let commands = commands();
        let running = commands.admit(record("running", String::new())).unwrap();
        finish(&commands, "first", String::new());
        tokio::time::advance(limits::RETENTION / 2).await;
        finish(&commands, "second", String::new());
        tokio::time::advance(limits::RETENTION / 2).await;
        commands.sweep();
        assert!(commands.get("first").is_none() && commands.get("second").is_some());
        tokio::time::advance(limits::RETENTION / 2).await;
        commands.sweep();
        assert!(commands.get("second").is_none() && commands.get(&running.id).is_some());
    }

    #[test]
    fn commands_beyond_the_limit_are_refused() {
        let commands = commands();
        let admit = |id: usize| commands.admit(record(&id.to_string(), String::new()));
        assert!((0..limits::RUNNING).all(|id| admit(id).is_ok()));
        assert!(admit(limits::RUNNING).is_err());
        commands.forget("0");
        assert!(admit(limits::RUNNING).is_ok());
    }

    #[tokio::test]
    async fn events_on_disk_count_as_such() {
        let commands = commands();
        let outputs = crate::output::Outputs::new(None);
        let lines = "x\n".repeat(4 << 10);
        for id in ["a", "b", "c", "d", "e"] {
            let (mut writer, _reader) = Writer::new(id, Replay::Recent, &outputs);
            let events = Arc::clone(writer.journal());
            let kept = Kept {
                events: Some(Arc::clone(&events)),
                log: None,
            };
            let record = Record::new(id, String::new(), false, kept);
            let record = commands.admit(record).unwrap();
            writer.write(Source::Stdout, lines.clone().into()).await;
            let outcome = Outcome::ended(Exit::Code(0), None);
            commands.finish(&record, &outcome);
            writer.finish(&outcome).await;
            events.move_complete_to_disk().await;
            commands.recount(&record);
        }
        let has_events = |id: &str| commands.get(id).unwrap().output().events.is_some();
        assert!(["a", "b", "c", "d", "e"].into_iter().all(has_events));
        assert!(commands.state().events.held.memory < 64 << 10);
    }

    #[tokio::test]
    async fn output_is_bounded_and_the_oldest_goes_first() {
        let commands = commands();
        let log = async |id: &str, bytes: usize| {
            let log = Arc::new(Log::default());
            log.append(vec![0; bytes].into()).await;
            let kept = Kept {
                log: Some(log),
                events: None,
            };
            let record = Record::new(id, String::new(), true, kept);
            let record = commands.admit(record).unwrap();
            commands.finish(&record, &Outcome::ended(Exit::Code(0), None));
        };
        let has_log = |id: &str| commands.get(id).unwrap().output().log.is_some();
        for index in 0..17 {
            log(&index.to_string(), limits::LOG_MEMORY).await;
        }
        assert!(!has_log("0") && has_log("1") && has_log("16"));
        // Each in its own file.
        for index in 0..=limits::FINISHED_FILES {
            log(&format!("f{index}"), limits::LOG_MEMORY + 1).await;
        }
        assert!(!has_log("16") && !has_log("f0") && has_log("f1"));
        commands.sweep();
        assert!(!has_log("f0") && has_log("f1"));
    }
}
