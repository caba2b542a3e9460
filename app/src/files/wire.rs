//! What travels between server and browser about files.

use osb_protocol::{WireTime, execd::file::FileKind};
use serde::{Deserialize, Serialize};

/// Most entries of a folder that a page shows at once.
pub const FOLDER_ROWS: usize = 500;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Opened {
    /// A folder, or a link to one.
    Folder(Folder),
    /// A file, or a link to one.
    File(Box<FileView>),
}

/// Some of the entries of a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    /// Its absolute path.
    pub path: String,
    /// Entries from [`Self::from`] on, at most [`FOLDER_ROWS`]: folders first, then by name.
    pub entries: Vec<Entry>,
    /// How many entries come before these.
    pub from: usize,
    /// How many entries it has.
    pub total: usize,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// What it is; links are not followed.
    pub kind: FileKind,
    /// Where a link leads, as it says itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Bytes.
    pub size: u64,
    /// Last change of the content.
    pub modified_at: WireTime,
    /// Name or number of the owner.
    pub owner: String,
    /// Name or number of the group.
    pub group: String,
    /// Permission bits as octal digits written in decimal: 0644 is `644`.
    pub mode: u32,
    /// Whether the name is not UTF-8: it has replacement characters, and no path leads to the entry.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lossy: bool,
}

/// A part of a file, as it can be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileView {
    /// Its absolute path.
    pub path: String,
    /// The file; of a link, the link.
    pub entry: Entry,
    /// Bytes of the file.
    pub size: u64,
    /// First byte of the part.
    pub from: u64,
    /// Bytes of the part.
    pub length: u64,
    /// The part.
    pub content: Content,
}

/// The content of a part of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Text in UTF-8.
    Text(String),
    /// Other bytes, as lines with their place, their values and what is readable of them.
    Bytes(Vec<String>),
}

impl FileView {
    /// Whether the part is the whole file.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.from == 0 && self.length == self.size
    }

    /// What changes when the content does.
    #[must_use]
    pub fn stamp(&self) -> String {
        self.entry.stamp()
    }
}

impl Entry {
    /// What changes when the content does.
    #[must_use]
    pub fn stamp(&self) -> String {
        format!("{}/{}", self.modified_at, self.size)
    }
}

/// How a save ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Saved {
    /// The file has the text.
    Done {
        /// See [`Entry::stamp`].
        stamp: String,
    },
    /// The file was changed since it was read, or is there although none was expected; nothing was
    /// written.
    Conflict,
    /// The file was deleted since it was read; nothing was written.
    Gone,
}

/// What is searched for below a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// A glob for names, or a part of them.
    pub name: String,
    /// A text in files.
    pub text: String,
    /// Whether the case of letters in the text matters.
    pub case: bool,
}

impl Asked {
    /// Whether it asks for nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.name.is_empty() && self.text.is_empty()
    }
}

/// How replacing a text in several files ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// Files that were changed.
    pub files: usize,
    /// Places in them.
    pub places: usize,
    /// Files that could not be changed, each with the reason.
    pub failed: Vec<String>,
}

/// A change of files, other than of their content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Makes an empty file where nothing is.
    NewFile(String),
    /// Makes a folder where nothing is.
    NewFolder(String),
    /// Gives an entry another path, where nothing is.
    Move {
        /// Its path.
        from: String,
        /// The new one.
        to: String,
    },
    /// Removes a file, or a folder with all that is in it.
    Remove(String),
    /// Sets permission bits, written as in [`Entry::mode`].
    Mode(String, u32),
}
