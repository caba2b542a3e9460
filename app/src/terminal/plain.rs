//! Text that a program in a sandbox chose.

/// Most characters of a title.
const MOST: usize = 80;

/// A title as one line of plain text: without control characters, and without those that change the
/// direction or order of the text around them.
pub(super) fn plain(title: &str) -> String {
    let text = title
        .chars()
        .filter(|it| !it.is_control() && !is_formatting(*it));
    let mut cut: String = text.clone().take(MOST).collect();
    if text.count() > MOST {
        cut.push('…');
    }
    cut.trim().to_owned()
}

fn is_formatting(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_are_one_line_of_plain_text() {
        assert_eq!(plain("~/src: vim"), "~/src: vim");
        assert_eq!(plain("<b>grün</b> 日本"), "<b>grün</b> 日本");
        assert_eq!(plain(" a\u{202e}b\u{7}\nc\u{200b} "), "abc");
        assert_eq!(plain("\u{1b}[31m"), "[31m");
        let long = plain(&"ä".repeat(MOST + 1));
        assert_eq!(long, "ä".repeat(MOST) + "…");
        assert_eq!(plain(&"ä".repeat(MOST)), "ä".repeat(MOST));
    }
}
