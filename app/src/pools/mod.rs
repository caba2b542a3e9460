//! The pages about pools: the list with the form that adds one, and one of them.

mod add;
mod api;
mod badge;
mod calls;
mod capacity;
mod delete;
mod detail;
mod forms;
mod page;
mod row;
mod shown;
mod words;

use detail::PoolPage;
use page::PoolsPage;

pub use forms::{CapacityForm, PoolDraft, PoolForm};

use crate::lazy::{Part, part};

/// The list, loaded when it is first shown.
pub(crate) const PART: Part = part!(pools, PoolsPage);
/// The page of one pool, loaded when it is first shown.
pub(crate) const DETAIL: Part = part!(pool, PoolPage);
