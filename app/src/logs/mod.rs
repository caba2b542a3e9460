//! The logs tab: the output of a sandbox's entry point, as it is written.

mod ansi;
mod api;
mod buffer;
mod pattern;
mod row;
mod scroll;
mod tab;

pub use tab::LogsTab;
