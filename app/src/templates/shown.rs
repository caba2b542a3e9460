//! The list as it is shown, read again while something in it is under way.

use leptos::prelude::*;
use osb_protocol::lifecycle::TemplatePhase;

use crate::{
    reread,
    template::{self, is_under_way},
    view::{TemplateList, TemplateRow},
};

/// What the list shows. Copies share it.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    pub(super) list: RwSignal<TemplateList>,
    /// The page that was asked for.
    pub(super) asked: usize,
}

impl Shown {
    pub(super) fn new(list: TemplateList, asked: usize) -> Self {
        Self {
            list: RwSignal::new(list),
            asked,
        }
    }

    /// Keeps it up to date.
    pub(super) fn follow(self) {
        let phases = Memo::new(move |_| {
            let list = self.list.read();
            let rows = list.rows.iter();
            rows.map(|row| row.phase).collect::<Vec<TemplatePhase>>()
        });
        let may_change = |phases: &Vec<TemplatePhase>| phases.iter().copied().any(is_under_way);
        let again = Callback::new(move |()| self.read_again());
        reread::follow(phases, may_change, again);
    }

    /// Reads it again. What cannot be read stays as it was.
    pub(super) fn read_again(self) {
        reread::read_list(self.list, template::list(self.asked));
    }

    /// Ids of the rows, in their order.
    pub(super) fn ids(self) -> Vec<String> {
        let list = self.list.read();
        list.rows.iter().map(|row| row.id.clone()).collect()
    }

    /// The row of a template, as it was last if it is not shown any more.
    pub(super) fn row(self, id: String) -> Memo<Option<TemplateRow>> {
        Memo::new(move |before: Option<&Option<TemplateRow>>| {
            let now = self.list.with(|list| list.row(&id).cloned());
            now.or_else(|| before.cloned().flatten())
        })
    }
}
