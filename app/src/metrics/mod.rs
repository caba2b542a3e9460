//! Resource use of a sandbox: the metrics tab, and a summary for the overview.

mod api;
mod chart;
mod marks;
mod series;
mod summary;
mod tab;
mod window;

pub use summary::UsageSummary;
use tab::MetricsTab;

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(metrics, MetricsTab);
