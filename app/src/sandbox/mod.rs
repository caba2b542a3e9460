//! One sandbox: its page, tabs and actions.

mod act_button;
mod actions;
mod api;
mod calls;
mod create_link;
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
mod snapshots;
mod tab;
mod take_snapshot;

pub(crate) use act_button::ActButton;
pub use actions::{BarredButton, DeleteButton, PauseButton, RenewButton};
pub(crate) use api::{delete, detail};
pub(crate) use create_link::{CreateButton, CreateLink};
pub use label_form::{LabelPatch, LabelRow, RowProblem, patch_of, rows_of_form};
pub(crate) use overview::PART;
pub use page::SandboxPage;
pub use tab::TabRoutes;

pub(crate) use crate::condition::StageBar;
