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
}

impl Selection {
    /// Nothing of these rows.
    pub(super) fn of(shown: Memo<Shown>) -> Self {
        Self {
            ids: RwSignal::default(),
            anchor: StoredValue::new(None),
            shown,
        }
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
    pub(super) fn retain(&self, exists: impl Fn(&SandboxId) -> bool) {
        let has_gone = self
            .ids
            .with_untracked(|ids| ids.iter().any(|id| !exists(id)));
        if has_gone {
            self.ids.update(|ids| ids.retain(|id| exists(id)));
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
            let selection = Selection::of(Memo::new(move |_| shown.clone()));
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
}
