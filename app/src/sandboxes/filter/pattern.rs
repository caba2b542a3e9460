//! Texts that a value of the filter stands for.

/// What a text is compared with. Its own texts are in lower case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    Is(String),
    Begins(String),
    Contains(String),
    /// With `*` for any text.
    Glob(String),
}

impl Pattern {
    /// `otherwise` is how a value without `*` is compared.
    pub(super) fn of(value: &str, otherwise: fn(String) -> Self) -> Self {
        let value = value.to_lowercase();
        match value.contains('*') {
            true => Self::Glob(value),
            false => otherwise(value),
        }
    }

    pub(super) fn matches(&self, text: &str) -> bool {
        match self {
            Self::Is(value) => text.to_lowercase() == *value,
            Self::Begins(value) => text.to_lowercase().starts_with(value.as_str()),
            Self::Contains(value) => contains(text, value),
            Self::Glob(value) => glob(value.as_bytes(), text.to_lowercase().as_bytes()),
        }
    }
}

/// Whether a text contains a word, which is in lower case.
pub(super) fn contains(text: &str, word: &str) -> bool {
    if !text.is_ascii() || !word.is_ascii() {
        return text.to_lowercase().contains(word);
    }
    // Rows are compared often, so without a copy of the text.
    word.is_empty()
        || text
            .as_bytes()
            .windows(word.len())
            .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Whether the whole text has this form. Takes time in proportion to the product of the lengths at
/// most.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut at, mut read) = (0, 0);
    // After the last `*`: where the pattern goes on, and how far the `*` reaches.
    let mut star: Option<(usize, usize)> = None;
    while read < text.len() {
        if pattern.get(at) == Some(&b'*') {
            star = Some((at + 1, read));
            at += 1;
        } else if pattern.get(at) == Some(&text[read]) {
            at += 1;
            read += 1;
        } else if let Some((after, reached)) = star {
            star = Some((after, reached + 1));
            at = after;
            read = reached + 1;
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_texts() {
        for (pattern, text, fits) in [
            ("*", "", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*c", "aXcYb", false),
            ("a*b*c", "axbyc", true),
            ("a**c", "ac", true),
            ("*b", "abc", false),
            ("ab", "abc", false),
            ("*ab*ab*", "abaab", true),
        ] {
            assert_eq!(
                glob(pattern.as_bytes(), text.as_bytes()),
                fits,
                "{pattern} {text}"
            );
        }
        // Exponential in a naive search.
        let text = "a".repeat(5_000);
        assert!(!glob(
            "*a".repeat(50).as_bytes(),
            [&text, "b"].concat().as_bytes()
        ));
    }
}
