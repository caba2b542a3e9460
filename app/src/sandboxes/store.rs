//! The rows that the browser keeps up to date: one signal per row, so that a change of one sandbox
//! touches one row of the page and not the list.

use std::collections::HashMap;

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::{ListQuery, PAGE_ROWS};
use crate::{
    live::RowChange,
    view::{SandboxList, SandboxRow},
};

/// All rows known to this page. Copies share them.
#[derive(Clone, Copy)]
pub struct Rows {
    /// Newest first. Holds one page until the live list arrives, then everything.
    order: RwSignal<Vec<(SandboxId, ArcRwSignal<SandboxRow>)>>,
    /// Rows by id, for changes.
    index: StoredValue<HashMap<SandboxId, ArcRwSignal<SandboxRow>>>,
    /// Counts changes of any row: what the filter depends on.
    revision: RwSignal<u64>,
    /// What the server counted, until the browser can count itself.
    rendered: StoredValue<Option<SandboxList>>,
}

/// The rows to show, and how many there are.
#[derive(Clone, Default)]
pub struct Shown {
    /// Rows of the requested page.
    pub rows: Vec<(SandboxId, ArcRwSignal<SandboxRow>)>,
    /// Rows on all pages.
    pub matching: usize,
    /// Sandboxes altogether.
    pub total: usize,
}

impl PartialEq for Shown {
    fn eq(&self, other: &Self) -> bool {
        let ids = |shown: &Self| {
            shown
                .rows
                .iter()
                .map(|(id, _)| id.clone())
                .collect::<Vec<_>>()
        };
        (self.matching, self.total) == (other.matching, other.total) && ids(self) == ids(other)
    }
}

impl Rows {
    /// Starts with the page that the server rendered.
    #[must_use]
    pub fn new(rendered: SandboxList) -> Self {
        let rows = Self {
            order: RwSignal::default(),
            index: StoredValue::default(),
            revision: RwSignal::new(0),
            rendered: StoredValue::new(None),
        };
        rows.replace(rendered.rows.clone());
        rows.rendered.set_value(Some(rendered));
        rows
    }

    /// Takes a fresh list, newest first. Rows that stay keep their signal, and so their place in
    /// the page and the focus in it.
    pub fn replace(&self, list: Vec<SandboxRow>) {
        self.rendered.set_value(None);
        let mut old = HashMap::new();
        self.index.update_value(|index| old = std::mem::take(index));
        let order: Vec<_> = list
            .into_iter()
            .map(|row| {
                let id = row.id().clone();
                let signal = match old.remove(&id) {
                    Some(signal) => {
                        if signal.with_untracked(|known| *known != row) {
                            signal.set(row);
                        }
                        signal
                    }
                    None => ArcRwSignal::new(row),
                };
                (id, signal)
            })
            .collect();
        self.index.set_value(order.iter().cloned().collect());
        self.order.set(order);
        self.revision.update(|revision| *revision += 1);
    }

    /// Applies one change.
    pub fn apply(&self, change: RowChange) {
        self.rendered.set_value(None);
        match change {
            RowChange::Put(row) => self.put(*row),
            RowChange::Removed(id) => {
                self.index.update_value(|index| drop(index.remove(&id)));
                self.order
                    .update(|order| order.retain(|(known, _)| *known != id));
            }
        }
        self.revision.update(|revision| *revision += 1);
    }

    fn put(&self, row: SandboxRow) {
        let id = row.id().clone();
        let known = self.index.with_value(|index| index.get(&id).cloned());
        if let Some(signal) = known {
            signal.set(row);
            return;
        }
        let created = row.sandbox.created_at;
        let entry = (id.clone(), ArcRwSignal::new(row));
        self.index
            .update_value(|index| drop(index.insert(id, entry.1.clone())));
        self.order.update(|order| {
            let created_of = |signal: &ArcRwSignal<SandboxRow>| {
                signal.with_untracked(|row| row.sandbox.created_at)
            };
            let at = order.partition_point(|(_, signal)| created_of(signal) > created);
            order.insert(at, entry);
        });
    }

    /// The rows that a query asks for. Tracks changes.
    #[must_use]
    pub fn select(&self, query: &ListQuery) -> Shown {
        self.revision.track();
        self.order.with(|order| {
            // One page of a longer list was rendered: it is already filtered and cut.
            if let Some(rendered) = self.rendered.get_value() {
                return Shown {
                    rows: order.clone(),
                    matching: rendered.matching,
                    total: rendered.total,
                };
            }
            let matching = order
                .iter()
                .filter(|(_, row)| row.with_untracked(|it| query.matches(it)));
            let matching: Vec<_> = matching.cloned().collect();
            Shown {
                matching: matching.len(),
                total: order.len(),
                rows: matching
                    .into_iter()
                    .skip(query.first())
                    .take(PAGE_ROWS)
                    .collect(),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sample::{row, row_at};

    fn ids(rows: &Rows) -> Vec<String> {
        let shown = rows.select(&ListQuery::default());
        shown.rows.iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn changes_keep_the_newest_first() {
        Owner::new().with(|| {
            let rows = Rows::new(SandboxList::default());
            rows.replace(vec![row_at("c", 30), row_at("a", 10)]);
            rows.apply(RowChange::Put(Box::new(row_at("b", 20))));
            rows.apply(RowChange::Put(Box::new(row_at("d", 40))));
            assert_eq!(ids(&rows), ["d", "c", "b", "a"]);
            rows.apply(RowChange::Removed("c".into()));
            rows.apply(RowChange::Removed("unknown".into()));
            assert_eq!(ids(&rows), ["d", "b", "a"]);
        });
    }

    #[test]
    fn a_row_keeps_its_signal_through_changes_and_lists() {
        Owner::new().with(|| {
            let rows = Rows::new(SandboxList::default());
            rows.replace(vec![row("a", "Pending")]);
            let (_, signal) = rows.select(&ListQuery::default()).rows.remove(0);
            rows.apply(RowChange::Put(Box::new(row("a", "Running"))));
            rows.replace(vec![row("b", "Running"), row("a", "Failed")]);
            let state = signal.with_untracked(|row| row.sandbox.status.state.to_string());
            assert_eq!(state, "Failed");
        });
    }

    #[test]
    fn the_rendered_page_counts_as_the_server_did() {
        Owner::new().with(|| {
            let rows = Rows::new(SandboxList {
                rows: vec![row("a", "Running")],
                matching: 300,
                total: 400,
                warning: None,
            });
            let shown = rows.select(&ListQuery::default());
            assert_eq!((shown.matching, shown.total), (300, 400));
            rows.replace(vec![row("a", "Running")]);
            assert_eq!(rows.select(&ListQuery::default()).total, 1);
        });
    }
}
