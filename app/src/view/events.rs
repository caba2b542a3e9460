//! Data of the page about the audit trail.

use osb_protocol::audit::AuditPage;
use serde::{Deserialize, Serialize};

use super::Answer;

/// What the page shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EventsView {
    /// One page of entries, or what is wrong with the filter, or why the caller may not see them.
    pub answer: Answer<AuditPage>,
    /// Names of all actions.
    pub actions: Vec<String>,
    /// Entries that the trail had taken since the start of the server before these were read.
    pub written: u64,
}

/// The filter of the page, as its URL has it. Empty texts mean any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventsQuery {
    /// Id of a sandbox.
    pub sandbox: String,
    /// Id or name of the actor.
    pub actor: String,
    /// Name of the action.
    pub action: String,
    /// How it ended.
    pub outcome: String,
    /// One of [`PERIODS`]: entries since that long ago.
    pub last: String,
    /// Entries at or after this time. Without a zone in UTC.
    pub since: String,
    /// Entries before this time. Without a zone in UTC.
    pub until: String,
    /// Where the page begins: `next` of the page before.
    pub cursor: String,
}

/// Periods that the filter offers: as the URL has them, in words, and in seconds.
pub const PERIODS: [(&str, &str, i64); 4] = [
    ("15m", "15 minutes", 900),
    ("1h", "1 hour", 3_600),
    ("24h", "24 hours", 86_400),
    ("7d", "7 days", 604_800),
];

impl EventsQuery {
    /// From the parameters of a URL.
    pub fn from_url(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| get(name).map(|text| text.trim().to_owned());
        let text = |name| text(name).unwrap_or_default();
        Self {
            sandbox: text("sandbox"),
            actor: text("actor"),
            action: text("action"),
            outcome: text("outcome"),
            last: text("last"),
            since: text("since"),
            until: text("until"),
            cursor: text("cursor"),
        }
    }

    /// The parameters that are not empty.
    #[must_use]
    pub fn parameters(&self) -> Vec<(&'static str, &str)> {
        let all = [
            ("sandbox", &self.sandbox),
            ("actor", &self.actor),
            ("action", &self.action),
            ("outcome", &self.outcome),
            ("last", &self.last),
            ("since", &self.since),
            ("until", &self.until),
            ("cursor", &self.cursor),
        ];
        let set = all.into_iter().filter(|(_, value)| !value.is_empty());
        set.map(|(name, value)| (name, value.as_str())).collect()
    }

    /// The query of a URL, with these parameters in addition.
    pub(crate) fn query_string(&self, more: &[(&'static str, &str)]) -> String {
        let own = self.parameters();
        crate::query_string::to_query(own.iter().chain(more).copied())
    }

    /// The page's address with this filter.
    pub(crate) fn url(&self) -> String {
        ["/console/events", &self.query_string(&[])].concat()
    }

    /// The same from another place on; from the newest entry without one.
    #[must_use]
    pub(crate) fn at_place(&self, cursor: &str) -> Self {
        Self {
            cursor: cursor.to_owned(),
            ..self.clone()
        }
    }

    /// Whether it selects anything.
    pub(crate) fn is_empty(&self) -> bool {
        self.at_place("") == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_the_same_after_its_url() {
        let query = EventsQuery {
            sandbox: "0b6c".to_owned(),
            actor: "zoe & co".to_owned(),
            action: "sandbox.create".to_owned(),
            outcome: "denied".to_owned(),
            last: "24h".to_owned(),
            since: "2026-01-01T00:00".to_owned(),
            until: "2026-01-02T00:00:00Z".to_owned(),
            cursor: "42".to_owned(),
        };
        let url = query.url();
        let (_, pairs) = url.split_once('?').unwrap();
        let read = crate::query_string::Query::parse(pairs);
        assert_eq!(EventsQuery::from_url(|name| read.get(name)), query, "{url}");
        assert_eq!(EventsQuery::default().url(), "/console/events");
        assert!(EventsQuery::default().at_place("7").is_empty());
        assert!(!query.is_empty());
    }
}
