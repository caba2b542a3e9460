//! Records of commands: what status, logs and interrupt know. Running ones are never forgotten;
//! finished ones are, oldest first, when they are too old or too many (contract: execd A2.4).

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use jiff::Timestamp;
use osb_protocol::execd::command::CommandStatus;

use crate::{
    error::{ApiError, ApiResult},
    limits,
    output::{End, Log, Outcome},
    process::{Exit, Process},
};

/// What is known about one command.
#[derive(Debug)]
pub(super) struct Record {
    id: String,
    content: String,
    started_at: Timestamp,
    /// Output of a background command.
    log: Option<Arc<Log>>,
    process: OnceLock<Process>,
    ended: OnceLock<Ended>,
}

#[derive(Debug)]
struct Ended {
    exit_code: i32,
    error: Option<String>,
    at: Timestamp,
}

impl Record {
    pub(super) fn new(id: &str, content: String, background: bool) -> Self {
        Self {
            id: id.to_owned(),
            content,
            started_at: Timestamp::now(),
            log: background.then(Arc::default),
            process: OnceLock::new(),
            ended: OnceLock::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn log(&self) -> Option<&Arc<Log>> {
        self.log.as_ref()
    }

    /// Called once, right after the start.
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
#[derive(Clone, Debug, Default)]
pub struct Commands {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<String, Arc<Record>>,
    running: usize,
    /// In the order in which they ended.
    finished: VecDeque<(Instant, Arc<Record>)>,
}

impl Commands {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// Registers a command that is about to start, so that a client can ask for it as soon as it
    /// knows its id.
    ///
    /// # Errors
    /// When too many run.
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

    /// Forgets a command that did not start.
    pub(super) fn forget(&self, id: &str) {
        let mut state = self.state();
        if state.records.remove(id).is_some() {
            state.running -= 1;
        }
    }

    /// Notes the end of a command.
    pub(super) fn finish(&self, record: &Arc<Record>, outcome: &Outcome) {
        let reasons = outcome.end.reasons();
        let ended = Ended {
            exit_code: match &outcome.end {
                End::Exited { exit, .. } => Exit::wire_code(*exit),
                End::NotStarted(_) | End::Failed { .. } => 255,
            },
            error: (!reasons.is_empty()).then(|| reasons.join(", ")),
            at: Timestamp::now(),
        };
        let set = record.ended.set(ended);
        debug_assert!(set.is_ok(), "a command ends once");
        let mut state = self.state();
        state.running -= 1;
        state
            .finished
            .push_back((Instant::now(), Arc::clone(record)));
        state.evict();
    }

    /// The record of a command.
    pub(super) fn get(&self, id: &str) -> Option<Arc<Record>> {
        self.state().records.get(id).cloned()
    }

    /// Forgets what is past its time. Called now and then, and whenever a command ends.
    pub fn sweep(&self) {
        self.state().evict();
    }
}

impl State {
    fn evict(&mut self) {
        let sizes = |record: &Record| {
            let log = record.log.as_ref().map_or(0, |log| log.len());
            (record.content.len(), log)
        };
        let (mut content, mut logs) = (0, 0);
        // From the newest to the oldest: the first that does not fit ends what is kept.
        let kept = self
            .finished
            .iter()
            .rev()
            .take(limits::FINISHED)
            .take_while(|(at, record)| {
                let (text, log) = sizes(record);
                content += text;
                logs += log;
                at.elapsed() < limits::RETENTION
                    && content <= limits::FINISHED_CONTENT
                    && logs <= limits::FINISHED_LOGS
            })
            .count()
            // The newest stays whatever its size: its client has not seen it yet.
            .max(self.finished.len().min(1));
        let evicted = self.finished.len() - kept;
        for (_, record) in self.finished.drain(..evicted) {
            self.records.remove(&record.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finish(commands: &Commands, id: &str, content: String) {
        let record = commands.admit(Record::new(id, content, true)).unwrap();
        commands.finish(&record, &Outcome::ended(Exit::Code(3), None));
    }

    #[test]
    fn status_tells_the_end() {
        let commands = Commands::default();
        let record = commands.admit(Record::new("a", "x".into(), false)).unwrap();
        assert!(record.status().running);
        commands.finish(&record, &Outcome::ended(Exit::Code(3), None));
        let status = commands.get("a").unwrap().status();
        assert_eq!((status.running, status.exit_code), (false, Some(3)));
        assert_eq!(status.error.as_deref(), Some("exit status 3"));
        assert!(status.finished_at >= Some(status.started_at));
    }

    #[test]
    fn finished_records_are_bounded_and_the_oldest_goes_first() {
        let commands = Commands::default();
        let running = commands.admit(Record::new("r", String::new(), false));
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

    #[test]
    fn too_many_at_once_are_refused() {
        let commands = Commands::default();
        let admit = |id: usize| commands.admit(Record::new(&id.to_string(), String::new(), false));
        assert!((0..limits::RUNNING).all(|id| admit(id).is_ok()));
        assert!(admit(limits::RUNNING).is_err());
        commands.forget("0");
        assert!(admit(limits::RUNNING).is_ok());
    }
}
