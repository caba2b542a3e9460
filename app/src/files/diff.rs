//! What a change of a text changes, line by line.

use similar::{ChangeTag, TextDiff};

/// Unchanged lines that are shown around changed ones.
const AROUND: usize = 3;

/// A line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DiffLine {
    pub(super) kind: LineKind,
    pub(super) text: String,
}

/// What became of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    Same,
    Added,
    Removed,
    /// Lines are left out here.
    Gap,
}

/// The lines that differ between two texts, with some around them. Empty if there are none.
pub(super) fn difference(old: &str, new: &str) -> Vec<DiffLine> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (number, group) in diff.grouped_ops(AROUND).iter().enumerate() {
        if number > 0 {
            lines.push(DiffLine {
                kind: LineKind::Gap,
                text: String::new(),
            });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let kind = match change.tag() {
                ChangeTag::Equal => LineKind::Same,
                ChangeTag::Delete => LineKind::Removed,
                ChangeTag::Insert => LineKind::Added,
            };
            let end = if change.missing_newline() {
                " (no line end)"
            } else {
                ""
            };
            let text = change.value().trim_end_matches(['\n', '\r']);
            let is_return = change.value().ends_with("\r\n");
            let mark = if is_return && kind != LineKind::Same {
                "␍"
            } else {
                ""
            };
            lines.push(DiffLine {
                kind,
                text: [text, mark, end].concat(),
            });
        }
    }
    lines
}

/// Numbers of added and of removed lines.
pub(super) fn counts(lines: &[DiffLine]) -> (usize, usize) {
    let count = |kind| lines.iter().filter(|line| line.kind == kind).count();
    (count(LineKind::Added), count(LineKind::Removed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<String> {
        let lines = difference(old, new).into_iter();
        lines
            .map(|line| {
                let mark = match line.kind {
                    LineKind::Same => ' ',
                    LineKind::Added => '+',
                    LineKind::Removed => '-',
                    LineKind::Gap => '~',
                };
                format!("{mark}{}", line.text)
            })
            .collect()
    }

    #[test]
    fn changed_lines_have_others_around_them() {
        assert!(shown("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(shown("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
        let old: String = (0..30).map(|line| format!("{line}\n")).collect();
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n27\n", "\n");
        let lines = shown(&old, &new);
        assert!(lines.contains(&"~".to_owned()), "{lines:?}");
        assert!(!lines.contains(&" 15".to_owned()), "{lines:?}");
        assert_eq!(counts(&difference(&old, &new)), (1, 2));
    }

    #[test]
    fn line_ends_are_part_of_a_line() {
        assert_eq!(shown("a", "a\n"), ["-a (no line end)", "+a"]);
        assert_eq!(shown("a\r\n", "a\n"), ["-a␍", "+a"]);
        assert_eq!(shown("", "a\n"), ["+a"]);
    }
}
