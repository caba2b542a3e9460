//! The design page: every part that pages are made of, with all its states.

mod page;

use page::DesignPage;

use crate::lazy::{Part, part};

/// The page, loaded when it is first shown.
pub(crate) const PART: Part = part!(design, DesignPage);
