//! The files tab: the folders and files of a sandbox, to read, to change, to upload and to download.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod changes;
mod diff;
mod draft;
mod drop;
mod edit;
mod editor;
mod find;
mod folder;
mod here;
mod line_ending;
mod nothing;
mod path;
mod replace;
mod saving;
mod sending;
mod tab;
mod table;
mod text;
mod tools;
mod tree;
mod upload;
mod viewer;
mod wire;

use tab::FilesTab;
pub use wire::{
    Asked, Change, Content, Entry, FOLDER_ROWS, FileView, Folder, Opened, Replaced, Saved,
};

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(files, FilesTab);
