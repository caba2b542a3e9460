//! One sandbox: its page, its tabs, and what can be done to it.

mod actions;
mod api;
mod overview;
mod page;
mod ports;
mod stages;
mod tab;

pub use actions::{DeleteForm, RenewButton};
pub use page::SandboxPage;
pub use tab::TabRoutes;
