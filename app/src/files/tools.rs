//! What the rows of a folder and their dialogs share.

use leptos::prelude::*;

use super::{Entry, here::Here};

/// What the rows of a folder share.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) here: Here,
    /// Path of the folder.
    pub(super) folder: String,
    /// The entry whose name and mode are being changed.
    pub(super) edited: RwSignal<Option<Entry>>,
}
