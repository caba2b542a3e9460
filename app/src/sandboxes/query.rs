//! Filter, order and page of the list, as in the URL. The server applies them to the first page that
//! it renders and to ended sandboxes, the browser to the rows that it keeps up to date.

use std::cmp::Ordering;

use osb_protocol::lifecycle::SandboxState;
use serde::{Deserialize, Serialize};

use super::filter::Filter;
use crate::view::{SandboxList, SandboxRow, title};

/// Most rows of one page: each costs the browser layout.
pub const PAGE_ROWS: usize = 100;

/// Value of [`ListQuery::state`] for sandboxes that are gone.
pub const ENDED: &str = "Ended";

/// Filter, order and page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ListQuery {
    /// The filter, see [`Filter`].
    pub q: String,
    /// Only this state; empty means all, [`ENDED`] those that are gone.
    pub state: String,
    /// The order, see [`Sort`].
    pub sort: String,
    /// The columns that are hidden, see [`super::columns`]: their names with commas between them.
    pub hide: String,
    /// Page from 1.
    pub page: usize,
}

/// A column that the list can be ordered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// The title.
    Name,
    /// The state.
    State,
    /// The image.
    Image,
    /// The time until the expiry.
    Expires,
    /// The age.
    Age,
    /// Why it ended.
    Reason,
    /// The end.
    Ended,
    /// The time from the create to the end.
    Lived,
}

impl Column {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Name,
        Self::State,
        Self::Image,
        Self::Expires,
        Self::Age,
        Self::Reason,
        Self::Ended,
        Self::Lived,
    ];

    /// Its name in the URL.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::State => "state",
            Self::Image => "image",
            Self::Expires => "expires",
            Self::Age => "age",
            Self::Reason => "reason",
            Self::Ended => "ended",
            Self::Lived => "lived",
        }
    }

    /// Whether the list of sandboxes that are gone, or the other one, has it.
    const fn is_in_list(self, of_ended: bool) -> bool {
        match self {
            Self::Name | Self::State | Self::Image => true,
            Self::Expires | Self::Age => !of_ended,
            Self::Reason | Self::Ended | Self::Lived => of_ended,
        }
    }
}

/// The order of the list. In the URL the name of the column, with `-` in front for the reverse;
/// nothing for the youngest first, and of those that are gone for the last one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// The column.
    pub by: Column,
    /// Whether the largest value comes first.
    pub is_descending: bool,
}

impl Sort {
    /// The order in which rows come.
    const fn default_of(of_ended: bool) -> Self {
        Self {
            by: match of_ended {
                true => Column::Ended,
                false => Column::Age,
            },
            is_descending: false,
        }
    }

    fn of_text(text: &str, of_ended: bool) -> Self {
        let (name, is_descending) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let mut all = Column::ALL.into_iter();
        let by = all.find(|column| column.name() == name && column.is_in_list(of_ended));
        by.map_or_else(
            || Self::default_of(of_ended),
            |by| Self { by, is_descending },
        )
    }

    /// Whether rows come in this order.
    #[must_use]
    pub fn is_default(self) -> bool {
        matches!(self.by, Column::Age | Column::Ended) && !self.is_descending
    }

    fn text(self) -> String {
        match (self.is_default(), self.is_descending) {
            (true, _) => String::new(),
            (_, false) => self.by.name().to_owned(),
            (_, true) => ["-", self.by.name()].concat(),
        }
    }

    /// Puts rows in this order. They come in the default one, which is the order of equal ones.
    pub fn apply<T>(self, rows: &mut [T], row: impl Fn(&T) -> SortKey) {
        match (self.by, self.is_descending) {
            (Column::Age | Column::Ended, false) => {}
            (Column::Age | Column::Ended, true) => rows.reverse(),
            (_, false) => rows.sort_by_cached_key(|it| row(it)),
            (_, true) => rows.sort_by_cached_key(|it| std::cmp::Reverse(row(it))),
        }
    }

    /// What a row is ordered by.
    #[must_use]
    pub fn key(self, row: &SandboxRow) -> SortKey {
        let sandbox = &row.sandbox;
        let ended_ms = row.ended.map_or(0, |ended| ended.at.unix_ms());
        match self.by {
            Column::Name => SortKey::Text(title(sandbox).to_lowercase()),
            Column::State => SortKey::Text(row.state_word().to_owned()),
            Column::Image => SortKey::Text(row.origin().to_owned()),
            Column::Expires => {
                SortKey::Number(sandbox.expires_at.map_or(i64::MAX, |at| at.unix_ms()))
            }
            Column::Age => SortKey::Number(-sandbox.created_at.unix_ms()),
            Column::Reason => {
                let message = sandbox.status.message.as_deref();
                SortKey::Text(message.unwrap_or_default().to_lowercase())
            }
            Column::Ended => SortKey::Number(-ended_ms),
            Column::Lived => SortKey::Number(ended_ms - sandbox.created_at.unix_ms()),
        }
    }
}

/// What rows are ordered by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// A text.
    Text(String),
    /// A number.
    Number(i64),
}

impl Ord for SortKey {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.cmp(other),
            (Self::Number(one), Self::Number(other)) => one.cmp(other),
            // Keys of one order have one kind.
            (Self::Text(_), Self::Number(_)) => Ordering::Less,
            (Self::Number(_), Self::Text(_)) => Ordering::Greater,
        }
    }
}

impl PartialOrd for SortKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl ListQuery {
    /// From the parameters of the page's URL.
    #[must_use]
    pub fn from_url(get: impl Fn(&str) -> Option<String>) -> Self {
        Self {
            q: get("q").unwrap_or_default(),
            state: get("state").unwrap_or_default(),
            sort: get("sort").unwrap_or_default(),
            hide: get("hide").unwrap_or_default(),
            page: get("page").and_then(|page| page.parse().ok()).unwrap_or(1),
        }
    }

    /// The page's address with this query; defaults are left out.
    #[must_use]
    pub fn url(&self) -> String {
        let page = match self.page {
            0 | 1 => String::new(),
            page => page.to_string(),
        };
        let all = [
            ("q", self.q.as_str()),
            ("state", &self.state),
            ("sort", &self.sort),
            ("hide", &self.hide),
            ("page", &page),
        ];
        let set = all.into_iter().filter(|(_, value)| !value.is_empty());
        ["/console/sandboxes", &crate::query_string::to_query(set)].concat()
    }

    /// The same with another filter, from the first page on.
    #[must_use]
    pub fn with_filter(&self, q: String) -> Self {
        Self {
            q,
            page: 1,
            ..self.clone()
        }
    }

    /// The same limited to another state, from the first page on.
    #[must_use]
    pub fn with_state(&self, state: &str) -> Self {
        Self {
            state: state.to_owned(),
            page: 1,
            ..self.clone()
        }
    }

    /// The same in the order that a click on a column's title asks for, from the first page on.
    #[must_use]
    pub fn sorted_by(&self, by: Column) -> Self {
        let now = self.order();
        let wanted = Sort {
            by,
            is_descending: now.by == by && !now.is_descending,
        };
        Self {
            sort: wanted.text(),
            page: 1,
            ..self.clone()
        }
    }

    /// The same on another page.
    #[must_use]
    pub fn on_page(&self, page: usize) -> Self {
        Self {
            page,
            ..self.clone()
        }
    }

    /// The order.
    #[must_use]
    pub fn order(&self) -> Sort {
        Sort::of_text(&self.sort, self.is_of_ended())
    }

    /// Whether it asks for sandboxes that are gone.
    #[must_use]
    pub fn is_of_ended(&self) -> bool {
        self.state == ENDED
    }

    /// Whether anything is filtered out.
    #[must_use]
    pub fn filters(&self) -> bool {
        !self.q.trim().is_empty() || !self.state.is_empty()
    }

    /// Whether a row is shown (on some page), with the filter of this query.
    #[must_use]
    pub fn matches(&self, filter: &Filter, row: &SandboxRow, now_ms: i64) -> bool {
        let state = &row.sandbox.status.state;
        let is_in_state = self.state.is_empty()
            || self.is_of_ended()
            || SandboxState::from(self.state.as_str()) == *state;
        is_in_state && filter.matches(row, now_ms)
    }

    /// The page of rows that this query asks for. `rows` has the youngest first.
    #[must_use]
    pub fn select(&self, rows: Vec<SandboxRow>, now_ms: i64) -> SandboxList {
        let total = rows.len();
        let filter = Filter::parse(&self.q);
        let rows = rows.into_iter();
        let mut rows: Vec<_> = rows
            .filter(|row| self.matches(&filter, row, now_ms))
            .collect();
        let order = self.order();
        order.apply(&mut rows, |row| order.key(row));
        let matching = rows.len();
        let page = self.shown_page(matching);
        let rows = rows.into_iter().skip(first_of(page)).take(PAGE_ROWS);
        SandboxList {
            rows: rows.collect(),
            matching,
            total,
            page,
            of_ended: self.is_of_ended(),
            ..SandboxList::default()
        }
    }

    /// The page that is shown when this many rows match: the last one for a page beyond it.
    #[must_use]
    pub fn shown_page(&self, matching: usize) -> usize {
        self.page.clamp(1, last_page(matching))
    }
}

/// The last page, from 1.
#[must_use]
pub fn last_page(matching: usize) -> usize {
    matching.div_ceil(PAGE_ROWS).max(1)
}

/// Position of a page's first row among those that match.
#[must_use]
pub fn first_of(page: usize) -> usize {
    page.saturating_sub(1).saturating_mul(PAGE_ROWS)
}

#[cfg(test)]
mod tests {
    use osb_protocol::WireTime;

    use super::*;
    use crate::ui::sample::{row, row_at};

    fn query(q: &str, state: &str) -> ListQuery {
        ListQuery {
            q: q.to_owned(),
            state: state.to_owned(),
            page: 1,
            ..ListQuery::default()
        }
    }

    fn ids(list: &SandboxList) -> Vec<&str> {
        list.rows.iter().map(|row| row.id().as_str()).collect()
    }

    #[test]
    fn state_and_filter_both_apply() {
        let one = row("0b6c1f2e", "Running");
        for (q, state, shown) in [
            ("", "", true),
            ("debian", "Running", true),
            ("0b6c", "Failed", false),
            ("nothing", "Running", false),
        ] {
            let list = query(q, state).select(vec![one.clone()], 0);
            assert_eq!(list.matching == 1, shown, "{q:?} {state:?}");
        }
    }

    #[test]
    fn one_of_a_thousand_is_found() {
        let mut rows: Vec<_> = (0..1_000)
            .map(|n| row(&format!("id-{n}"), "Running"))
            .collect();
        rows[777]
            .sandbox
            .metadata
            .insert("team".to_owned(), "needle".to_owned());
        let found = query("state:running label.team=needle", "").select(rows, 0);
        assert_eq!((ids(&found), found.total), (vec!["id-777"], 1_000));
    }

    #[test]
    fn pages_cut_what_matches_not_what_exists() {
        let rows: Vec<_> = (0..250)
            .map(|n| row(&format!("id-{n}"), "Running"))
            .collect();
        let page = |page| query("id-", "").on_page(page).select(rows.clone(), 0);
        assert_eq!(page(1).rows.len(), 100);
        assert_eq!(page(3).rows.len(), 50);
        assert_eq!(ids(&page(3))[0], "id-200");
        assert_eq!((page(1).matching, page(1).total), (250, 250));
        assert_eq!(query("id:id-7", "").select(rows.clone(), 0).matching, 11);
        // A page beyond the last one shows the last one.
        for beyond in [4, 99, usize::MAX] {
            assert_eq!((page(beyond).page, page(beyond).rows.len()), (3, 50));
        }
        assert_eq!(query("nothing", "").on_page(9).select(rows, 0).page, 1);
    }

    #[test]
    fn columns_order_the_rows() {
        let mut rows = vec![row_at("c", 30), row_at("b", 20), row_at("a", 10)];
        let at = |ms| WireTime::from_unix_ms(ms);
        rows[0].sandbox.expires_at = at(700);
        rows[2].sandbox.expires_at = at(500);
        let name = |row: &mut SandboxRow, name: &str| {
            let labels = &mut row.sandbox.metadata;
            labels.insert("name".to_owned(), name.to_owned());
        };
        name(&mut rows[1], "Zoe");
        for (sort, order) in [
            ("", "cba"),
            ("age", "cba"),
            ("-age", "abc"),
            ("name", "acb"),
            ("-name", "bca"),
            ("expires", "acb"),
            ("-expires", "bca"),
            ("image", "cba"),
            ("nonsense", "cba"),
        ] {
            let query = ListQuery {
                sort: sort.to_owned(),
                ..ListQuery::default()
            };
            assert_eq!(
                ids(&query.select(rows.clone(), 0)).concat(),
                order,
                "{sort}"
            );
        }
    }

    #[test]
    fn sandboxes_that_are_gone_have_orders_of_their_own() {
        let ended = |id: &str, created_ms, ended_ms, message: &str| {
            let mut row = row_at(id, created_ms);
            row.sandbox.status.message = Some(message.to_owned());
            row.ended = Some(crate::view::Ended {
                outcome: crate::view::Outcome::Deleted,
                at: WireTime::from_unix_ms(ended_ms).unwrap(),
            });
            row
        };
        // As they come: the last one to end first.
        let rows = [
            ended("c", 80, 90, "b"),
            ended("a", 20, 70, "C"),
            ended("b", 10, 50, "a"),
        ];
        for (sort, order) in [
            ("", "cab"),
            ("-ended", "bac"),
            ("lived", "cba"),
            ("-lived", "abc"),
            ("reason", "bca"),
            ("image", "cab"),
            ("-age", "cab"),
        ] {
            let query = ListQuery {
                sort: sort.to_owned(),
                ..query("", ENDED)
            };
            let (sort, mut rows) = (query.order(), rows.to_vec());
            sort.apply(&mut rows, |row| sort.key(row));
            let ids: String = rows.iter().map(|row| row.id().as_str()).collect();
            assert_eq!(ids, order, "{}", query.sort);
        }
        let of_present = ListQuery {
            sort: "-lived".to_owned(),
            ..ListQuery::default()
        };
        assert!(of_present.order().is_default());
        assert_eq!(query("", ENDED).sorted_by(Column::Ended).sort, "-ended");
    }

    #[test]
    fn a_second_click_on_a_column_reverses_it() {
        let query = ListQuery::default();
        assert_eq!(query.sorted_by(Column::Age).sort, "-age");
        assert_eq!(query.sorted_by(Column::Age).sorted_by(Column::Age).sort, "");
        let by_name = query.sorted_by(Column::Name);
        assert_eq!(by_name.sort, "name");
        assert_eq!(by_name.sorted_by(Column::Name).sort, "-name");
        assert_eq!(by_name.sorted_by(Column::State).sort, "state");
    }

    #[test]
    fn the_url_carries_the_query() {
        let wanted = ListQuery {
            q: "a&b c".to_owned(),
            state: "Running".to_owned(),
            sort: "-name".to_owned(),
            hide: "image,age".to_owned(),
            page: 2,
        };
        let url = wanted.url();
        assert!(!url.contains("a&b"), "{url}");
        for part in ["state=Running", "sort=-name", "page=2", "hide=image%2Cage"] {
            assert!(url.contains(part), "{part} in {url}");
        }
        let (_, search) = url.split_once('?').unwrap();
        let read = crate::query_string::Query::parse(search);
        assert_eq!(ListQuery::from_url(|name| read.get(name)), wanted);
        assert_eq!(ListQuery::default().url(), "/console/sandboxes");
    }
}
