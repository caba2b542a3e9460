//! The pages about snapshots: the list, and one of them with its lineage.

mod act;
mod calls;
mod delete;
mod detail;
mod filter;
mod lineage;
mod page;
mod row;
mod shown;

use detail::SnapshotPage;
use page::SnapshotsPage;

use crate::lazy::{Part, part};

/// The list, loaded when it is first shown.
pub(crate) const PART: Part = part!(snapshots, SnapshotsPage);
/// The page of one snapshot, loaded when it is first shown.
pub(crate) const DETAIL: Part = part!(snapshot, SnapshotPage);
