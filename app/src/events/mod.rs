//! Who did what: the audit trail.

mod api;
mod entry;
mod filter;
mod page;

pub(crate) use api::read_events;
use page::EventsPage;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(events, EventsPage);
