//! Resource use of a sandbox: the metrics tab, and a summary for the overview.

mod api;
mod series;
mod summary;
mod tab;

pub use summary::UsageSummary;
pub use tab::MetricsTab;
