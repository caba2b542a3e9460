//! What was typed into a file and is not saved. It stays in the memory of the browser's tab, so it
//! survives a reload, and the file itself.

use osb_protocol::SandboxId;

use crate::browser::Memory;

/// The unsaved text of a file: its names in the tab's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    text: String,
    base: String,
}

impl Draft {
    pub(super) fn of(id: &SandboxId, path: &str) -> Self {
        Self {
            text: format!("osb.file.{id}.{path}"),
            base: format!("osb.file.base.{id}.{path}"),
        }
    }

    /// The text, if there is one.
    pub(super) fn text(&self) -> Option<String> {
        Memory::Tab.get(&self.text)
    }

    /// The stamp that the file had when the text was begun.
    pub(super) fn base(&self) -> Option<String> {
        Memory::Tab.get(&self.base)
    }

    /// Keeps a text that was begun when the file had this stamp.
    pub(super) fn keep(&self, text: &str, base: &str) {
        Memory::Tab.set(&self.text, Some(text));
        Memory::Tab.set(&self.base, Some(base));
    }

    /// Forgets the text: it was saved or discarded.
    pub(super) fn forget(&self) {
        Memory::Tab.set(&self.text, None);
        Memory::Tab.set(&self.base, None);
    }
}
