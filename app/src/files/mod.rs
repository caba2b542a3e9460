//! The files tab: the folders and files of a sandbox, to read, to change, to upload and to download.

mod api;
#[cfg(feature = "ssr")]
pub mod backend;
mod changes;
mod diff;
mod editor;
mod folder;
mod here;
mod path;
mod tab;
mod upload;
mod viewer;
mod wire;

use tab::FilesTab;
pub use wire::{Change, Content, Entry, FOLDER_ROWS, FileView, Folder, Opened, Saved};

use crate::lazy::{Part, part};

/// The tab, loaded when it is first shown.
pub(crate) const PART: Part = part!(files, FilesTab);
