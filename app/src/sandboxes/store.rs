//! The rows that the browser keeps up to date: one signal per row, so that a change of one sandbox
//! touches one row of the page and not the list.

use std::collections::{BTreeSet, HashMap, HashSet};

use leptos::prelude::*;
use osb_protocol::{SandboxId, WireTime};

use super::{ListQuery, PAGE_ROWS, filter::Filter, query::first_of};
use crate::{
    live::RowChange,
    view::{SandboxList, SandboxRow, StateCounts},
};

/// A row with its signal.
pub type Entry = (SandboxId, ArcRwSignal<SandboxRow>);

/// All rows known to this page. Copies share them.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Newest first. Holds one page until the live list arrives, then everything.
    order: RwSignal<Vec<Entry>>,
    /// Rows by id, for changes.
    index: StoredValue<HashMap<SandboxId, ArcRwSignal<SandboxRow>>>,
    /// Counts changes of any row: what the filter depends on.
    revision: RwSignal<u64>,
    /// What the server selected and counted, until the browser can do so itself.
    rendered: StoredValue<Option<SandboxList>>,
    /// Whether the live list has arrived.
    is_live: StoredValue<bool>,
    /// Sandboxes that appeared since, and were not shown yet.
    fresh: StoredValue<HashSet<SandboxId>>,
    /// Counts sandboxes that went away.
    removals: RwSignal<u64>,
    /// Sandboxes that are gone, as the server counted them last.
    ended: RwSignal<Option<usize>>,
}

/// The rows to show, and how many there are.
#[derive(Clone, Default)]
pub struct Shown {
    /// Rows of the shown page.
    pub rows: Vec<Entry>,
    /// Rows on all pages.
    pub matching: usize,
    /// Sandboxes altogether.
    pub total: usize,
    /// The shown page, from 1.
    pub page: usize,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        let numbers = |it: &Self| (it.matching, it.total, it.page);
        let ids = |it: &Self| it.rows.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        numbers(self) == numbers(other) && ids(self) == ids(other)
    }
}

impl Rows {
    /// Starts without rows.
    #[must_use]
    pub fn new() -> Self {
        Self {
            order: RwSignal::default(),
            index: StoredValue::default(),
            revision: RwSignal::new(0),
            rendered: StoredValue::new(None),
            is_live: StoredValue::new(false),
            fresh: StoredValue::default(),
            removals: RwSignal::new(0),
            ended: RwSignal::new(None),
        }
    }

    /// Takes a list that the server selected. Rows that are live already stay.
    pub fn render(&self, list: &SandboxList) {
        self.ended.set(list.counts.ended);
        if self.is_live.get_value() {
            return;
        }
        if !list.of_ended {
            self.put_in_order(list.rows.clone());
        }
        self.rendered.set_value(Some(list.clone()));
        self.revision.update(|revision| *revision += 1);
    }

    /// Takes a fresh list, newest first. Rows that stay keep their signal, and so their place in
    /// the page and the focus in it.
    pub fn replace(&self, list: Vec<SandboxRow>) {
        self.rendered.set_value(None);
        self.is_live.set_value(true);
        self.put_in_order(list);
        self.revision.update(|revision| *revision += 1);
    }

    fn put_in_order(&self, list: Vec<SandboxRow>) {
        let mut old = HashMap::new();
        self.index.update_value(|index| old = std::mem::take(index));
        let order: Vec<_> = list
            .into_iter()
            .map(|row| {
                let id = row.id().clone();
                let signal = match old.remove(&id) {
                    Some(signal) => {
                        set_if_changed(&signal, row);
                        signal
                    }
                    None => ArcRwSignal::new(row),
                };
                (id, signal)
            })
            .collect();
        self.index.set_value(order.iter().cloned().collect());
        self.order.set(order);
    }

    /// Applies changes in their order.
    pub fn apply(&self, changes: Vec<RowChange>) {
        self.rendered.set_value(None);
        for change in changes {
            match change {
                RowChange::Put(row) => self.put(*row),
                RowChange::Removed(id) => self.remove(&id),
            }
        }
        self.revision.update(|revision| *revision += 1);
    }

    fn remove(&self, id: &SandboxId) {
        let known = self.index.try_update_value(|index| index.remove(id));
        // Changes of sandboxes that this page may not see name none.
        if let Some(Some(_)) = known {
            self.order
                .update(|order| order.retain(|(known, _)| known != id));
            self.removals.update(|removals| *removals += 1);
            self.ended.update(|ended| *ended = ended.map(|it| it + 1));
        }
    }

    fn put(&self, row: SandboxRow) {
        let id = row.id().clone();
        let known = self.index.with_value(|index| index.get(&id).cloned());
        if let Some(signal) = known {
            return set_if_changed(&signal, row);
        }
        let created = row.sandbox.created_at;
        let entry = (id.clone(), ArcRwSignal::new(row));
        self.index
            .update_value(|index| drop(index.insert(id.clone(), entry.1.clone())));
        self.fresh.update_value(|fresh| {
            fresh.insert(id);
        });
        self.order.update(|order| {
            let created_of = |signal: &ArcRwSignal<SandboxRow>| {
                signal.with_untracked(|row| row.sandbox.created_at)
            };
            let at = order.partition_point(|(_, signal)| created_of(signal) > created);
            order.insert(at, entry);
        });
    }

    /// Whether a sandbox appeared while the page was open. True once.
    pub fn take_fresh(&self, id: &SandboxId) -> bool {
        let taken = self.fresh.try_update_value(|fresh| fresh.remove(id));
        taken.unwrap_or_default()
    }

    /// Counts the sandboxes that went away while the page was open. Tracks it.
    #[must_use]
    pub fn removals(&self) -> u64 {
        self.removals.get()
    }

    /// Tracks changes of any row.
    pub fn track(&self) {
        self.revision.track();
    }

    /// A row, as it is now.
    #[must_use]
    pub fn get(&self, id: &SandboxId) -> Option<SandboxRow> {
        let signal = self.index.with_value(|index| index.get(id).cloned());
        signal.map(|signal| signal.get_untracked())
    }

    /// When a sandbox expires, if it is known and does.
    #[must_use]
    pub fn expiry_of(&self, id: &SandboxId) -> Option<WireTime> {
        let signal = self.index.with_value(|index| index.get(id).cloned())?;
        signal.with_untracked(|row| row.sandbox.expires_at)
    }

    /// Whether any sandbox is a tenant's.
    #[must_use]
    pub fn have_tenants(self) -> Memo<bool> {
        Memo::new(move |_| {
            self.revision.track();
            let is_tenants = |(_, row): &Entry| row.with_untracked(|row| row.tenant.is_some());
            self.order.with(|order| order.iter().any(is_tenants))
        })
    }

    /// The numbers of sandboxes by state. Tracks changes.
    #[must_use]
    pub fn counts(&self) -> StateCounts {
        self.revision.track();
        let ended = self.ended.get();
        if let Some(rendered) = self.rendered.get_value() {
            return StateCounts {
                ended,
                ..rendered.counts
            };
        }
        let mut counts = StateCounts {
            ended,
            ..StateCounts::default()
        };
        self.order.with(|order| {
            for (_, row) in order {
                row.with_untracked(|row| counts.add(&row.sandbox.status.state));
            }
        });
        counts
    }

    /// The rows that a query asks for at this moment. Tracks changes.
    #[must_use]
    pub fn select(&self, query: &ListQuery, filter: &Filter, now_ms: i64) -> Shown {
        self.revision.track();
        // One page of a longer list was rendered: it is already filtered, ordered and cut.
        if let Some(rendered) = self.rendered.get_value() {
            return Shown {
                rows: self.order.get(),
                matching: rendered.matching,
                total: rendered.total,
                page: rendered.page,
            };
        }
        self.page(query, self.matching(query, filter, now_ms))
    }

    /// These sandboxes, in the order and on the page of a query, whatever it filters. Tracks changes.
    #[must_use]
    pub fn select_only(&self, ids: &BTreeSet<SandboxId>, query: &ListQuery) -> Shown {
        self.revision.track();
        self.page(query, self.ordered(query, |(id, _)| ids.contains(id)))
    }

    fn page(&self, query: &ListQuery, rows: Vec<Entry>) -> Shown {
        let matching = rows.len();
        let page = query.shown_page(matching);
        let rows = rows.into_iter().skip(first_of(page)).take(PAGE_ROWS);
        Shown {
            matching,
            page,
            total: self.order.with_untracked(Vec::len),
            rows: rows.collect(),
        }
    }

    /// The rows on all pages, in their order.
    #[must_use]
    pub fn matching(&self, query: &ListQuery, filter: &Filter, now_ms: i64) -> Vec<Entry> {
        self.ordered(query, |(_, row)| {
            row.with_untracked(|row| query.matches(filter, row, now_ms))
        })
    }

    fn ordered(&self, query: &ListQuery, is_wanted: impl Fn(&Entry) -> bool) -> Vec<Entry> {
        let sort = query.order();
        let wanted = |entry: &&Entry| is_wanted(entry);
        let mut rows: Vec<Entry> = self
            .order
            .with(|order| order.iter().filter(wanted).cloned().collect());
        sort.apply(&mut rows, |(_, row)| {
            row.with_untracked(|row| sort.key(row))
        });
        rows
    }
}

impl Default for Rows {
    fn default() -> Self {
        Self::new()
    }
}

fn set_if_changed(signal: &ArcRwSignal<SandboxRow>, row: SandboxRow) {
    if signal.with_untracked(|known| *known != row) {
        signal.set(row);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sample::{row, row_at};

    fn select(rows: &Rows) -> Shown {
        rows.select(&ListQuery::default(), &Filter::default(), 0)
    }

    fn ids(rows: &Rows) -> Vec<String> {
        let shown = select(rows);
        shown.rows.iter().map(|(id, _)| id.to_string()).collect()
    }

    fn put(row: SandboxRow) -> RowChange {
        RowChange::Put(Box::new(row))
    }

    #[test]
    fn changes_keep_the_newest_first() {
        Owner::new().with(|| {
            let rows = Rows::new();
            rows.replace(vec![row_at("c", 30), row_at("a", 10)]);
            rows.apply(vec![put(row_at("b", 20)), put(row_at("d", 40))]);
            assert_eq!(ids(&rows), ["d", "c", "b", "a"]);
            rows.apply(vec![
                RowChange::Removed("c".into()),
                RowChange::Removed("unknown".into()),
            ]);
            assert_eq!(ids(&rows), ["d", "b", "a"]);
        });
    }

    #[test]
    fn some_rows_are_shown_whatever_the_filter_says() {
        Owner::new().with(|| {
            let rows = Rows::new();
            rows.replace(vec![row_at("c", 30), row_at("b", 20), row_at("a", 10)]);
            let query = ListQuery::from_url(|name| (name == "q").then(|| "id:b".to_owned()));
            let wanted = ["a", "c", "gone"].map(SandboxId::from).into();
            let shown = rows.select_only(&wanted, &query);
            let ids: Vec<_> = shown.rows.iter().map(|(id, _)| id.as_str()).collect();
            assert_eq!(ids, ["c", "a"]);
            assert_eq!((shown.matching, shown.total, shown.page), (2, 3, 1));
        });
    }

    #[test]
    fn a_row_keeps_its_signal_through_changes_and_lists() {
        Owner::new().with(|| {
            let rows = Rows::new();
            rows.replace(vec![row("a", "Pending")]);
            let (_, signal) = select(&rows).rows.remove(0);
            rows.apply(vec![put(row("a", "Running"))]);
            rows.replace(vec![row("b", "Running"), row("a", "Failed")]);
            let state = signal.with_untracked(|row| row.sandbox.status.state.to_string());
            assert_eq!(state, "Failed");
        });
    }

    #[test]
    fn only_what_appears_later_is_fresh_and_once() {
        Owner::new().with(|| {
            let rows = Rows::new();
            rows.replace(vec![row("a", "Running")]);
            rows.apply(vec![put(row("a", "Paused")), put(row("b", "Running"))]);
            assert!(!rows.take_fresh(&"a".into()));
            assert!(rows.take_fresh(&"b".into()));
            assert!(!rows.take_fresh(&"b".into()));
        });
    }

    #[test]
    fn the_rendered_page_counts_as_the_server_did() {
        Owner::new().with(|| {
            let rows = Rows::new();
            let list = SandboxList {
                rows: vec![row("a", "Running")],
                matching: 300,
                total: 400,
                page: 2,
                counts: StateCounts {
                    all: 400,
                    ended: Some(7),
                    ..StateCounts::default()
                },
                ..SandboxList::default()
            };
            rows.render(&list);
            let shown = select(&rows);
            assert_eq!((shown.matching, shown.total, shown.page), (300, 400, 2));
            assert_eq!(rows.counts(), list.counts);
            rows.replace(vec![row("a", "Running"), row("b", "Failed")]);
            assert_eq!(select(&rows).total, 2);
            let counts = rows.counts();
            assert_eq!((counts.all, counts.running, counts.failed), (2, 1, 1));
            rows.apply(vec![RowChange::Removed("b".into())]);
            assert_eq!((rows.counts().all, rows.counts().ended), (1, Some(8)));
            assert_eq!(rows.removals(), 1);
            // The live list is newer than what the server rendered.
            rows.render(&list);
            assert_eq!(select(&rows).total, 1);
        });
    }
}
