//! Text of a log line for a page: colours as classes of spans, everything else of a terminal's control
//! language left out. The text comes from a program that is not trusted.

/// Foreground colour and style of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    /// 1 to 16: a colour of the palette.
    colour: u8,
    bold: bool,
    dim: bool,
    italic: bool,
    underlined: bool,
}

/// A piece of text, and the classes of its span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) class: String,
    pub(crate) text: String,
}

impl Style {
    fn class(self) -> String {
        let mut class = String::new();
        let mut add = |is: bool, name: &str| {
            if is {
                if !class.is_empty() {
                    class.push(' ');
                }
                class.push_str(name);
            }
        };
        let colour = self.colour.saturating_sub(1) as usize;
        add(self.colour > 0, COLOURS[colour % COLOURS.len()]);
        add(self.bold, "ansi-bold");
        add(self.dim, "ansi-dim");
        add(self.italic, "ansi-italic");
        add(self.underlined, "ansi-underlined");
        class
    }

    /// Applies the parameters of a "select graphic rendition" sequence.
    fn select(&mut self, parameters: &str) {
        let mut numbers = parameters
            .split([';', ':'])
            .map(|it| it.parse::<u8>().unwrap_or(0));
        while let Some(number) = numbers.next() {
            match number {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                22 => (self.bold, self.dim) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                30..=37 => self.colour = number - 30 + 1,
                39 => self.colour = 0,
                90..=97 => self.colour = number - 90 + 9,
                // Further colours: one of the palette counts, others have no contrast to rely on.
                38 | 48 => {
                    let colour = match numbers.next() {
                        Some(5) => numbers.next().filter(|it| *it < 16).map_or(0, |it| it + 1),
                        Some(2) => {
                            numbers.nth(2);
                            0
                        }
                        _ => 0,
                    };
                    if number == 38 {
                        self.colour = colour;
                    }
                }
                _ => {}
            }
        }
    }
}

/// Classes of the palette.
const COLOURS: [&str; 16] = [
    "ansi-0", "ansi-1", "ansi-2", "ansi-3", "ansi-4", "ansi-5", "ansi-6", "ansi-7", "ansi-8",
    "ansi-9", "ansi-10", "ansi-11", "ansi-12", "ansi-13", "ansi-14", "ansi-15",
];

/// Splits a line into pieces of one style.
pub(crate) fn pieces(line: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut style = Style::default();
    let mut text = String::new();
    let mut rest = last_overwrite(line);
    while let Some(at) = rest.find('\u{1b}') {
        push_shown(&mut text, &rest[..at]);
        let (sequence, after) = sequence(&rest[at + 1..]);
        if let Some(parameters) = sequence {
            let before = style;
            style.select(parameters);
            if style != before && !text.is_empty() {
                let text = std::mem::take(&mut text);
                pieces.push(Piece {
                    class: before.class(),
                    text,
                });
            }
        }
        rest = after;
    }
    push_shown(&mut text, rest);
    if !text.is_empty() {
        pieces.push(Piece {
            class: style.class(),
            text,
        });
    }
    pieces
}

/// The text without styles: what a filter searches.
pub(crate) fn plain(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut rest = last_overwrite(line);
    while let Some(at) = rest.find('\u{1b}') {
        push_shown(&mut text, &rest[..at]);
        rest = sequence(&rest[at + 1..]).1;
    }
    push_shown(&mut text, rest);
    text
}

/// What a terminal shows of a line in which a program went back to its beginning, as progress bars do.
fn last_overwrite(line: &str) -> &str {
    let line = line.trim_end_matches('\r');
    line.rsplit('\r').next().unwrap_or(line)
}

/// Reads an escape sequence after its first byte: the parameters of one that selects a style, and what
/// follows it.
fn sequence(text: &str) -> (Option<&str>, &str) {
    let mut chars = text.char_indices();
    match chars.next() {
        Some((_, '[')) => {
            let end = text[1..].find(|it: char| ('\u{40}'..='\u{7e}').contains(&it));
            match end.map(|end| end + 1) {
                Some(end) => {
                    let is_style = text[end..].starts_with('m');
                    (is_style.then_some(&text[1..end]), &text[end + 1..])
                }
                None => (None, ""),
            }
        }
        // Titles and links end with a bell, or with an escape and a backslash.
        Some((_, ']' | 'P' | 'X' | '^' | '_')) => {
            let bell = text.find('\u{7}').map(|at| (at, 1));
            let string = text.find("\u{1b}\\").map(|at| (at, 2));
            let end = [bell, string].into_iter().flatten().min();
            (None, end.map_or("", |(at, length)| &text[at + length..]))
        }
        Some((at, it)) => (None, &text[at + it.len_utf8()..]),
        None => (None, ""),
    }
}

/// Adds what may be shown: tabs as blanks, no control characters, and none that change the direction of
/// the text around them.
fn push_shown(text: &mut String, shown: &str) {
    for it in shown.chars() {
        match it {
            '\t' => text.push_str("    "),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                text.push('\u{fffd}');
            }
            it if it.is_control() => {}
            it => text.push(it),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> Vec<(String, String)> {
        let pieces = pieces(line).into_iter();
        pieces.map(|piece| (piece.class, piece.text)).collect()
    }

    fn piece(class: &str, text: &str) -> (String, String) {
        (class.to_owned(), text.to_owned())
    }

    #[test]
    fn colours_become_classes() {
        assert_eq!(
            shown("a\x1b[31mred\x1b[1mbold\x1b[0m b\x1b[38;5;2mg\x1b[38;2;1;2;3mtrue\x1b[94mx"),
            [
                piece("", "a"),
                piece("ansi-1", "red"),
                piece("ansi-1 ansi-bold", "bold"),
                piece("", " b"),
                piece("ansi-2", "g"),
                piece("", "true"),
                piece("ansi-12", "x"),
            ]
        );
        assert_eq!(
            shown("\x1b[m\x1b[4mu\x1b[24m"),
            [piece("ansi-underlined", "u")]
        );
    }

    #[test]
    fn everything_else_of_a_terminal_is_left_out() {
        for (line, text) in [
            ("\x1b]0;title\x07a", "a"),
            (
                "\x1b]8;;javascript:alert(1)\x1b\\link\x1b]8;;\x1b\\",
                "link",
            ),
            ("\x1b[2J\x1b[10;10Hb", "b"),
            ("\x1bPq#0\x1b\\c\x1b(Bd", "cBd"),
            ("10%\r50%\r100%\r", "100%"),
            ("a\tb\x08\x00c", "a    bc"),
            ("\x1b[31", ""),
            ("x\x1b", "x"),
            ("\x1b]never ends", ""),
            ("\u{202e}evil", "\u{fffd}evil"),
            ("\x1b\u{e9}\u{e9}", "\u{e9}"),
            ("<script>alert(1)</script>", "<script>alert(1)</script>"),
        ] {
            assert_eq!(plain(line), text, "{line:?}");
            let pieces = pieces(line).into_iter();
            let joined: String = pieces.map(|piece| piece.text).collect();
            assert_eq!(joined, text, "{line:?}");
        }
    }
}
