//! Which rows are selected.

use std::collections::{BTreeSet, btree_set};

use leptos::prelude::*;
use osb_protocol::SandboxId;

use super::store::Shown;

/// The selected sandboxes of the page, as context. Copies share them.
#[derive(Clone, Copy)]
pub(super) struct Selection {
    ids: RwSignal<BTreeSet<SandboxId>>,
    /// The row that was selected last: Shift extends the selection from there.
    anchor: StoredValue<Option<SandboxId>>,
    shown: Memo<Shown>,
    only: Only,
}

/// The sandboxes that the page shows instead of what the filter finds, if it does.
pub(super) type Only = RwSignal<Option<BTreeSet<SandboxId>>>;

impl Selection {
    /// Nothing of these rows.
    pub(super) fn of(shown: Memo<Shown>, only: Only) -> Self {
        Self {
            ids: RwSignal::default(),
            anchor: StoredValue::new(None),
            shown,
            only,
        }
    }

    /// How many of the selected sandboxes the page does not show: the filter leaves them out, or they
    /// are on another page. Tracks changes.
    pub(super) fn count_not_shown(&self) -> usize {
        let is_selected = |id: &&SandboxId| self.contains(id);
        let ids = |shown: &Shown| {
            shown
                .rows
                .iter()
                .map(|(id, _)| id)
                .filter(is_selected)
                .count()
        };
        self.len().saturating_sub(self.shown.with(ids))
    }

    /// The sandboxes that the page shows.
    pub(super) fn shown(&self) -> BTreeSet<SandboxId> {
        let ids = |shown: &Shown| shown.rows.iter().map(|(id, _)| id.clone()).collect();
        self.shown.with_untracked(ids)
    }

    /// Shows the selected sandboxes instead of what the filter finds.
    pub(super) fn show_only(&self) {
        self.only.set(Some(self.ids.get_untracked()));
    }

    /// Shows what the filter finds again.
    pub(super) fn show_all(&self) {
        if self.only.with_untracked(Option::is_some) {
            self.only.set(None);
        }
    }

    /// Whether the page shows what was selected instead of what the filter finds. Tracks changes.
    pub(super) fn is_shown_only(&self) -> bool {
        self.only.with(Option::is_some)
    }

    /// Whether a sandbox is selected. Tracks changes.
    pub(super) fn contains(&self, id: &SandboxId) -> bool {
        self.ids.with(|ids| ids.contains(id))
    }

    /// The number of selected sandboxes. Tracks changes.
    pub(super) fn len(&self) -> usize {
        self.ids.with(BTreeSet::len)
    }

    /// The selected sandboxes.
    pub(super) fn ids(&self) -> Vec<SandboxId> {
        self.ids.with_untracked(|ids| ids.iter().cloned().collect())
    }

    /// Reads the selected sandboxes. Tracks changes.
    pub(super) fn with<T>(&self, read: impl FnOnce(btree_set::Iter<'_, SandboxId>) -> T) -> T {
        self.ids.with(|ids| read(ids.iter()))
    }

    /// Selects a sandbox, or no longer; with `is_range` also all rows from the last such change to it.
    pub(super) fn set(&self, id: &SandboxId, is_selected: bool, is_range: bool) {
        let anchor = self.anchor.get_value().filter(|_| is_range);
        let between = match anchor {
            Some(anchor) => self
                .shown
                .with_untracked(|shown| between(shown, &anchor, id)),
            None => vec![id.clone()],
        };
        self.ids.update(|ids| {
            for id in between {
                match is_selected {
                    true => drop(ids.insert(id)),
                    false => drop(ids.remove(&id)),
                }
            }
        });
        self.anchor.set_value(Some(id.clone()));
    }

    /// Selects exactly these.
    pub(super) fn replace(&self, ids: impl IntoIterator<Item = SandboxId>) {
        self.ids.set(ids.into_iter().collect());
    }

    /// Forgets those that are gone.
    pub(super) fn retain_existing(&self, exists: impl Fn(&SandboxId) -> bool) {
        self.retain(&exists);
        let is_over = |only: &Option<BTreeSet<SandboxId>>| {
            only.as_ref().is_some_and(|ids| !ids.iter().any(&exists))
        };
        if self.only.with_untracked(is_over) {
            self.only.set(None);
        }
    }

    /// Selects no longer those that do not fulfil a condition.
    pub(super) fn retain(&self, stays: impl Fn(&SandboxId) -> bool) {
        let has_others = self
            .ids
            .with_untracked(|ids| ids.iter().any(|id| !stays(id)));
        if has_others {
            self.ids.update(|ids| ids.retain(|id| stays(id)));
        }
    }

    /// Whether all rows of the page are selected. Tracks changes.
    pub(super) fn has_page(&self) -> bool {
        self.shown.with(|shown| {
            let mut ids = shown.rows.iter().map(|(id, _)| id);
            !shown.rows.is_empty() && ids.all(|id| self.contains(id))
        })
    }

    /// Selects all rows of the page, or none of them.
    pub(super) fn set_page(&self, is_selected: bool) {
        let page = self.shown.with_untracked(|shown| {
            let ids = shown.rows.iter().map(|(id, _)| id.clone());
            ids.collect::<Vec<_>>()
        });
        self.ids.update(|ids| match is_selected {
            true => ids.extend(page),
            false => ids.retain(|id| !page.contains(id)),
        });
    }
}

/// The rows from one to another, both included; only the second if the first is not shown.
fn between(shown: &Shown, one: &SandboxId, other: &SandboxId) -> Vec<SandboxId> {
    let place = |id| shown.rows.iter().position(|(shown, _)| shown == id);
    match (place(one), place(other)) {
        (Some(one), Some(other)) => shown.rows[one.min(other)..=one.max(other)]
            .iter()
            .map(|(id, _)| id.clone())
            .collect(),
        _ => vec![other.clone()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ui::sample::row;

    #[test]
    fn shift_selects_from_the_last_row_in_both_directions() {
        Owner::new().with(|| {
            let entry = |id: &str| (id.into(), ArcRwSignal::new(row(id, "Running")));
            let shown = Shown {
                rows: ["a", "b", "c", "d"].map(entry).into(),
                ..Shown::default()
            };
            let only = RwSignal::new(None);
            let selection = Selection::of(Memo::new(move |_| shown.clone()), only);
            let selected = || {
                selection
                    .ids()
                    .iter()
                    .map(SandboxId::to_string)
                    .collect::<String>()
            };
            selection.set(&"c".into(), true, true);
            assert_eq!(selected(), "c");
            selection.set(&"a".into(), true, true);
            assert_eq!(selected(), "abc");
            selection.set(&"b".into(), false, false);
            assert_eq!(selected(), "ac");
            selection.set(&"d".into(), true, true);
            assert_eq!(selected(), "abcd");
            assert!(selection.has_page());
            selection.retain(|id| id.as_str() != "a");
            assert_eq!((selected().as_str(), selection.len()), ("bcd", 3));
            selection.set_page(false);
            assert_eq!(selected(), "");
        });
    }
    #[test]
    fn selected_rows_that_are_not_shown_are_counted_and_can_be_shown_or_left() {
        Owner::new().with(|| {
            let entry = |id: &str| (id.into(), ArcRwSignal::new(row(id, "Running")));
            let shown = RwSignal::new(Shown {
                rows: ["a", "b", "c"].map(entry).into(),
                ..Shown::default()
            });
            let only = RwSignal::new(None);
            let selection = Selection::of(Memo::new(move |_| shown.get()), only);
            selection.set_page(true);
            assert_eq!(selection.count_not_shown(), 0);
            shown.update(|shown| shown.rows = ["c", "d"].map(entry).into());
            assert_eq!((selection.len(), selection.count_not_shown()), (3, 2));
            selection.show_only();
            assert!(selection.is_shown_only());
            selection.retain_existing(|id| id.as_str() == "a");
            assert!(selection.is_shown_only(), "one is still there");
            selection.retain_existing(|_| false);
            assert!(!selection.is_shown_only());
            selection.replace(["a", "c"].map(SandboxId::from));
            let shown = selection.shown();
            selection.retain(|id| shown.contains(id));
            assert_eq!(selection.ids(), ["c".into()]);
            assert_eq!(selection.count_not_shown(), 0);
        });
    }
}
