//! From whoever logs to the outputs, without waiting.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard},
    thread,
};

use jiff::Timestamp;

use super::Log;
use crate::limits;

/// It copies bytes from one place to another.
const STACK: usize = 64 << 10;

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Something waits, or nothing more will come.
    more: Condvar,
    /// The thread has ended.
    done: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines that found no place.
    lost: u64,
    /// The thread sleeps: somebody has to wake it.
    asleep: bool,
    closed: bool,
    ended: bool,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("no holder of this lock panics")
    }

    /// Adds a line. One that finds no place is counted.
    pub(super) fn push(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > limits::LOG_QUEUE {
            waiting.lost += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        if std::mem::take(&mut waiting.asleep) {
            drop(waiting);
            self.more.notify_one();
        }
    }

    /// Exchanges an empty buffer for the lines that wait, and tells how many were lost after them.
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

    /// The work of the thread.
    fn write_all(&self, mut to: Log) {
        let mut lines = Vec::new();
        while let Some(lost) = self.take(&mut lines) {
            if !lines.is_empty() {
                to.write_lines(&lines);
            }
            if lost > 0 {
                to.write_lines(told(lost).as_bytes());
            }
            lines.clear();
            // A flood is over some time.
            lines.shrink_to(limits::LOG_KEPT);
        }
        self.waiting().ended = true;
        self.done.notify_all();
    }
}

fn told(lost: u64) -> String {
    format!(
        "{{\"level\":\"warn\",\"ts\":\"{:.3}\",\
         \"msg\":\"the log is not read fast enough: lines are lost\",\"lost\":{lost}}}\n",
        Timestamp::now()
    )
}

/// The thread that writes. Dropped, it writes what waits, within a bound.
#[derive(Debug)]
pub struct Writer(Arc<Queue>);

impl Writer {
    pub(super) fn start(to: Log) -> io::Result<Self> {
        let queue = Arc::new(Queue::default());
        let thread = Arc::clone(&queue);
        thread::Builder::new()
            .name("log".to_owned())
            .stack_size(STACK)
            .spawn(move || thread.write_all(to))?;
        Ok(Self(queue))
    }

    pub(super) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.0)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting();
        waiting.closed = true;
        self.0.more.notify_one();
        let unfinished = |waiting: &mut Waiting| !waiting.ended;
        let waited = self
            .0
            .done
            .wait_timeout_while(waiting, limits::LOG_END, unfinished);
        // What was not read by then is lost with the process.
        drop(waited);
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
    fn what_finds_no_place_is_counted() {
        let queue = Queue::default();
        let line = vec![b'x'; limits::LOG_QUEUE / 2];
        for _ in 0..5 {
            queue.push(&line);
        }
        let (lines, lost) = lines_of(&queue);
        assert_eq!((lines.len(), lost), (line.len() * 2, 3));
        // There is place again, and the loss was told.
        queue.push(b"short\n");
        assert_eq!(lines_of(&queue), ("short\n".to_owned(), 0));
        let read: serde_json::Value = serde_json::from_str(&told(3)).unwrap();
        assert_eq!((&read["level"], &read["lost"]), (&"warn".into(), &3.into()));
    }

    #[test]
    fn the_writer_ends_with_everything_written() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (log, _) = super::super::open(|_| Some(path.display().to_string()));
        let writer = Writer::start(log).unwrap();
        let queue = writer.queue();
        for number in 0..1000 {
            queue.push(format!("{number}\n").as_bytes());
        }
        drop(writer);
        let text = std::fs::read_to_string(&path).unwrap();
        let want: String = (0..1000).map(|number| format!("{number}\n")).collect();
        assert_eq!(text, want);
    }
}
