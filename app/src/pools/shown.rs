//! The list as it is shown, read again every now and then: claims come at any time.

use leptos::prelude::*;

use super::api;
use crate::{reread, view::PoolRow};

/// What the list shows. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) list: RwSignal<Vec<PoolRow>>,
}

impl Shown {
    pub(super) fn new(list: Vec<PoolRow>) -> Self {
        Self {
            list: RwSignal::new(list),
        }
    }

    /// Keeps it up to date.
    pub(super) fn follow(self) {
        let list = Memo::new(move |_| self.list.get());
        let again = Callback::new(move |()| reread::read_list(self.list, api::list()));
        reread::follow(list, |_: &Vec<PoolRow>| true, again);
    }

    /// Names of the pools, in their order.
    pub(super) fn names(self) -> Vec<String> {
        let list = self.list.read();
        list.iter().map(|row| row.name.clone()).collect()
    }

    /// The row of a pool, as it was last if it is not shown any more.
    pub(super) fn row(self, name: String) -> Memo<Option<PoolRow>> {
        Memo::new(move |before: Option<&Option<PoolRow>>| {
            let list = self.list.read();
            let now = list.iter().find(|row| row.name == name).cloned();
            now.or_else(|| before.cloned().flatten())
        })
    }
}
