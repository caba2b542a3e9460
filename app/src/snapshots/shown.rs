//! The list as it is shown, read again while something in it is under way.

use leptos::prelude::*;
use osb_protocol::lifecycle::SnapshotState;

use crate::{
    reread, snapshot,
    view::{SnapshotList, SnapshotRow, SnapshotsQuery},
};

/// What the list shows. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) list: RwSignal<SnapshotList>,
    query: StoredValue<SnapshotsQuery>,
}

impl Shown {
    pub(super) fn new(list: SnapshotList, query: SnapshotsQuery) -> Self {
        Self {
            list: RwSignal::new(list),
            query: StoredValue::new(query),
        }
    }

    /// Keeps it up to date.
    pub(super) fn follow(self) {
        let states = Memo::new(move |_| {
            let list = self.list.read();
            let rows = list.rows.iter();
            rows.map(|row| row.snapshot.status.state)
                .collect::<Vec<SnapshotState>>()
        });
        snapshot::follow(states, Callback::new(move |()| self.read_again()));
    }

    /// Reads it again. What cannot be read stays as it was.
    pub(super) fn read_again(self) {
        if let Some(query) = self.query.try_get_value() {
            reread::read_list(self.list, snapshot::list(query));
        }
    }

    /// Ids of the rows, in their order.
    pub(super) fn ids(self) -> Vec<String> {
        let list = self.list.read();
        let rows = list.rows.iter();
        rows.map(|row| row.snapshot.id.clone()).collect()
    }

    /// The row of a snapshot, as it was last if it is not shown any more.
    pub(super) fn row(self, id: String) -> Memo<Option<SnapshotRow>> {
        Memo::new(move |before: Option<&Option<SnapshotRow>>| {
            let now = self.list.with(|list| list.row(&id).cloned());
            now.or_else(|| before.cloned().flatten())
        })
    }
}
