//! The live list of sandboxes, and of those that are gone.

mod api;
mod bulk;
mod columns;
mod ended;
mod filter;
mod filter_box;
mod list_page;
#[cfg(feature = "ssr")]
mod listing;
mod page;
mod query;
mod row;
mod selection;
mod store;
mod table;
mod usage;
mod views;

pub(crate) use api::list;
#[cfg(test)]
pub(crate) use filter::Filter;
#[cfg(feature = "ssr")]
pub use listing::run as run_bulk;
pub use page::SandboxesPage;
pub use query::{ListQuery, PAGE_ROWS};
pub use store::Rows;
