//! One sandbox: its page, tabs and actions.

mod act_button;
mod actions;
mod api;
mod header;
mod hindrance;
mod listeners;
mod not_running;
mod overview;
mod page;
mod ports;
mod stages;
mod tab;

pub use actions::{BarredButton, DeleteButton, PauseButton, RenewButton};
pub(crate) use api::{delete, detail};
pub(crate) use overview::PART;
pub use page::SandboxPage;
pub(crate) use stages::StageBar;
pub use tab::TabRoutes;
