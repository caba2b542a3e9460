//! Messages of `/console/live`: JSON in text frames, in both directions.

use osb_protocol::{
    SandboxId,
    execd::pty::close_code,
    lifecycle::{MetricsSample, SandboxCommand},
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::log::LogBatch;
use crate::view::{Pulse, SandboxDetail, SandboxRow};

/// Close code of the console's WebSockets, terminals included: the session that opened it ended, or
/// there was none. Browsers hide from a page why a handshake failed, so the server completes it and
/// then closes with this code.
pub const CLOSE_SIGNED_OUT: u16 = close_code::SIGNED_OUT;

/// Whether the end of a connection means that the browser is signed out. A connection that had been
/// greeted proves only the end of the session that opened it: another tab may have signed in again,
/// which the next attempt shows.
#[must_use]
pub fn says_signed_out(code: u16, was_greeted: bool) -> bool {
    code == CLOSE_SIGNED_OUT && !was_greeted
}

/// A topic that a tab can subscribe to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Topic {
    /// Numbers of the overview; snapshot and deltas [`Pulse`].
    Overview,
    /// The list; snapshot `Vec<SandboxRow>`, deltas [`RowChange`].
    Sandboxes,
    /// How many entries the audit trail took since the start of the server; snapshot and deltas the
    /// number. The snapshot is `null` for a principal that does not see the whole trail.
    Events,
    /// What the rows that a tab shows use, see [`Command::Usage`]; every message is a snapshot
    /// `Vec<RowUse>`.
    Usage,
    /// One sandbox; every message is a snapshot, `null` once it is gone.
    Sandbox(SandboxId),
    /// Output of its entry point; snapshot and deltas [`LogBatch`].
    Logs(SandboxId),
    /// Its resource use each second; snapshot the last `Vec<MetricsSample>`, deltas `MetricsSample`.
    /// Both topics answer `null` for a sandbox that does not exist, and to a tab that follows too many.
    Metrics(SandboxId),
    /// What runs in it; the snapshot and every delta have the last `Vec<SandboxCommand>`, newest first.
    /// The snapshot may be `null`.
    Commands(SandboxId),
}

impl std::fmt::Display for Topic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Overview => f.write_str("overview"),
            Self::Sandboxes => f.write_str("sandboxes"),
            Self::Events => f.write_str("events"),
            Self::Usage => f.write_str("usage"),
            Self::Sandbox(id) => write!(f, "sandbox/{id}"),
            Self::Logs(id) => write!(f, "sandbox/{id}/logs"),
            Self::Metrics(id) => write!(f, "sandbox/{id}/metrics"),
            Self::Commands(id) => write!(f, "sandbox/{id}/commands"),
        }
    }
}

impl std::str::FromStr for Topic {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("overview"), None, _) => Ok(Self::Overview),
            (Some("sandboxes"), None, _) => Ok(Self::Sandboxes),
            (Some("events"), None, _) => Ok(Self::Events),
            (Some("usage"), None, _) => Ok(Self::Usage),
            (Some("sandbox"), Some(id), part) if !id.is_empty() => match part {
                None => Ok(Self::Sandbox(id.into())),
                Some("logs") => Ok(Self::Logs(id.into())),
                Some("metrics") => Ok(Self::Metrics(id.into())),
                Some("commands") => Ok(Self::Commands(id.into())),
                Some(_) => Err("no such topic"),
            },
            _ => Err("no such topic"),
        }
    }
}

impl Serialize for Topic {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Topic {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A position in the stream of one topic. It names the server process too, because the numbers of
/// another process are unrelated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The server process that counted.
    pub epoch: String,
    /// The last message seen.
    pub seq: u64,
}

/// A command of a tab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Command {
    /// Starts with a snapshot, or after `since` if the server still has what followed.
    Subscribe {
        /// The topic.
        topic: Topic,
        /// Position of the last message that the tab has seen.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Position>,
    },
    /// Subscribes to [`Topic::Usage`], or changes its rows.
    Usage {
        /// The rows that the tab shows, at most a page of them.
        ids: Vec<SandboxId>,
    },
    /// Ends a subscription.
    Unsubscribe {
        /// The topic.
        topic: Topic,
    },
}

/// A message of the server. `data` stays text on the server: it is encoded once for all tabs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Frame<D = serde_json::Value> {
    /// First message of a connection.
    Hello {
        /// See [`Position::epoch`].
        epoch: String,
    },
    /// Rows of a long list, whose snapshot follows with the last of them. Short messages let a
    /// connection go with a small buffer, and a page read the list without a pause.
    Part {
        /// The topic.
        topic: Topic,
        /// Rows in the parts before this one.
        after: usize,
        /// See [`Topic`].
        data: D,
    },
    /// The whole content of a topic.
    Snapshot {
        /// The topic.
        topic: Topic,
        /// As of this message.
        seq: u64,
        /// Rows in the parts that precede it.
        #[serde(default, skip_serializing_if = "is_zero")]
        after: usize,
        /// See [`Topic`].
        data: D,
    },
    /// One change of a topic.
    Delta {
        /// The topic.
        topic: Topic,
        /// One more than the message before.
        seq: u64,
        /// See [`Topic`].
        data: D,
    },
    /// A sign of life on a quiet connection.
    Beat,
}

/// A [`Frame`] as a page reads it: its data is read at once as what the topic says, which saves the
/// page a copy of a long list as values, and the code for it.
#[derive(Debug, Deserialize)]
pub(super) struct Received<'a> {
    pub(super) kind: Kind,
    pub(super) topic: Option<Topic>,
    #[serde(default)]
    pub(super) epoch: String,
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) after: usize,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Which [`Frame`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    Hello,
    Part,
    Snapshot,
    Delta,
    Beat,
}

impl Received<'_> {
    /// What it says of its topic; `None` if a newer server sent what this page does not know.
    pub(super) fn update(&self) -> Option<Update> {
        let data = self.data.map_or("null", RawValue::get);
        Update::read(self.topic.as_ref()?, self.kind == Kind::Delta, data)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The parts of a long list that came so far.
#[derive(Debug, Default)]
pub(super) struct Parts(Vec<SandboxRow>);

impl Parts {
    /// Takes the next part. A part that does not follow the others makes them worthless.
    pub(super) fn add(&mut self, after: usize, rows: Vec<SandboxRow>) {
        if after == 0 || after != self.0.len() {
            self.0.clear();
        }
        if after == self.0.len() {
            self.0.extend(rows);
        }
    }

    /// The whole list; `None` if parts of it are missing.
    pub(super) fn complete(
        &mut self,
        after: usize,
        rest: Vec<SandboxRow>,
    ) -> Option<Vec<SandboxRow>> {
        let mut rows = match after {
            0 => Vec::new(),
            _ => std::mem::take(&mut self.0),
        };
        if rows.len() != after {
            return None;
        }
        rows.extend(rest);
        Some(rows)
    }
}

/// What a sandbox uses, for its row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowUse {
    /// The sandbox.
    pub id: SandboxId,
    /// Cores.
    pub cpu: Gauge,
    /// Memory.
    pub memory: Gauge,
}

/// Values of the last minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// Hundredths of the limit, oldest first, with commas between them; nothing for an unknown value.
    pub points: String,
    /// The last one, in words.
    pub now: String,
}

/// One change of the list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RowChange {
    /// A new or changed row.
    Put(Box<SandboxRow>),
    /// A sandbox that was removed.
    Removed(SandboxId),
}

/// Decoded data of a topic.
#[derive(Clone, Debug)]
pub(super) enum Update {
    /// Numbers of the overview.
    Pulse(Box<Pulse>),
    /// The whole list.
    List(Vec<SandboxRow>),
    /// One change of it.
    Change(RowChange),
    /// What rows use.
    Rows(Vec<RowUse>),
    /// One sandbox, or that it is gone.
    Detail(Option<Box<SandboxDetail>>),
    /// Lines of a log.
    Log(LogBatch),
    /// Resource use.
    Usage(Samples),
    /// What runs in a sandbox.
    Commands(Vec<SandboxCommand>),
    /// Entries of the audit trail.
    Events(u64),
}

/// Resource use of a sandbox.
#[derive(Clone, Debug)]
pub enum Samples {
    /// The last seconds.
    Recent(Vec<MetricsSample>),
    /// The last second.
    Next(Box<MetricsSample>),
}

impl Update {
    /// Decodes the data of a frame.
    fn read(topic: &Topic, is_delta: bool, data: &str) -> Option<Self> {
        let read = match (topic, is_delta) {
            (Topic::Events, _) => serde_json::from_str(data).map(Self::Events),
            (Topic::Overview, _) => serde_json::from_str(data).map(Self::Pulse),
            (Topic::Sandboxes, false) => serde_json::from_str(data).map(Self::List),
            (Topic::Sandboxes, true) => serde_json::from_str(data).map(Self::Change),
            (Topic::Sandbox(_), _) => serde_json::from_str(data).map(Self::Detail),
            (Topic::Logs(_), _) => serde_json::from_str(data).map(Self::Log),
            (Topic::Commands(_), _) => serde_json::from_str(data).map(Self::Commands),
            (Topic::Usage, _) => serde_json::from_str(data).map(Self::Rows),
            (Topic::Metrics(_), false) => {
                serde_json::from_str(data).map(|list| Self::Usage(Samples::Recent(list)))
            }
            (Topic::Metrics(_), true) => {
                serde_json::from_str(data).map(|next| Self::Usage(Samples::Next(Box::new(next))))
            }
        };
        read.ok()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn topics_are_text() {
        for text in [
            "overview",
            "sandboxes",
            "events",
            "usage",
            "sandbox/a",
            "sandbox/a/logs",
            "sandbox/a/metrics",
            "sandbox/a/commands",
        ] {
            assert_eq!(text.parse::<Topic>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "sandbox",
            "sandbox/",
            "pools",
            "sandboxes/x",
            "sandbox/a/b",
            "sandbox/a/logs/b",
        ] {
            assert!(text.parse::<Topic>().is_err(), "{text}");
        }
    }

    #[test]
    fn commands_read_as_documented() {
        let command: Command = serde_json::from_value(json!({
            "op": "subscribe", "topic": "sandboxes", "since": { "epoch": "e", "seq": 4 }
        }))
        .unwrap();
        let since = Some(Position {
            epoch: "e".to_owned(),
            seq: 4,
        });
        assert_eq!(
            command,
            Command::Subscribe {
                topic: Topic::Sandboxes,
                since
            }
        );
    }

    #[test]
    fn a_page_reads_what_the_server_sends() {
        let topic = Topic::Sandboxes;
        let frames = [
            Frame::Hello { epoch: "e".into() },
            Frame::Part {
                topic: topic.clone(),
                after: 100,
                data: json!([]),
            },
            Frame::Snapshot {
                topic: topic.clone(),
                seq: 7,
                after: 200,
                data: serde_json::to_value([row()]).unwrap(),
            },
            Frame::Delta {
                topic: topic.clone(),
                seq: 8,
                data: json!({ "removed": "a" }),
            },
            Frame::Beat,
        ];
        let texts = frames.map(|frame| serde_json::to_string(&frame).unwrap());
        let read = |at: usize| serde_json::from_str::<Received<'_>>(&texts[at]).unwrap();
        let hello = read(0);
        assert_eq!((hello.kind, hello.epoch.as_str()), (Kind::Hello, "e"));
        let part = read(1);
        assert_eq!((part.kind, part.after), (Kind::Part, 100));
        assert!(matches!(part.update(), Some(Update::List(rows)) if rows.is_empty()));
        let whole = read(2);
        assert_eq!(
            (whole.kind, whole.seq, whole.after),
            (Kind::Snapshot, 7, 200)
        );
        assert!(matches!(whole.update(), Some(Update::List(rows)) if rows.len() == 1));
        let delta = read(3);
        assert_eq!((delta.kind, delta.seq), (Kind::Delta, 8));
        let update = delta.update();
        assert!(matches!(
            update,
            Some(Update::Change(RowChange::Removed(_)))
        ));
        assert_eq!(read(4).kind, Kind::Beat);
        let gone = r#"{"kind":"snapshot","topic":"sandbox/a","seq":0,"data":null}"#;
        let gone = serde_json::from_str::<Received<'_>>(gone).unwrap();
        assert!(matches!(gone.update(), Some(Update::Detail(None))));
    }

    #[test]
    fn a_list_in_parts_is_whole_or_nothing() {
        let rows = |count: usize| vec![row(); count];
        let mut parts = Parts::default();
        assert_eq!(parts.complete(0, rows(2)).map(|it| it.len()), Some(2));
        parts.add(0, rows(2));
        parts.add(2, rows(2));
        assert_eq!(parts.complete(4, rows(1)).map(|it| it.len()), Some(5));
        assert!(
            parts.complete(4, rows(1)).is_none(),
            "parts count for one list"
        );
        // What a paused page left out.
        parts.add(2, rows(2));
        assert!(parts.complete(4, rows(1)).is_none());
        // A list that was asked for again begins again.
        parts.add(0, rows(2));
        parts.add(0, rows(2));
        assert_eq!(parts.complete(2, rows(0)).map(|it| it.len()), Some(2));
    }

    fn row() -> SandboxRow {
        serde_json::from_value(json!({
            "id": "a",
            "status": { "state": "Running" },
            "createdAt": "2026-01-01T00:00:00Z",
            "entrypoint": [],
        }))
        .unwrap()
    }

    #[test]
    fn only_a_refused_connection_means_signed_out() {
        assert!(says_signed_out(CLOSE_SIGNED_OUT, false));
        assert!(!says_signed_out(CLOSE_SIGNED_OUT, true), "a new session?");
        // The code that browsers report for a server that is down.
        assert!(!says_signed_out(1006, false));
    }

    #[test]
    fn a_detail_that_is_gone_is_null() {
        let topic = Topic::Sandbox("a".into());
        let read = Update::read(&topic, false, "null");
        assert!(matches!(read, Some(Update::Detail(None))));
        assert!(Update::read(&Topic::Sandboxes, false, "3").is_none());
    }
}
