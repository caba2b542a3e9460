//! Line endings of a text that is edited: a text area knows one only.

/// How the lines of a file end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnding {
    /// With a line feed, or some with one and some with a carriage return before it.
    LineFeed,
    /// All with both.
    Both,
}

impl LineEnding {
    pub(super) fn of(text: &str) -> Self {
        let both = text.matches("\r\n").count();
        match both > 0 && both == text.matches('\n').count() {
            true => Self::Both,
            false => Self::LineFeed,
        }
    }

    /// The text as it is edited.
    pub(super) fn shown(self, text: &str) -> String {
        match self {
            Self::LineFeed => text.to_owned(),
            Self::Both => text.replace("\r\n", "\n"),
        }
    }

    /// The text as it is saved.
    pub(super) fn written(self, text: &str) -> String {
        match self {
            Self::LineFeed => text.to_owned(),
            Self::Both => text.replace('\n', "\r\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_line_endings() {
        for text in ["", "a", "a\nb\n", "a\r\nb\r\n", "a\r\nb\n", "\r\n"] {
            let ending = LineEnding::of(text);
            assert_eq!(ending.written(&ending.shown(text)), text, "{text:?}");
        }
        assert_eq!(LineEnding::of("a\r\nb\r\n"), LineEnding::Both);
        assert_eq!(LineEnding::Both.shown("a\r\nb"), "a\nb");
        assert_eq!(LineEnding::of("a\r\nb\n"), LineEnding::LineFeed);
    }
}
