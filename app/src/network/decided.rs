//! Decisions as rows of a table.

use std::collections::BTreeMap;

use osb_protocol::{
    WireTime,
    lifecycle::{DestinationDecision, NameDecision, NetworkDecisions},
    network_policy::Action,
};

/// Names that are kept while the tab is shown: as many as a sidecar remembers.
const NAMES: usize = 2_048;
/// Rows that are shown.
pub(super) const SHOWN: usize = 200;
/// In place of a rule: the default decided.
const DEFAULT: &str = "default";
/// End of the name of a rule that the operator made for every sandbox.
const OF_OPERATOR: &str = "(deny.always)";

/// Which decisions are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Filter {
    #[default]
    All,
    Denied,
    Allowed,
}

impl Filter {
    pub(super) const ALL: [Self; 3] = [Self::All, Self::Denied, Self::Allowed];

    /// The filter with this word in an address.
    pub(super) fn of_word(word: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        all.find(|filter| filter.word() == word).unwrap_or_default()
    }

    /// Its word in an address.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Denied => "denied",
            Self::Allowed => "allowed",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Denied => "Refused",
            Self::Allowed => "Allowed",
        }
    }

    fn admits(self, row: &Row) -> bool {
        match self {
            Self::All => true,
            Self::Denied => row.is_denied,
            Self::Allowed => !row.is_denied,
        }
    }
}

/// A decision about a name, or about a destination of packets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Distinguishes it from all others.
    pub(super) key: String,
    pub(super) is_denied: bool,
    /// The name, or the names that led to the address.
    pub(super) name: String,
    pub(super) address: String,
    /// Protocol and port, such as `tcp/443`.
    pub(super) port: String,
    /// Rule that decided; unknown for destinations.
    pub(super) rule: Option<String>,
    pub(super) count: u64,
    pub(super) first: Option<WireTime>,
    pub(super) last: Option<WireTime>,
    /// Target of a rule that would allow it.
    pub(super) target: String,
}

impl Row {
    /// Whether the operator refuses it, whatever the policy says.
    pub(super) fn is_operators(&self) -> bool {
        let rule = self.rule.as_deref().unwrap_or_default();
        self.is_denied && rule.ends_with(OF_OPERATOR)
    }

    /// Whether the name is allowed, but its answer was withheld for the reason in place of the rule.
    pub(super) fn is_withheld(&self) -> bool {
        let rule = self.rule.as_deref().unwrap_or(DEFAULT);
        self.is_denied && rule != DEFAULT && !rule.starts_with("deny ")
    }

    fn of_name(decision: &NameDecision) -> Self {
        Self {
            key: format!("name {}", decision.name),
            is_denied: is_denied(&decision.action),
            name: decision.name.clone(),
            rule: Some(decision.rule.clone()),
            count: decision.count,
            first: Some(decision.first),
            last: Some(decision.last),
            target: decision.name.trim_end_matches('.').to_owned(),
            ..Self::default()
        }
    }

    fn of_destination(decision: &DestinationDecision) -> Self {
        let port = format!("{}/{}", decision.protocol, decision.port);
        Self {
            key: format!("{} {} {port}", decision.action, decision.address),
            is_denied: is_denied(&decision.action),
            name: decision.names.join(", "),
            address: decision.address.clone(),
            port,
            count: decision.count,
            target: decision.address.clone(),
            ..Self::default()
        }
    }

    fn contains(&self, text: &str) -> bool {
        [&self.name, &self.address, &self.port]
            .into_iter()
            .any(|part| part.to_lowercase().contains(text))
    }
}

fn is_denied(action: &str) -> bool {
    Action::parse(action) != Some(Action::Allow)
}

/// What was decided, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Decided {
    names: BTreeMap<String, NameDecision>,
    next: u64,
    destinations: Vec<DestinationDecision>,
}

impl Decided {
    pub(super) fn new(decisions: NetworkDecisions) -> Self {
        let mut decided = Self::default();
        decided.take(decisions);
        decided
    }

    /// Number after which changes of names are not known.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Takes over what was decided since.
    pub(super) fn take(&mut self, newer: NetworkDecisions) {
        self.destinations = newer.destinations;
        if newer.next < self.next {
            // The sidecar has started anew, and counts from one. The next answer has all names.
            self.names.clear();
            self.next = 0;
            return;
        }
        self.next = newer.next;
        let named = newer.names.into_iter();
        self.names
            .extend(named.map(|decision| (decision.name.clone(), decision)));
        if self.names.len() > NAMES {
            let mut numbers: Vec<u64> = self.names.values().map(|it| it.number).collect();
            numbers.sort_unstable();
            let oldest = numbers[numbers.len() - NAMES];
            self.names.retain(|_, decision| decision.number >= oldest);
        }
    }

    /// The rows to show, and the number of all that fit. Names that were asked for first lately come
    /// first, so that a row keeps its place when its name is asked for again; then come destinations,
    /// the refused ones first.
    pub(super) fn rows(&self, filter: Filter, text: &str) -> Rows {
        let text = text.trim().to_lowercase();
        let mut names: Vec<&NameDecision> = self.names.values().collect();
        names.sort_by(|a, b| (b.first, &b.name).cmp(&(a.first, &a.name)));
        let mut destinations: Vec<Row> =
            self.destinations.iter().map(Row::of_destination).collect();
        destinations.sort_by(|a, b| {
            let place = |row: &Row| (!row.is_denied, row.address.clone(), row.port.clone());
            place(a).cmp(&place(b))
        });
        let rows = names.into_iter().map(Row::of_name).chain(destinations);
        let mut fitting: Vec<Row> = rows
            .filter(|row| filter.admits(row) && row.contains(&text))
            .collect();
        let total = fitting.len();
        fitting.truncate(SHOWN);
        Rows {
            rows: fitting,
            total,
        }
    }
}

/// Rows of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rows {
    pub(super) rows: Vec<Row>,
    /// Number of all, also of those that are not shown.
    pub(super) total: usize,
}

impl Rows {
    pub(super) fn keys(&self) -> Vec<String> {
        self.rows.iter().map(|row| row.key.clone()).collect()
    }

    pub(super) fn find(&self, key: &str) -> Option<Row> {
        self.rows.iter().find(|row| row.key == key).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(action: &str, name: &str, number: u64) -> NameDecision {
        let at = |ms| WireTime::from_unix_ms(ms).unwrap();
        NameDecision {
            action: action.to_owned(),
            name: name.to_owned(),
            rule: "default".to_owned(),
            count: number,
            first: at(i64::try_from(number).unwrap()),
            last: at(1_000),
            number,
            nonexistent: false,
        }
    }

    fn destination(action: &str, address: &str) -> DestinationDecision {
        DestinationDecision {
            action: action.to_owned(),
            address: address.to_owned(),
            protocol: "tcp".to_owned(),
            port: 443,
            count: 1,
            names: vec!["a.example".to_owned(), "b.example".to_owned()],
        }
    }

    fn decisions(names: Vec<NameDecision>, next: u64) -> NetworkDecisions {
        NetworkDecisions {
            names,
            next,
            destinations: vec![
                destination("allow", "198.51.100.1"),
                destination("deny", "198.51.100.2"),
            ],
        }
    }

    fn shown(decided: &Decided, filter: Filter, text: &str) -> Vec<String> {
        let rows = decided.rows(filter, text).rows.into_iter();
        rows.map(|row| row.target).collect()
    }

    #[test]
    fn newer_decisions_replace_older_ones_in_their_place() {
        let first = vec![name("deny", "a.example", 1), name("allow", "b.example", 2)];
        let mut decided = Decided::new(decisions(first, 2));
        assert_eq!(decided.next(), 2);
        let all = ["b.example", "a.example", "198.51.100.2", "198.51.100.1"];
        assert_eq!(shown(&decided, Filter::All, ""), all);
        let again = NameDecision {
            first: WireTime::from_unix_ms(1).unwrap(),
            ..name("allow", "a.example", 3)
        };
        decided.take(decisions(vec![again], 3));
        assert_eq!(shown(&decided, Filter::All, ""), all, "in the same order");
        assert_eq!(shown(&decided, Filter::Denied, ""), ["198.51.100.2"]);
        let allowed = ["b.example", "a.example", "198.51.100.1"];
        assert_eq!(shown(&decided, Filter::Allowed, ""), allowed);
        let by_name = ["a.example", "198.51.100.2", "198.51.100.1"];
        assert_eq!(shown(&decided, Filter::All, " A.ex "), by_name);
    }

    #[test]
    fn a_sidecar_that_started_anew_is_read_from_its_beginning() {
        let mut decided = Decided::new(decisions(vec![name("deny", "a.example", 9)], 9));
        decided.take(decisions(Vec::new(), 1));
        assert_eq!(decided.next(), 0);
        decided.take(decisions(vec![name("deny", "c.example", 1)], 1));
        assert_eq!(shown(&decided, Filter::All, "c.ex"), ["c.example"]);
        assert_eq!(decided.next(), 1);
    }

    #[test]
    fn the_latest_names_are_kept_and_few_rows_are_shown() {
        let many = u64::try_from(NAMES).unwrap() + 10;
        let names = (1..=many).map(|number| name("deny", &format!("n{number}.example"), number));
        let decided = Decided::new(decisions(names.collect(), many));
        let rows = decided.rows(Filter::Denied, "");
        assert_eq!((rows.rows.len(), rows.total), (SHOWN, NAMES + 1));
        assert_eq!(rows.rows[0].name, format!("n{many}.example"));
        assert_eq!(rows.find(&rows.keys()[0]), Some(rows.rows[0].clone()));
    }

    #[test]
    fn what_the_operator_refuses_is_known_by_its_rule() {
        let mut decision = name("deny", "a.example", 1);
        assert!(!Row::of_name(&decision).is_operators());
        decision.rule = "deny *.example (deny.always)".to_owned();
        assert!(Row::of_name(&decision).is_operators());
        assert!(!Row::of_name(&decision).is_withheld());
        decision.rule = "a.example is an alias of b.example: deny b.example".to_owned();
        assert!(Row::of_name(&decision).is_withheld());
        assert_eq!(Filter::of_word("denied"), Filter::Denied);
        assert_eq!(Filter::of_word("odd"), Filter::All);
    }
}
