//! Subscriber for the events of this process.

use std::{
    cell::Cell,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use tracing::{
    Event, Level, Metadata, Subscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
};

use crate::{limits, line::Line, queue::Queue, sampling::Sampler};

thread_local! {
    /// Buffer for lines, so that a line needs no allocation.
    static BUFFER: Cell<String> = const { Cell::new(String::new()) };
}

/// Subscriber that writes a line for each event. It ignores spans, which no line contains.
#[derive(Debug)]
pub(crate) struct Lines {
    level: Level,
    sampler: Mutex<Sampler>,
    to: Vec<Arc<Queue>>,
}

impl Lines {
    pub(crate) fn new(level: Level, to: Vec<Arc<Queue>>) -> Self {
        Self {
            level,
            sampler: Mutex::default(),
            to,
        }
    }

    fn admit(&self, level: Level, text: &str, at: Timestamp) -> Option<u32> {
        let mut sampler = self.sampler.lock().expect("no holder of this lock panics");
        sampler.admit(level, text, at.as_second())
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        // A nested event finds an empty buffer. The larger of the two buffers is kept.
        let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        let at = Timestamp::now();
        let line = Line::begin(&mut buffer, event, at);
        let admitted = self.admit(*event.metadata().level(), line.text(), at);
        if let Some(left_out) = admitted {
            line.end(event, left_out);
            for queue in &self.to {
                queue.push(buffer.as_bytes());
            }
        }
        buffer.clear();
        buffer.shrink_to(limits::KEPT);
        // A thread that is ending has no buffer.
        let _kept = BUFFER.try_with(|kept| kept.set(buffer));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tracing::{debug, error, info, info_span, subscriber::with_default};

    use super::*;
    use crate::{Log, Stream, Writer};

    /// Runs `work`, and returns the lines that it logged.
    fn logged(level: Level, work: impl FnOnce()) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (log, _) = Log::open([path.display().to_string()], Stream::Stderr);
        let writer = Writer::start(log).unwrap();
        with_default(Lines::new(level, writer.queues()), work);
        drop(writer);
        let text = fs::read_to_string(&path).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_line_begins_with_level_time_and_message() {
        let lines = logged(Level::INFO, || {
            info_span!("task", name = "x").in_scope(|| info!("plain"));
            let cause = std::io::Error::other("no\nluck");
            let error = &cause as &dyn std::error::Error;
            error!(error, id = ?Some("é"), count = -1, share = 0.5, bad = f64::NAN, yes = true, "a \"{}\"", 1);
            debug!("not said");
        });
        assert_eq!(lines.len(), 2, "{lines:?}");
        let rest = lines[0].strip_prefix("{\"level\":\"info\",\"ts\":\"");
        let (time, rest) = rest.unwrap().split_once('"').unwrap();
        let shape = time.replace(|c: char| c.is_ascii_digit(), "0");
        assert_eq!(shape, "0000-00-00T00:00:00.000Z");
        assert_eq!(rest, ",\"msg\":\"plain\"}");
        let mut read: Value = serde_json::from_str(&lines[1]).unwrap();
        read["ts"] = "".into();
        let want = json!({
            "level": "error", "ts": "", "msg": "a \"1\"", "error": "no\nluck",
            "id": "Some(\"é\")", "count": -1, "share": 0.5, "bad": "NaN", "yes": true,
        });
        assert_eq!(read, want);
    }
}
