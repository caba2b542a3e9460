//! Data of the pages about snapshots.

use osb_protocol::{
    SandboxId,
    lifecycle::{SandboxState, Snapshot, SnapshotState},
};
use serde::{Deserialize, Serialize};

use crate::query_string::to_query;

/// Snapshots of a page of the list.
pub const SNAPSHOT_PAGE: usize = 50;
/// Most snapshots that the create form offers.
pub const OFFERED_MAX: usize = 200;
/// Most sandboxes that are named as created from one snapshot.
pub const USERS_NAMED: usize = 20;

/// The filter of the list, as its URL has it. Empty texts mean any.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotsQuery {
    /// Exactly this name.
    pub name: String,
    /// The name of a state.
    pub state: String,
    /// Id of the sandbox that they were taken of.
    pub sandbox: String,
    /// The page, from 1.
    pub page: usize,
}

impl Default for SnapshotsQuery {
    fn default() -> Self {
        Self {
            name: String::new(),
            state: String::new(),
            sandbox: String::new(),
            page: 1,
        }
    }
}

impl SnapshotsQuery {
    /// From the parameters of a URL. What is no number of a page is the first.
    pub fn from_url(get: impl Fn(&str) -> Option<String>) -> Self {
        let text = |name| get(name).map(|text| text.trim().to_owned());
        let page = text("page").and_then(|page| page.parse().ok());
        Self {
            name: text("name").unwrap_or_default(),
            state: text("state").unwrap_or_default(),
            sandbox: text("sandbox").unwrap_or_default(),
            page: page.unwrap_or(1).max(1),
        }
    }

    /// Those that were taken of a sandbox.
    #[must_use]
    pub fn of_sandbox(id: &SandboxId) -> Self {
        Self {
            sandbox: id.to_string(),
            ..Self::default()
        }
    }

    /// The page's address with this filter.
    #[must_use]
    pub fn url(&self) -> String {
        let page = match self.page {
            0 | 1 => String::new(),
            page => page.to_string(),
        };
        let all = [
            ("name", &self.name),
            ("state", &self.state),
            ("sandbox", &self.sandbox),
            ("page", &page),
        ];
        let set = all.into_iter().filter(|(_, value)| !value.is_empty());
        let query = to_query(set.map(|(name, value)| (name, value.as_str())));
        ["/console/snapshots", &query].concat()
    }

    /// The same on another page.
    #[must_use]
    pub fn on_page(&self, page: usize) -> Self {
        Self {
            page,
            ..self.clone()
        }
    }

    /// The first page of those in a state; an empty one means any.
    #[must_use]
    pub fn with_state(&self, state: &str) -> Self {
        Self {
            state: state.to_owned(),
            ..self.on_page(1)
        }
    }

    /// Whether it leaves anything out.
    #[must_use]
    pub fn filters(&self) -> bool {
        self.on_page(1) != Self::default()
    }
}

/// One page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotList {
    /// The rows of this page, newest first.
    pub rows: Vec<SnapshotRow>,
    /// Snapshots on all pages that match the filter.
    pub matching: usize,
    /// The page that is shown, from 1: the last one if the requested page does not exist.
    pub page: usize,
    /// All snapshots that the caller may see, whatever the filter.
    pub totals: SnapshotTotals,
}

impl SnapshotList {
    /// The row of a snapshot.
    #[must_use]
    pub fn row(&self, id: &str) -> Option<&SnapshotRow> {
        self.rows.iter().find(|row| row.snapshot.id == id)
    }

    /// The number of the last page; 1 if there is none.
    #[must_use]
    pub fn last_page(&self) -> usize {
        self.matching.div_ceil(SNAPSHOT_PAGE).max(1)
    }
}

/// How many snapshots there are, and what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotTotals {
    /// All of them.
    pub all: u64,
    /// Those that are being taken.
    pub creating: u64,
    /// Those that sandboxes can be created from.
    pub ready: u64,
    /// Those that could not be taken.
    pub failed: u64,
    /// Those that are being deleted.
    pub deleting: u64,
    /// Bytes on disk of those whose size is known.
    pub bytes: u64,
}

impl SnapshotTotals {
    /// Counts snapshots in a state with their bytes.
    pub fn add(&mut self, state: SnapshotState, count: u64, bytes: u64) {
        self.all += count;
        self.bytes = self.bytes.saturating_add(bytes);
        *match state {
            SnapshotState::Creating => &mut self.creating,
            SnapshotState::Ready => &mut self.ready,
            SnapshotState::Failed => &mut self.failed,
            SnapshotState::Deleting => &mut self.deleting,
        } += count;
    }
}

/// A snapshot with what it comes from and what comes from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRow {
    /// The snapshot as the API shows it.
    pub snapshot: Snapshot,
    /// The sandbox that it was taken of.
    pub source: Kin,
    /// Sandboxes that exist and were created from it, newest first, at most [`USERS_NAMED`].
    #[serde(default)]
    pub users: Vec<Kin>,
    /// How many there are of these.
    #[serde(default)]
    pub user_count: usize,
}

/// A sandbox in the lineage of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kin {
    /// The sandbox.
    pub id: SandboxId,
    /// Its label `name`, or its short id.
    pub title: String,
    /// Its state; `None` once it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<SandboxState>,
}

impl Kin {
    /// A sandbox of which only the id is known.
    #[must_use]
    pub fn gone(id: &SandboxId) -> Self {
        Self {
            id: id.clone(),
            title: id.short().to_owned(),
            state: None,
        }
    }
}

/// Everything that the page of one snapshot shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotDetail {
    /// The snapshot, its source and its users.
    pub row: SnapshotRow,
    /// The snapshots that it goes back to, the nearest first.
    #[serde(default)]
    pub ancestors: Vec<Ancestor>,
    /// Whether there are more of them than these.
    #[serde(default)]
    pub is_cut: bool,
}

/// A snapshot that another one goes back to: the sandbox of the other was created from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ancestor {
    /// Its id.
    pub id: String,
    /// The snapshot with the sandbox that it was taken of; `None` once it is deleted.
    pub known: Option<(Snapshot, Kin)>,
}

/// Snapshots that a sandbox can be created from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OfferedSnapshots {
    /// The newest ones that are ready, with the titles of their sandboxes.
    pub snapshots: Vec<(Snapshot, String)>,
    /// Whether there are more than these.
    pub is_cut: bool,
}

/// Sandboxes by their titles, and how many more there are.
#[must_use]
pub fn kin_names(some: &[Kin], count: usize) -> String {
    let titles: Vec<_> = some.iter().map(|kin| kin.title.as_str()).collect();
    match count.saturating_sub(some.len()) {
        0 => titles.join(", "),
        more => format!("{} and {more} more", titles.join(", ")),
    }
}

/// The first eight characters of an id: enough to distinguish snapshots in a list.
#[must_use]
pub fn snapshot_short(id: &str) -> &str {
    let end = id.char_indices().nth(8);
    end.and_then(|(end, _)| id.get(..end)).unwrap_or(id)
}

/// What a snapshot is called: its name, else its short id.
#[must_use]
pub fn snapshot_title(snapshot: &Snapshot) -> &str {
    let name = snapshot.name.as_deref().map(str::trim);
    let name = name.filter(|name| !name.is_empty());
    name.unwrap_or_else(|| snapshot_short(&snapshot.id))
}

/// The name that a form asks for; `None` if it is empty.
#[must_use]
pub fn snapshot_name(typed: &str) -> Option<String> {
    let name = typed.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_string::Query;

    #[test]
    fn a_filter_is_the_same_after_its_url() {
        let query = SnapshotsQuery {
            name: "before & after".to_owned(),
            state: "Ready".to_owned(),
            sandbox: "0b6c".to_owned(),
            page: 3,
        };
        let url = query.url();
        let (_, pairs) = url.split_once('?').unwrap();
        let read = Query::parse(pairs);
        assert_eq!(SnapshotsQuery::from_url(|name| read.get(name)), query);
        assert_eq!(SnapshotsQuery::default().url(), "/console/snapshots");
        assert!(query.filters());
        assert!(!SnapshotsQuery::default().on_page(7).filters());
        assert_eq!(query.with_state("").page, 1);
        for page in ["0", "-1", "x", ""] {
            let read = SnapshotsQuery::from_url(|name| (name == "page").then(|| page.to_owned()));
            assert_eq!(read.page, 1, "{page:?}");
        }
    }

    #[test]
    fn totals_count_each_state_once() {
        let mut totals = SnapshotTotals::default();
        for (count, state) in (1..).zip(SnapshotState::ALL) {
            totals.add(state, count, 10 * count);
        }
        assert_eq!((totals.all, totals.bytes), (10, 100));
        let parts = totals.creating + totals.ready + totals.failed + totals.deleting;
        assert_eq!(parts, totals.all);
        assert_eq!(totals.ready, 2);
    }

    #[test]
    fn a_list_has_at_least_one_page() {
        let pages = |matching| {
            let list = SnapshotList {
                matching,
                ..SnapshotList::default()
            };
            list.last_page()
        };
        assert_eq!(
            [0, 1, SNAPSHOT_PAGE, SNAPSHOT_PAGE + 1].map(pages),
            [1, 1, 1, 2]
        );
    }

    #[test]
    fn sandboxes_are_named_and_the_others_counted() {
        let some = ["a", "b"].map(|id| Kin::gone(&id.into()));
        assert_eq!(kin_names(&some, 2), "a, b");
        assert_eq!(kin_names(&some, 9), "a, b and 7 more");
        assert_eq!(kin_names(&[], 0), "");
    }

    #[test]
    fn a_snapshot_has_its_name_or_its_short_id() {
        let mut it = crate::snapshot::sample::snapshot("0b6c1f2e-aaaa", SnapshotState::Ready);
        assert_eq!(snapshot_title(&it), "0b6c1f2e");
        for (name, shown) in [
            (" ", "0b6c1f2e"),
            ("before the update", "before the update"),
        ] {
            it.name = Some(name.to_owned());
            assert_eq!(snapshot_title(&it), shown);
        }
        assert_eq!(snapshot_short("ä"), "ä");
    }

    #[test]
    fn a_name_of_blanks_is_none() {
        assert_eq!(snapshot_name("  "), None);
        assert_eq!(snapshot_name(" a b "), Some("a b".to_owned()));
    }
}
