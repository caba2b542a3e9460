//! What is in the dock: a bar with the panels' names, and the panels.

mod panel;
mod view;

use view::DockView;

use crate::lazy::{Part, part};

/// The content of the dock, loaded when something is put into it.
pub(crate) const PART: Part = part!(dock, DockView);
