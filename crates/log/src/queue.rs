//! Carries lines to an output without waiting for it.
//!
//! `tracing-appender` does not serve here. It bounds its queue in lines, so that a few long ones take
//! any amount of memory, and allocates the places for all of them at the start; it counts the lines
//! that it drops, but not where; and it drops lines that an output refused without counting them.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Instant,
};

use jiff::Timestamp;

use crate::{Log, Output, limits};

/// Bytes of a writing thread's stack: it only copies bytes.
const STACK: usize = 64 << 10;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Something waits, or nothing more will come.
    more: Condvar,
    /// The thread has ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that did not fit.
    lost: u64,
    /// The thread sleeps and has to be woken.
    asleep: bool,
    closed: bool,
    ended: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    /// Adds a line. One that does not fit is counted.
    pub(crate) fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > limits::QUEUE {
            waiting.lost += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.more.notify_one();
        }
    }

    /// Exchanges an empty buffer for the lines that wait, and returns how many were lost after them.
    /// `None` once there will be no more.
    fn take(&self, buffer: &mut Vec<u8>) -> Option<u64> {
        let mut waiting = self.waiting();
        while waiting.lines.is_empty() && waiting.lost == 0 {
            if waiting.closed {
                return None;
            }
            waiting.asleep = true;
            waiting = self
                .more
                .wait(waiting)
                .expect("no holder of this lock panics");
        }
        std::mem::swap(&mut waiting.lines, buffer);
        Some(std::mem::take(&mut waiting.lost))
    }

    /// Writes to the output until the queue is closed and empty.
    fn write_all(&self, mut to: Output) {
        let mut lines = Vec::new();
        // Lost, and not yet reported.
        let mut lost = 0;
        while let Some(more) = self.take(&mut lines) {
            lost += to.write_lines(&lines) + more;
            if lost > 0 && to.write_lines(loss_report(lost).as_bytes()) == 0 {
                lost = 0;
            }
            lines.clear();
            // Gives back the memory of a flood.
            lines.shrink_to(limits::KEPT);
        }
        self.waiting().ended = true;
        self.done.notify_all();
    }
}

/// The line that reports how many lines were lost.
fn loss_report(lost: u64) -> String {
    format!(
        "{{\"level\":\"warn\",\"ts\":\"{:.3}\",\
         \"msg\":\"the log is not read fast enough: lines are lost\",\"lost\":{lost}}}\n",
        Timestamp::now()
    )
}

/// The threads that write, one for each output. When this is dropped, they write what waits, within
/// a bound.
#[derive(Debug)]
pub struct Writer(Vec<Arc<Queue>>);

impl Writer {
    pub(crate) fn start(to: Log) -> io::Result<Self> {
        let mut writer = Self(Vec::new());
        for output in to.0 {
            let queue = Arc::new(Queue::default());
            let thread = Arc::clone(&queue);
            thread::Builder::new()
                .name("log".to_owned())
                .stack_size(STACK)
                .spawn(move || thread.write_all(output))?;
            writer.0.push(queue);
        }
        Ok(writer)
    }

    /// The queues; each line goes to all of them.
    pub(crate) fn queues(&self) -> Vec<Arc<Queue>> {
        self.0.clone()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let deadline = Instant::now() + limits::END;
        for queue in &self.0 {
            queue.waiting().closed = true;
            queue.more.notify_one();
        }
        for queue in &self.0 {
            let left = deadline.saturating_duration_since(Instant::now());
            let unfinished = |waiting: &mut Waiting| !waiting.ended;
            let waited = queue
                .done
                .wait_timeout_while(queue.waiting(), left, unfinished);
            // What was not read by then is lost with the process.
            drop(waited);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_of(queue: &Queue) -> (String, u64) {
        let mut buffer = Vec::new();
        let lost = queue.take(&mut buffer).unwrap();
        (String::from_utf8(buffer).unwrap(), lost)
    }

    #[test]
    fn lines_that_do_not_fit_are_counted() {
        let queue = Queue::default();
        let line = vec![b'x'; limits::QUEUE / 2];
        for _ in 0..5 {
            queue.push(&line);
        }
        let (lines, lost) = lines_of(&queue);
        assert_eq!((lines.len(), lost), (line.len() * 2, 3));
        // There is room again, and the loss was reported.
        queue.push(b"short\n");
        assert_eq!(lines_of(&queue), ("short\n".to_owned(), 0));
        let read: serde_json::Value = serde_json::from_str(&loss_report(3)).unwrap();
        assert_eq!((&read["level"], &read["lost"]), (&"warn".into(), &3.into()));
    }

    #[test]
    fn the_writer_ends_with_everything_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (log, _) = Log::open([path.display().to_string()], crate::Stream::Stderr);
        let writer = Writer::start(log).unwrap();
        for number in 0..1000 {
            writer.0[0].push(format!("{number}\n").as_bytes());
        }
        drop(writer);
        let text = std::fs::read_to_string(&path).unwrap();
        let want: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(text, want);
    }
}
