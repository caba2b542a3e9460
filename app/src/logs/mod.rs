//! The logs tab: the output of a sandbox's entry point, as it is written.

mod api;
mod bar;
mod buffer;
mod kind;
mod pattern;
mod row;
mod scroll;
mod tab;
mod wanted;

use tab::LogsTab;

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(logs, LogsTab);
