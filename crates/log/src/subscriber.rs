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

use crate::{identity::Identity, limits, line::Line, queue::Queue, sampling::Sampler};

thread_local! {
    /// Buffer for lines, so that a line needs no allocation.
    static BUFFER: Cell<String> = const { Cell::new(String::new()) };
}

/// Subscriber that writes a line for each event. It ignores spans, which no line contains.
#[derive(Debug)]
pub(crate) struct Lines {
    level: Level,
    identity: Identity,
    sampler: Mutex<Sampler>,
    to: Vec<Arc<Queue>>,
}

impl Lines {
    pub(crate) fn new(level: Level, identity: Identity, to: Vec<Arc<Queue>>) -> Self {
        Self {
            level,
            identity,
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
        let level = *metadata.level();
        let is_wanted = level <= Level::WARN || self.level >= Level::DEBUG || is_ours(metadata);
        metadata.is_event() && level <= self.level && is_wanted
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level.into())
    }

    fn event(&self, event: &Event<'_>) {
        // A nested event finds an empty buffer. The larger of the two buffers is kept.
        let mut buffer = BUFFER.try_with(Cell::take).unwrap_or_default();
        let at = Timestamp::now();
        let line = Line::begin(&mut buffer, &self.identity, event, at);
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

/// Whether an event is from a daemon rather than from a library. At the usual level, libraries only
/// report trouble: a DNS server logs each query twice, for example.
fn is_ours(metadata: &Metadata<'_>) -> bool {
    const PREFIX: &str = "osb_";
    const PROGRAMS: [&str; 2] = ["execd", "egress"];
    let crate_name = metadata.target().split("::").next().unwrap_or_default();
    crate_name.starts_with(PREFIX) || PROGRAMS.contains(&crate_name)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::{Value, json};
    use tracing::{debug, error, info, info_span, subscriber::with_default};

    use super::*;
    use crate::{Json, Log, Stream, Writer};

    /// Runs `work`, and returns the lines that it logged.
    fn logged(level: Level, work: impl FnOnce()) -> Vec<String> {
        logged_as(Identity::default(), level, work)
    }

    /// The same for a daemon with an identity.
    fn logged_as(identity: Identity, level: Level, work: impl FnOnce()) -> Vec<String> {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let (log, _) = Log::open([path.display().to_string()], Stream::Stderr);
        let writer = Writer::start(log).unwrap();
        with_default(Lines::new(level, identity, writer.queues()), work);
        drop(writer);
        let text = fs::read_to_string(&path).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn libraries_only_report_trouble_unless_everything_is_wanted() {
        let events = || {
            info!(target: "hickory_server::server", "library");
            tracing::warn!(target: "hickory_server::server", "trouble");
            info!(target: "egress", "program");
            info!("own");
        };
        let count = |level| logged(level, events).len();
        assert_eq!(count(Level::WARN), 1);
        assert_eq!(count(Level::INFO), 3);
        assert_eq!(count(Level::DEBUG), 4);
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

    #[test]
    fn every_line_names_its_logger_and_has_the_attributes_once() {
        let attributes = [
            ("team", "a\"b"),
            ("msg", "mine"),
            ("count", "7"),
            ("team", "blue"),
            ("sandbox_id", "sb-1"),
        ];
        let identity = Identity::new("opensandbox.egress", attributes);
        let lines = logged_as(identity, Level::INFO, || {
            info!("plain");
            info!(count = 2, "with a member of the same name");
        });
        let rest = lines[0].split_once(",\"logger\"").unwrap().1;
        assert_eq!(
            rest,
            ":\"opensandbox.egress\",\"msg\":\"plain\",\"count\":\"7\",\"team\":\"blue\",\
             \"sandbox_id\":\"sb-1\"}"
        );
        assert_eq!(lines[1].matches("count").count(), 1, "{}", lines[1]);
        let read: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(read["count"], 2);
    }

    #[test]
    fn lists_and_objects_are_json() {
        let lines = logged(Level::INFO, || {
            let (list, object) = (Json::of(&["a\n", "b"]), Json::of(&json!([{"c": 1}])));
            let (none, none_at_all) = (Json::of(&[0_u8; 0]), None::<Json>);
            info!(
                list = list.value(),
                object = object.value(),
                none = none.value(),
                absent = none_at_all.as_ref().map(Json::value),
                "lists"
            );
        });
        let mut read: Value = serde_json::from_str(&lines[0]).unwrap();
        read["ts"] = "".into();
        let want = json!({
            "level": "info", "ts": "", "msg": "lists",
            "list": ["a\n", "b"], "object": [{"c": 1}], "none": [],
        });
        assert_eq!(read, want);
    }
}
