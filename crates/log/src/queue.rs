//! Queues between the log and its outputs, so that logging never waits for an output.
//!
//! `tracing-appender` is unsuitable for three reasons. It limits its queue in lines, so that long
//! lines use any amount of memory, and it allocates all slots at the start. It counts dropped
//! lines, but not their position. It does not count lines that an output rejected.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
    time::Instant,
};

use jiff::Timestamp;

use crate::{Log, Output, limits};

/// Stack size of a writer thread in bytes. It only copies bytes.
const STACK: usize = 64 << 10;

/// Lines waiting for one output.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: Mutex<PendingLines>,
    /// Signalled when lines are queued, or the queue is closed.
    more: Condvar,
    /// Signalled when the thread has ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct PendingLines {
    lines: Vec<u8>,
    /// Number of dropped lines.
    lost: u64,
    /// Whether the thread sleeps and must be woken.
    asleep: bool,
    closed: bool,
    ended: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, PendingLines> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    /// Adds a line, or drops and counts it if the queue is full.
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

    /// Swaps an empty buffer for the queued lines, and returns how many lines were dropped after
    /// them. `None` when the queue is closed and empty.
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
        // Number of lost lines that are not reported yet.
        let mut lost = 0;
        while let Some(more) = self.take(&mut lines) {
            lost += to.write_lines(&lines) + more;
            if lost > 0 && to.write_lines(loss_report(lost).as_bytes()) == 0 {
                lost = 0;
            }
            lines.clear();
            // Frees the memory that a burst needed.
            lines.shrink_to(limits::KEPT);
        }
        self.waiting().ended = true;
        self.done.notify_all();
    }
}

/// Line that reports the number of lost lines.
fn loss_report(lost: u64) -> String {
    format!(
        "{{\"level\":\"warn\",\"ts\":\"{:.3}\",\
         \"msg\":\"the log is not read fast enough: lines are lost\",\"lost\":{lost}}}\n",
        Timestamp::now()
    )
}

/// Writer threads, one for each output. On drop, they write the queued lines within
/// [`limits::END`].
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

    /// Queues of all outputs. Each line goes to all of them.
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
            let unfinished = |waiting: &mut PendingLines| !waiting.ended;
            let waited = queue
                .done
                .wait_timeout_while(queue.waiting(), left, unfinished);
            // Lines that the output has not accepted by then are lost.
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
    fn lines_beyond_the_queue_are_counted() {
        let queue = Queue::default();
        let line = vec![b'x'; limits::QUEUE / 2];
        for _ in 0..5 {
            queue.push(&line);
        }
        let (lines, lost) = lines_of(&queue);
        assert_eq!((lines.len(), lost), (line.len() * 2, 3));
        // The queue has room again, and the loss was reported.
        queue.push(b"short\n");
        assert_eq!(lines_of(&queue), ("short\n".to_owned(), 0));
        let read: serde_json::Value = serde_json::from_str(&loss_report(3)).unwrap();
        assert_eq!((&read["level"], &read["lost"]), (&"warn".into(), &3.into()));
    }

    #[test]
    fn the_writer_ends_after_writing_all_lines() {
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
