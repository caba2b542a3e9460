//! The words of a filter as it was typed.

/// A word of the filter.
pub(super) struct Word {
    /// As it was typed.
    pub(super) raw: String,
    /// Without its quotes.
    pub(super) text: String,
    /// Whether it begins with a quote, and so names no field.
    pub(super) is_quoted: bool,
    /// Whether it ends inside of a quote.
    pub(super) is_open: bool,
}

/// Splits at spaces outside of quotes. A quote that is not closed reaches to the end.
pub(super) fn words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let mut inside = false;
    for char in text.chars() {
        if char.is_whitespace() && !inside {
            words.extend(word.take());
            continue;
        }
        let current = word.get_or_insert_with(|| Word {
            raw: String::new(),
            text: String::new(),
            is_quoted: char == '"',
            is_open: false,
        });
        current.raw.push(char);
        match char {
            '"' => inside = !inside,
            other => current.text.push(other),
        }
        current.is_open = inside;
    }
    words.extend(word);
    words
}
