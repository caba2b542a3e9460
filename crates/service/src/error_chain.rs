//! Errors with their causes on one line.

use std::{error::Error, fmt};

/// Displays an error followed by its causes, each after `": "`.
///
/// A cause is left out when the text of the error above it already contains the cause's own text:
/// some libraries name their source in their message and also return it from
/// [`source`](Error::source), and the line would repeat it. Causes below it are still compared and
/// displayed, so a detail that only the root has is never lost.
///
/// ```
/// use osb_service::ErrorChain;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("cannot open the store")]
/// struct Open(#[source] std::io::Error);
///
/// let error = Open(std::io::Error::other("disk full"));
/// assert_eq!(ErrorChain(&error).to_string(), "cannot open the store: disk full");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ErrorChain<'a>(pub &'a dyn Error);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut above = self.0.to_string();
        f.write_str(&above)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !above.contains(&text) {
                write!(f, ": {text}")?;
            }
            above = text;
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An error with a text and the cause below it.
    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Layer {
        text: &'static str,
        #[source]
        cause: Option<Box<Self>>,
    }

    fn display(texts: &[&'static str]) -> String {
        let layers = texts.iter().rev().fold(None, |cause, text| {
            let layer = Layer { text, cause };
            Some(Box::new(layer))
        });
        ErrorChain(&*layers.expect("at least one text")).to_string()
    }

    #[test]
    fn causes_follow_in_order() {
        assert_eq!(display(&["alone"]), "alone");
        assert_eq!(
            display(&["open", "read", "disk full"]),
            "open: read: disk full"
        );
    }

    #[test]
    fn a_cause_that_its_parent_repeats_is_left_out() {
        let repeated = ["client error (Connect): refused", "client error (Connect)"];
        assert_eq!(display(&repeated), "client error (Connect): refused");
        assert_eq!(display(&["same", "same", "same"]), "same");
        assert_eq!(display(&["no text below", ""]), "no text below");
    }

    #[test]
    fn details_below_a_repeated_cause_stay() {
        assert_eq!(
            display(&["open: client error", "client error", "refused"]),
            "open: client error: refused"
        );
    }

    #[test]
    fn only_the_parent_counts_as_repetition() {
        assert_eq!(display(&["a b", "c", "b"]), "a b: c: b");
    }
}
