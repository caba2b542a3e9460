//! Why a sandbox cannot be started.

use std::fmt;

use crate::Cause;

/// Why a sandbox cannot be started, in the words of the engine, of execd or of this crate, and the
/// common cause that they reveal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    text: String,
    cause: Option<Cause>,
}

impl Reason {
    /// Joins a text and a cause that was recognised in a part of it.
    pub(crate) fn new(text: String, cause: Option<Cause>) -> Self {
        Self { text, cause }
    }

    /// The common cause, if it was recognised.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        self.cause
    }
}

/// Recognises the cause in the whole text, which must have nothing that a client chose.
impl From<String> for Reason {
    fn from(text: String) -> Self {
        let cause = Cause::of_message(&text);
        Self { text, cause }
    }
}

impl From<Reason> for String {
    fn from(reason: Reason) -> Self {
        reason.text
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
