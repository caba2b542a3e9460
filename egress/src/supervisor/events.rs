//! The event log: a JSON object per line (contract: egress §8.1).

use std::{
    io::{self, Write},
    os::fd::AsFd,
    path::Path,
    time::Duration,
};

use jiff::Timestamp;
use osb_service::log_file::{LogFile, LogFileOptions};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use tracing::warn;

/// Size at which the file is set aside, in bytes.
const FILE_BYTES: u64 = 100 << 20;
/// Files that are set aside.
const BACKUPS: u32 = 1;
/// Longest text in an event, in bytes. Keeps a line far below the size up to which a write to a pipe
/// is not mixed with the worker's.
const TEXT_BYTES: usize = 512;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    /// The worker was started.
    Start,
    /// It ended, or could not be started.
    Exit,
    /// A program before the launch ended.
    Prestart,
    /// A program after the exit ended.
    Postexit,
    /// The next launch comes after a wait.
    Backoff,
    /// The worker ran long enough for the waits to begin anew.
    Stable,
    /// The breaker tripped.
    BurstExit,
    /// The supervisor stops.
    Shutdown,
}

/// Why the worker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
#[serde(rename_all = "snake_case")]
pub(super) enum Reason {
    /// It returned 0.
    Exited,
    /// It returned another code.
    Crashed,
    /// A signal ended it.
    Signaled,
    /// The supervisor was asked to stop.
    Shutdown,
    /// It could not be started.
    LaunchFailed,
    /// The kernel has no status of it.
    NoProcessstate,
}

/// A line of the log. What does not apply is left out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(PartialEq, serde::Deserialize))]
pub(super) struct Event {
    /// RFC 3339, UTC, in seconds. Set by the log.
    pub(super) ts: String,
    /// Name of the worker. Set by the log.
    pub(super) name: String,
    #[serde(rename = "event")]
    pub(super) kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) pid: Option<i32>,
    /// Number of the launch.
    #[serde(rename = "gen", skip_serializing_if = "Option::is_none")]
    pub(super) generation: Option<u64>,
    /// The same number. The contract has both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) signal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<Reason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sleep_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_attempt: Option<u64>,
    /// Program before a launch or after an exit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hook: Option<String>,
    /// Launches that the breaker counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) attempts: Option<usize>,
    /// Time in which it counted them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) window: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reset_backoff: Option<bool>,
}

impl Event {
    /// Event without details.
    pub(super) fn new(kind: Kind) -> Self {
        Self {
            ts: String::new(),
            name: String::new(),
            kind,
            pid: None,
            generation: None,
            attempt: None,
            exit_code: None,
            signal: None,
            duration_ms: None,
            reason: None,
            sleep_ms: None,
            next_attempt: None,
            hook: None,
            attempts: None,
            window: None,
            error: None,
            reset_backoff: None,
        }
    }
}

/// Milliseconds of a duration, for an event.
pub(super) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Where events are written.
#[derive(Debug)]
pub(super) struct EventLog {
    pub(super) name: String,
    output: Output,
    /// Whether the last line is incomplete.
    is_torn: bool,
}

#[derive(Debug)]
enum Output {
    Stderr,
    File(LogFile),
}

impl EventLog {
    /// Opens the log; the file and the folders above it are made when missing.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn open(name: &str, file: Option<&Path>) -> io::Result<Self> {
        let output = match file {
            None => Output::Stderr,
            Some(path) => Output::File(LogFile::open(LogFileOptions {
                path: path.to_owned(),
                max_bytes: FILE_BYTES,
                backups: BACKUPS,
            })?),
        };
        Ok(Self {
            name: name.to_owned(),
            output,
            is_torn: false,
        })
    }

    /// Writes an event. A log that cannot be written does not stop the supervisor.
    pub(super) fn write(&mut self, event: Event) {
        if let Err(error) = self.try_write(event) {
            warn!(error = &error as &dyn std::error::Error, "an event is lost");
        }
    }

    fn try_write(&mut self, mut event: Event) -> io::Result<()> {
        event.ts = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        event.name.clone_from(&self.name);
        let texts = [
            Some(&mut event.name),
            event.hook.as_mut(),
            event.error.as_mut(),
        ];
        for text in texts.into_iter().flatten() {
            text.truncate(text.floor_char_boundary(TEXT_BYTES));
        }
        let mut line = match self.is_torn {
            true => vec![b'\n'],
            false => Vec::new(),
        };
        serde_json::to_writer(&mut line, &event)?;
        line.push(b'\n');
        // One call, so that lines of several writers are not mixed.
        let written = match &mut self.output {
            Output::Stderr => write_if_ready(io::stderr().lock(), &line)?,
            Output::File(file) => file.write(&line)?,
        };
        self.is_torn = written < line.len();
        match self.is_torn {
            true => Err(io::ErrorKind::WriteZero.into()),
            false => Ok(()),
        }
    }
}

/// Writes unless that would block: when the engine does not read the output of the container, the
/// worker must still be restarted.
fn write_if_ready(mut output: impl Write + AsFd, line: &[u8]) -> io::Result<usize> {
    let mut outputs = [PollFd::new(&output, PollFlags::OUT)];
    if poll(&mut outputs, Some(&Timespec::default()))? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    output.write(line)
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;

    fn full() -> Event {
        Event {
            pid: Some(31),
            generation: Some(2),
            attempt: Some(2),
            exit_code: Some(1),
            signal: Some("killed".into()),
            duration_ms: Some(820),
            reason: Some(Reason::NoProcessstate),
            sleep_ms: Some(0),
            next_attempt: Some(3),
            hook: Some("/a \"b\"".into()),
            attempts: Some(10),
            window: Some("5m0s".into()),
            error: Some("line\nline".into()),
            reset_backoff: Some(true),
            ..Event::new(Kind::BurstExit)
        }
    }

    #[test]
    fn an_event_is_written_as_the_contract_shows_it() {
        let event = Event {
            ts: "2026-05-04T10:00:00Z".into(),
            name: "egress".into(),
            pid: Some(31),
            generation: Some(2),
            attempt: Some(2),
            exit_code: Some(1),
            duration_ms: Some(820),
            reason: Some(Reason::Crashed),
            ..Event::new(Kind::Exit)
        };
        let text = r#"{"ts":"2026-05-04T10:00:00Z","name":"egress","event":"exit","pid":31,"gen":2,"attempt":2,"exit_code":1,"duration_ms":820,"reason":"crashed"}"#;
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }

    #[test]
    fn words_are_those_of_the_contract() {
        use Kind::{Backoff, BurstExit, Exit, Postexit, Prestart, Shutdown, Stable, Start};
        let kinds = [
            Start, Exit, Prestart, Postexit, Backoff, Stable, BurstExit, Shutdown,
        ];
        assert_eq!(
            serde_json::to_string(&kinds).unwrap(),
            r#"["start","exit","prestart","postexit","backoff","stable","burst_exit","shutdown"]"#
        );
        use Reason::{Crashed, Exited, LaunchFailed, NoProcessstate, Signaled};
        let reasons = [
            Exited,
            Crashed,
            Signaled,
            Reason::Shutdown,
            LaunchFailed,
            NoProcessstate,
        ];
        assert_eq!(
            serde_json::to_string(&reasons).unwrap(),
            r#"["exited","crashed","signaled","shutdown","launch_failed","no_processstate"]"#
        );
    }

    #[test]
    fn events_of_several_writers_are_not_mixed() {
        const WRITERS: usize = 4;
        const EVENTS: usize = 200;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("new/folders/events.jsonl");
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let path = &path;
                scope.spawn(move || {
                    let mut log = EventLog::open(&format!("w{writer}"), Some(path)).unwrap();
                    for _ in 0..EVENTS {
                        log.write(full());
                    }
                });
            }
        });
        let text = fs::read_to_string(&path).unwrap();
        let events: Vec<Event> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(events.len(), WRITERS * EVENTS);
        for writer in 0..WRITERS {
            let name = format!("w{writer}");
            let own: Vec<_> = events.iter().filter(|event| event.name == name).collect();
            assert_eq!(own.len(), EVENTS);
            for event in own {
                let want = Event {
                    ts: event.ts.clone(),
                    name: name.clone(),
                    ..full()
                };
                assert_eq!(*event, want);
                let time: Timestamp = event.ts.parse().unwrap();
                assert_eq!(time.to_string(), event.ts, "in seconds");
            }
        }
    }

    #[test]
    fn long_texts_are_cut() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.jsonl");
        let mut log = EventLog::open("w", Some(&path)).unwrap();
        log.write(Event {
            error: Some("é".repeat(TEXT_BYTES)),
            ..Event::new(Kind::Exit)
        });
        let event: Event = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(event.error, Some("é".repeat(TEXT_BYTES / 2)));
    }

    #[test]
    fn a_line_after_an_incomplete_one_is_whole() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.jsonl");
        fs::write(&path, r#"{"ts":"#).unwrap();
        let mut log = EventLog::open("w", Some(&path)).unwrap();
        log.is_torn = true;
        log.write(Event::new(Kind::Start));
        log.write(Event::new(Kind::Shutdown));
        let text = fs::read_to_string(&path).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        for line in &lines[1..] {
            serde_json::from_str::<Event>(line).unwrap();
        }
    }

    #[test]
    fn a_full_file_is_set_aside() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("events.jsonl");
        fs::File::create(&path)
            .unwrap()
            .set_len(FILE_BYTES)
            .unwrap();
        let mut log = EventLog::open("w", Some(&path)).unwrap();
        log.write(Event::new(Kind::Start));
        let aside = fs::metadata(place.path().join("events.jsonl.1")).unwrap();
        assert_eq!(aside.len(), FILE_BYTES);
        let event: Event = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(event.kind, Kind::Start);
    }

    #[test]
    fn a_reader_that_stopped_does_not_block_the_writer() {
        const MORE_THAN_A_PIPE_HOLDS: usize = 1 << 20;
        let (reader, writer) = io::pipe().unwrap();
        let line = [b'x'; 1024];
        let failed = (0..MORE_THAN_A_PIPE_HOLDS / line.len())
            .find_map(|_| write_if_ready(&writer, &line).err())
            .unwrap();
        assert_eq!(failed.kind(), io::ErrorKind::WouldBlock);
        drop(reader);
    }
}
