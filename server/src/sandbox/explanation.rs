//! Messages with causes and suggested fixes.

use osb_runtime::Cause;

/// Adds the cause of a failure in words, with a suggested fix.
#[must_use]
pub fn explain(text: String, cause: Option<Cause>) -> String {
    match cause {
        Some(cause) => format!("{}. {cause}", text.trim_end_matches('.')),
        None => text,
    }
}
