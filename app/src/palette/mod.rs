//! The palette: one field that finds pages, sandboxes and what can be done on the current page.

mod commands;
mod dialog;

use dialog::PaletteDialog;

use crate::lazy::{Part, part};

/// The content of the palette, loaded when it is first opened.
pub(crate) const PART: Part = part!(palette, PaletteDialog);
