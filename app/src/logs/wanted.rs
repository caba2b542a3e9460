//! What is shown of a log, and how: on a page its address says so.
use super::kind::{Kind, Origin, Severity};
use crate::query_string::to_query;

/// Which outputs are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Source {
    /// All of them, as they were written.
    #[default]
    All,
    /// Only this one.
    Only(Origin),
}

impl Source {
    pub(super) const ALL: [Self; 4] = [
        Self::All,
        Self::Only(Origin::Output),
        Self::Only(Origin::Error),
        Self::Only(Origin::Daemon),
    ];

    /// Its name in the address.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Only(Origin::Output) => "stdout",
            Self::Only(Origin::Error) => "stderr",
            Self::Only(Origin::Daemon) => "execd",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::All => "All outputs",
            Self::Only(Origin::Output) => "Standard output",
            Self::Only(Origin::Error) => "Standard error",
            Self::Only(Origin::Daemon) => "execd",
        }
    }

    pub(super) fn of_key(key: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|source| source.key() == key).unwrap_or_default()
    }
}

/// The view of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wanted {
    /// A regular expression.
    pub(super) filter: String,
    pub(super) source: Source,
    /// The least severity.
    pub(super) severity: Severity,
    pub(super) wraps: bool,
    pub(super) has_times: bool,
}

impl Wanted {
    pub(super) fn of(get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            filter: get("q").unwrap_or_default(),
            source: Source::of_key(&get("stream").unwrap_or_default()),
            severity: Severity::of_key(&get("level").unwrap_or_default()),
            wraps: get("wrap").is_some(),
            has_times: get("times").as_deref() != Some("off"),
        }
    }

    pub(super) fn query(&self) -> String {
        let all = [
            ("q", self.filter.as_str()),
            ("stream", self.source.key()),
            ("level", self.severity.key()),
            ("wrap", if self.wraps { "on" } else { "" }),
            ("times", if self.has_times { "" } else { "off" }),
        ];
        to_query(all.into_iter().filter(|(_, value)| !value.is_empty()))
    }

    /// Whether lines of this kind are shown, whatever their text is.
    pub(super) fn takes(&self, kind: Kind) -> bool {
        let is_source = match self.source {
            Source::All => true,
            Source::Only(origin) => origin == kind.origin,
        };
        is_source && kind.severity >= self.severity
    }

    /// Whether every line is shown.
    pub(super) fn takes_all(&self) -> bool {
        self.filter.is_empty() && self.source == Source::All && self.severity == Severity::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_holds_the_view() {
        for wanted in [
            Wanted {
                has_times: true,
                ..Wanted::default()
            },
            Wanted {
                filter: "a|b c&d".to_owned(),
                source: Source::Only(Origin::Error),
                severity: Severity::Warning,
                wraps: true,
                has_times: false,
            },
        ] {
            let query = wanted.query();
            let read = crate::query_string::Query::parse(&query);
            assert_eq!(Wanted::of(|name| read.get(name)), wanted, "{query}");
        }
    }

    #[test]
    fn outputs_and_severities_are_filtered_together() {
        let kind = |origin, severity| Kind { origin, severity };
        let wanted = Wanted {
            source: Source::Only(Origin::Output),
            severity: Severity::Warning,
            ..Wanted::default()
        };
        assert!(wanted.takes(kind(Origin::Output, Severity::Error)));
        assert!(!wanted.takes(kind(Origin::Output, Severity::Other)));
        assert!(!wanted.takes(kind(Origin::Daemon, Severity::Error)));
        assert!(!wanted.takes_all());
        let all = Wanted::default();
        assert!(all.takes_all() && all.takes(kind(Origin::Daemon, Severity::Other)));
    }
}
