//! What the parts of the page share.

use leptos::prelude::*;

use super::{ListQuery, Rows, filter::Filter, usage::Usage};

/// The query of the page and the rows that it selects from.
#[derive(Clone, Copy)]
pub(super) struct ListPage {
    /// The URL's query.
    pub(super) query: Memo<ListQuery>,
    /// Its filter.
    pub(super) filter: Memo<Filter>,
    /// The sandboxes that are not gone.
    pub(super) rows: Rows,
    /// What the shown ones use.
    pub(super) usage: Usage,
}
