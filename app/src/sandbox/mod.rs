//! One sandbox: its page, tabs and actions.

mod act_button;
mod actions;
mod api;
mod calls;
mod header;
mod hindrance;
mod label_form;
mod labels;
mod latest;
mod listeners;
mod not_running;
mod overview;
mod page;
mod ports;
mod tab;

pub use actions::{BarredButton, DeleteButton, PauseButton, RenewButton};
pub(crate) use api::{delete, detail};
pub use label_form::{LabelPatch, LabelRow, RowProblem, patch_of, rows_of_form};
pub(crate) use overview::PART;
pub use page::SandboxPage;
pub use tab::TabRoutes;

pub(crate) use crate::condition::StageBar;
