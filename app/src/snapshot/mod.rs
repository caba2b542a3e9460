//! What the pages about snapshots, the page of a sandbox and the create form share: server functions,
//! words, and the reading again while something is under way.

mod api;
mod badge;
mod under_way;
mod words;

pub(crate) use api::{delete, list, offered, read, take};
pub(crate) use badge::SnapshotBadge;
pub(crate) use under_way::{follow, is_under_way};
#[cfg(test)]
pub(crate) use words::sample;
pub(crate) use words::{address, offers_snapshots, reason, size};

pub(crate) use crate::view::{snapshot_short as short, snapshot_title as title};

use leptos::prelude::RwSignal;

/// Counts the snapshots that were taken on the page of a sandbox, which provides it as context.
#[derive(Clone, Copy)]
pub(crate) struct Taken(pub(crate) RwSignal<u32>);
