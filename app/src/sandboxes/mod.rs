//! The live list of sandboxes.

mod api;
mod page;
mod query;
mod row;
mod store;

pub use page::SandboxesPage;
pub use query::{ListQuery, PAGE_ROWS};
pub use store::Rows;
