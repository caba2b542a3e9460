//! Follows the output of a sandbox's entry point.
//!
//! Lines are sent in batches a few times a second, so that their delay is small and a program that
//! writes much costs few messages. What is written faster than a batch has room for is left out, the
//! oldest first; the numbers of the lines show how many.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures::StreamExt;
use osb_app::live::{LogBatch, LogLine, LogState};
use osb_protocol::{SandboxId, WireTime, lifecycle::SandboxState};
use osb_runtime::{LogFollow, LogLines};
use osb_service::ErrorChain;
use serde::Serialize;
use tokio::time::{Instant, sleep, sleep_until};

use super::{
    super::backend,
    published::{Content, Published},
};
use crate::sandbox::Service;

/// Most lines of a batch, and lines kept for snapshots.
const LINES: usize = 2_000;
/// Most bytes of the lines of a batch, and of those kept for snapshots.
const BYTES: usize = 256 << 10;
/// Time in which a batch is collected.
const WINDOW: Duration = Duration::from_millis(50);
/// Lines from before the first tab came.
const TAIL: usize = 1_000;
/// Pause before a log is read again that ended, or could not be read.
const PAUSE: Duration = Duration::from_secs(1);

/// Lines in bounded memory. The oldest go first.
#[derive(Default)]
struct Lines {
    lines: VecDeque<LogLine>,
    bytes: usize,
    /// Number of the first line.
    first: u64,
}

impl Lines {
    fn push(&mut self, line: LogLine) {
        self.bytes += line.2.len();
        self.lines.push_back(line);
        while self.lines.len() > LINES || self.bytes > BYTES {
            let Some(LogLine(_, _, text)) = self.lines.pop_front() else {
                break;
            };
            self.bytes -= text.len();
            self.first += 1;
        }
    }

    /// Takes the lines; the next one gets the number after the last.
    fn take(&mut self) -> (u64, Vec<LogLine>) {
        let first = self.first;
        self.first += self.lines.len() as u64;
        self.bytes = 0;
        (first, self.lines.drain(..).collect())
    }
}

/// The last lines of a log.
#[derive(Default)]
pub(super) struct Log {
    run: u64,
    kept: Lines,
    state: LogState,
}

impl Log {
    pub(super) fn new(run: u64) -> Self {
        Self {
            run,
            ..Self::default()
        }
    }

    /// Keeps a batch; returns it as it is sent.
    fn add(&mut self, first: u64, lines: Vec<LogLine>) -> LogBatch {
        let next = self.kept.first + self.kept.lines.len() as u64;
        if next != first {
            self.kept = Lines {
                first,
                ..Lines::default()
            };
        }
        lines.iter().cloned().for_each(|line| self.kept.push(line));
        LogBatch {
            run: self.run,
            first,
            lines,
            state: self.state.clone(),
        }
    }
}

impl Content for Log {
    type Change = LogBatch;

    fn snapshot(&self) -> impl Serialize {
        LogBatch {
            run: self.run,
            first: self.kept.first,
            lines: self.kept.lines.iter().cloned().collect(),
            state: self.state.clone(),
        }
    }
}

/// Publishes the last lines and then each new one, for as long as the sandbox exists.
pub(super) async fn follow(service: Service, id: SandboxId, log: Arc<Published<Log>>) {
    let mut reader = Reader {
        log,
        batch: Lines::default(),
        last: None,
    };
    while let Some(record) = service.find(&id) {
        let wanted = LogFollow {
            tail: TAIL,
            since: reader.last,
            follow: true,
        };
        match service.open_log(&id, wanted).await {
            Ok(lines) => reader.read(lines).await,
            Err(error) if record.sandbox.status.state != SandboxState::Pending => {
                reader.set(LogState::Failed(ErrorChain(&error).to_string()));
            }
            // It has no container yet.
            Err(_) => {}
        }
        sleep(PAUSE).await;
        // The output of an entry point that ended does not grow.
        while service
            .find(&id)
            .is_some_and(|it| has_ended(&it.sandbox.status.state))
        {
            reader.set(LogState::Ended);
            sleep(PAUSE).await;
        }
    }
    reader.set(LogState::Ended);
}

fn has_ended(state: &SandboxState) -> bool {
    matches!(state, SandboxState::Failed | SandboxState::Terminated)
}

struct Reader {
    log: Arc<Published<Log>>,
    batch: Lines,
    /// Time of the last line. Lines up to it are known when the log is read again.
    last: Option<WireTime>,
}

impl Reader {
    /// Publishes lines until there are no more.
    async fn read(&mut self, mut lines: LogLines) {
        let known = self.last;
        self.set(LogState::Following);
        let mut due = None;
        loop {
            let window = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                line = lines.next() => match line {
                    Some(Ok(line)) if line.at.is_some() && line.at <= known => {}
                    Some(Ok(line)) => {
                        self.push(line);
                        due.get_or_insert_with(|| Instant::now() + WINDOW);
                    }
                    Some(Err(error)) => {
                        self.flush();
                        self.set(LogState::Failed(ErrorChain(&error).to_string()));
                        return;
                    }
                    None => {
                        self.flush();
                        return;
                    }
                },
                () = window => {
                    self.flush();
                    due = None;
                }
            }
        }
    }

    fn push(&mut self, line: osb_runtime::LogLine) {
        self.last = line.at.or(self.last);
        self.batch.push(backend::on_wire(line));
    }

    fn flush(&mut self) {
        if self.batch.lines.is_empty() {
            return;
        }
        let (first, lines) = self.batch.take();
        self.log.publish(|log| log.add(first, lines));
    }

    fn set(&self, state: LogState) {
        let next = self.batch.first;
        self.log.publish_if(|log| {
            let changed = log.state != state;
            log.state = state;
            changed.then(|| log.add(next, Vec::new()))
        });
    }
}

#[cfg(test)]
mod tests {
    use osb_app::live::LogStream;

    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine(0, LogStream::Output, text.to_owned())
    }

    #[test]
    fn lines_take_bounded_memory_and_numbers_show_what_was_left_out() {
        let mut lines = Lines::default();
        for _ in 0..LINES + 5 {
            lines.push(line("short"));
        }
        assert_eq!((lines.lines.len(), lines.first), (LINES, 5));
        for _ in 0..100 {
            lines.push(line(&"x".repeat(8 << 10)));
        }
        assert!(lines.bytes <= BYTES, "{}", lines.bytes);
        let next = lines.first + lines.lines.len() as u64;
        assert_eq!(next, (LINES + 105) as u64);
        let (_, taken) = lines.take();
        assert!(!taken.is_empty());
        lines.push(line("next"));
        assert_eq!((lines.first, lines.bytes), (next, 4));
    }

    #[test]
    fn a_snapshot_has_no_hole() {
        let mut log = Log::new(7);
        log.add(0, vec![line("a"), line("b")]);
        log.add(2, vec![line("c")]);
        let numbers = |log: &Log| (log.kept.first, log.kept.lines.len());
        assert_eq!(numbers(&log), (0, 3));
        // Lines 3 to 9 were left out.
        let sent = log.add(10, vec![line("d")]);
        assert_eq!((sent.run, sent.first, sent.lines.len()), (7, 10, 1));
        assert_eq!(numbers(&log), (10, 1));
    }
}
