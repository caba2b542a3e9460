//! The first page: what runs, what failed, what the host has left.

mod activity;
mod api;
mod counters;
mod host;
mod page;
mod shown;
mod trial;

use page::OverviewPage;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(overview, OverviewPage);
