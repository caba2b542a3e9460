//! What a change of a text changes, line by line. The work and the result are bounded: a page that
//! compares two long texts stays usable.

use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};

/// Unchanged lines that are shown around changed ones.
const AROUND: usize = 3;
/// Most lines that are shown.
const ROWS: usize = 2_000;
/// Most lines that are shown of those that one place adds or removes.
const SIDE: usize = 500;
/// Most lines, of both texts together, that are compared without a limit on how much they differ.
const COMPARED: usize = 4_000;
/// Most lines that may be added or removed in longer texts. With more, the changed part counts as
/// replaced. The memory for the comparison grows with the square of it.
const EDITS: usize = 1_000;

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

/// What differs between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changes {
    /// The lines that differ, with some around them, as far as they are shown. Empty if there are none.
    pub(super) lines: Vec<DiffLine>,
    added: usize,
    removed: usize,
    /// Lines that differ and are not shown.
    left_out: usize,
    /// Whether the changed part counts as replaced, though lines in it may be the same.
    is_whole: bool,
}

impl Changes {
    /// How much changes, and what is not shown of it.
    pub(super) fn summary(&self) -> String {
        let mut summary = format!("{} added, {} removed", self.added, self.removed);
        if self.is_whole {
            summary += ". The texts differ too much to compare each line: everything from the first \
                        to the last change is shown as removed and added again";
        }
        if self.left_out > 0 {
            let lines = lines_text(self.left_out, "changed ");
            summary += &format!(". {lines} not shown; saving changes them, too");
        }
        summary
    }

    /// Takes a line in; whether it is shown.
    fn take(&mut self, kind: LineKind, line: &str, is_shown: bool) -> bool {
        let is_shown = is_shown && self.lines.len() < ROWS;
        match kind {
            LineKind::Added => self.added += 1,
            LineKind::Removed => self.removed += 1,
            LineKind::Same | LineKind::Gap => {}
        }
        if is_shown {
            self.lines.push(shown(kind, line));
        } else {
            self.left_out += usize::from(matches!(kind, LineKind::Added | LineKind::Removed));
        }
        is_shown
    }

    /// Takes the lines in that one place adds or removes: the first of them are shown.
    fn take_side(&mut self, kind: LineKind, lines: &[&str]) {
        let mut hidden = 0;
        for (at, line) in lines.iter().enumerate() {
            hidden += usize::from(!self.take(kind, line, at < SIDE));
        }
        if hidden > 0 && self.lines.len() < ROWS {
            let what = match kind {
                LineKind::Added => "added ",
                _ => "removed ",
            };
            let text = format!("{} not shown", lines_text(hidden, what));
            let kind = LineKind::Gap;
            self.lines.push(DiffLine { kind, text });
        }
    }
}

/// `1 added line is`, `2 added lines are`.
fn lines_text(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}line is"),
        count => format!("{count} {what}lines are"),
    }
}

/// A line as it is shown: what ends it counts as well.
fn shown(kind: LineKind, line: &str) -> DiffLine {
    let text = line.trim_end_matches(['\n', '\r']).replace('\r', "␍");
    let is_return = line.ends_with("\r\n") && kind != LineKind::Same;
    let mark = if is_return { "␍" } else { "" };
    let end = if line.ends_with('\n') {
        ""
    } else {
        " (no line end)"
    };
    DiffLine {
        kind,
        text: [&*text, mark, end].concat(),
    }
}

/// What differs between two texts.
pub(super) fn difference(old: &str, new: &str) -> Changes {
    let old: Vec<&str> = old.split_inclusive('\n').collect();
    let new: Vec<&str> = new.split_inclusive('\n').collect();
    let (ops, is_whole) = operations(&old, &new);
    let mut changes = Changes {
        is_whole,
        ..Changes::default()
    };
    for (number, group) in group_diff_ops(ops, AROUND).iter().enumerate() {
        if number > 0 && changes.lines.len() < ROWS {
            changes.lines.push(DiffLine {
                kind: LineKind::Gap,
                text: String::new(),
            });
        }
        for op in group {
            let (was, is) = (&old[op.old_range()], &new[op.new_range()]);
            if let DiffOp::Equal { .. } = op {
                for line in was {
                    changes.take(LineKind::Same, line, true);
                }
            } else {
                changes.take_side(LineKind::Removed, was);
                changes.take_side(LineKind::Added, is);
            }
        }
    }
    changes
}

/// How the lines of one text become those of another, and whether their changed part counts as
/// replaced.
fn operations(old: &[&str], new: &[&str]) -> (Vec<DiffOp>, bool) {
    let before = common(old.iter(), new.iter());
    let (old_rest, new_rest) = (&old[before..], &new[before..]);
    let after = common(old_rest.iter().rev(), new_rest.iter().rev());
    let old_part = &old_rest[..old_rest.len() - after];
    let new_part = &new_rest[..new_rest.len() - after];
    if old_part.len() + new_part.len() <= COMPARED {
        return (capture_diff_slices(Algorithm::Myers, old, new), false);
    }
    let runs = equal_runs(old_part, new_part);
    let is_whole = runs.is_none();
    let end = (old.len() - after, new.len() - after, after);
    let runs = runs.unwrap_or_default().into_iter();
    let runs = runs.map(|(was, is, len)| (before + was, before + is, len));
    let runs = std::iter::once((0, 0, before)).chain(runs).chain([end]);
    (between(runs), is_whole)
}

/// How many of the first elements are the same.
fn common<'a>(
    one: impl Iterator<Item = &'a &'a str>,
    other: impl Iterator<Item = &'a &'a str>,
) -> usize {
    one.zip(other)
        .take_while(|(one, other)| one == other)
        .count()
}

/// The operations that have these runs of equal lines. The last run ends both texts.
fn between(runs: impl Iterator<Item = (usize, usize, usize)>) -> Vec<DiffOp> {
    let mut ops = Vec::new();
    let (mut old_index, mut new_index) = (0, 0);
    for (was, is, len) in runs {
        let (old_len, new_len) = (was - old_index, is - new_index);
        match (old_len, new_len) {
            (0, 0) => {}
            (old_len, 0) => ops.push(DiffOp::Delete {
                old_index,
                old_len,
                new_index,
            }),
            (0, new_len) => ops.push(DiffOp::Insert {
                old_index,
                new_index,
                new_len,
            }),
            (old_len, new_len) => ops.push(DiffOp::Replace {
                old_index,
                old_len,
                new_index,
                new_len,
            }),
        }
        if len > 0 {
            ops.push(DiffOp::Equal {
                old_index: was,
                new_index: is,
                len,
            });
        }
        (old_index, new_index) = (was + len, is + len);
    }
    ops
}

/// The runs of equal lines, as their places in both texts and their length, if at most [`EDITS`] lines
/// are added or removed: the greedy algorithm of Myers, "An O(ND) Difference Algorithm and Its
/// Variations", figure 2.
fn equal_runs(old: &[&str], new: &[&str]) -> Option<Vec<(usize, usize, usize)>> {
    let most = EDITS.min(old.len() + new.len());
    // How far each diagonal was followed in the old text. The place of diagonal 0, where both texts are
    // equally far, is in the middle.
    let zero = most + 1;
    let mut reached = vec![0_usize; 2 * zero + 1];
    // The diagonals before each number of edits.
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for edits in 0..=most {
        let (first, last) = (zero - edits, zero + edits);
        rounds.push(reached[first..=last].to_vec());
        for at in (first..=last).step_by(2) {
            let adds = at == first || (at != last && reached[at - 1] < reached[at + 1]);
            let mut was = match adds {
                true => reached[at + 1],
                false => reached[at - 1] + 1,
            };
            let mut is = was + zero - at;
            while was < old.len() && is < new.len() && old[was] == new[is] {
                was += 1;
                is += 1;
            }
            reached[at] = was;
            if was >= old.len() && is >= new.len() {
                return Some(walked_back(&rounds, (old.len(), new.len())));
            }
        }
    }
    None
}

/// The runs of equal lines on the way to the ends of both texts.
fn walked_back(rounds: &[Vec<usize>], end: (usize, usize)) -> Vec<(usize, usize, usize)> {
    let mut runs = Vec::new();
    let (mut was, mut is) = end;
    for (edits, reached) in rounds.iter().enumerate().skip(1).rev() {
        let at = was + edits - is;
        let adds = at == 0 || (at != 2 * edits && reached[at - 1] < reached[at + 1]);
        let from_at = if adds { at + 1 } else { at - 1 };
        let from = reached[from_at];
        let begin = if adds { from } else { from + 1 };
        if was > begin {
            let len = was - begin;
            runs.push((begin, is - len, len));
        }
        (was, is) = (from, from + edits - from_at);
    }
    if was > 0 {
        runs.push((0, 0, was));
    }
    runs.reverse();
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(old: &str, new: &str) -> Vec<String> {
        let lines = difference(old, new).lines.into_iter();
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

    /// Lines of one number each.
    fn text(numbers: impl Iterator<Item = usize>) -> String {
        numbers.map(|number| format!("{number}\n")).collect()
    }

    /// Makes the new text of the old one, as the operations say.
    fn applied(old: &[&str], new: &[&str], ops: &[DiffOp]) -> String {
        let mut made = String::new();
        let mut left = 0;
        for op in ops {
            assert_eq!(op.old_range().start, left, "{op:?}");
            left = op.old_range().end;
            match op {
                DiffOp::Equal { .. } => made.extend(old[op.old_range()].iter().copied()),
                _ => made.extend(new[op.new_range()].iter().copied()),
            }
        }
        assert_eq!(left, old.len());
        made
    }

    #[test]
    fn changed_lines_have_others_around_them() {
        assert!(shown("a\nb\n", "a\nb\n").is_empty());
        assert_eq!(shown("a\nb\nc\n", "a\nx\nc\n"), [" a", "-b", "+x", " c"]);
        let old = text(0..30);
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n27\n", "\n");
        let lines = shown(&old, &new);
        assert!(lines.contains(&"~".to_owned()), "{lines:?}");
        assert!(!lines.contains(&" 15".to_owned()), "{lines:?}");
        assert_eq!(difference(&old, &new).summary(), "1 added, 2 removed");
    }

    #[test]
    fn line_ends_are_part_of_a_line() {
        assert_eq!(shown("a", "a\n"), ["-a (no line end)", "+a"]);
        assert_eq!(shown("a\r\n", "a\n"), ["-a␍", "+a"]);
        assert_eq!(shown("", "a\n"), ["+a"]);
        assert_eq!(shown("a\rb\n", "b\n"), ["-a␍b", "+b"]);
    }

    #[test]
    fn few_changes_of_a_long_text_are_found_exactly() {
        let old = text(0..30_000);
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n29997\n", "\n");
        let changes = difference(&old, &new);
        assert_eq!(changes.summary(), "1 added, 2 removed");
        assert_eq!(
            shown(&old, &new),
            [
                " 0", " 1", "-2", "+two", " 3", " 4", " 5", "~", " 29994", " 29995", " 29996",
                "-29997", " 29998", " 29999"
            ]
        );
    }

    #[test]
    fn a_long_change_is_shown_in_part_and_counted_as_a_whole() {
        let old = text(0..30_000);
        let new = text(30_000..60_000);
        let changes = difference(&format!("a\n{old}z\n"), &format!("a\n{new}z\n"));
        assert_eq!((changes.added, changes.removed), (30_000, 30_000));
        assert!(changes.is_whole);
        let count = |kind| {
            changes
                .lines
                .iter()
                .filter(|line| line.kind == kind)
                .count()
        };
        assert_eq!(count(LineKind::Removed), SIDE);
        assert_eq!(count(LineKind::Added), SIDE);
        assert_eq!(count(LineKind::Same), 2);
        assert_eq!(changes.left_out, 2 * (30_000 - SIDE));
        let gaps = changes.lines.iter().filter(|it| it.kind == LineKind::Gap);
        let gaps: Vec<_> = gaps.map(|line| line.text.as_str()).collect();
        assert_eq!(
            gaps,
            [
                "29500 removed lines are not shown",
                "29500 added lines are not shown"
            ]
        );
        let summary = changes.summary();
        assert!(
            summary.starts_with("30000 added, 30000 removed. "),
            "{summary}"
        );
        assert!(
            summary.ends_with("59000 changed lines are not shown; saving changes them, too"),
            "{summary}"
        );
    }

    #[test]
    fn many_places_are_shown_up_to_a_number_of_rows() {
        let old = text(0..10_000);
        let new: String = (0..10_000)
            .map(|line| match line % 20 {
                0 => format!("new {line}\n"),
                _ => format!("{line}\n"),
            })
            .collect();
        let changes = difference(&old, &new);
        assert_eq!((changes.added, changes.removed), (500, 500));
        assert_eq!(changes.lines.len(), ROWS);
        let is_change = |it: &&DiffLine| matches!(it.kind, LineKind::Added | LineKind::Removed);
        let counted = changes.lines.iter().filter(is_change).count();
        assert_eq!(counted + changes.left_out, 1_000);
        assert!(!changes.is_whole);
    }

    #[test]
    fn every_comparison_makes_the_new_text_of_the_old_one() {
        // A sequence without a pattern, and the same in each run.
        let mut state = 1_u32;
        let mut next = move |below: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) % below
        };
        for kept in [0, 50, 95, 99, 100] {
            let old: Vec<String> = (0..6_000).map(|_| format!("{}\n", next(40))).collect();
            let mut new = Vec::new();
            for line in &old {
                match next(100) < kept {
                    true => new.push(line.clone()),
                    false if next(2) == 0 => new.push(format!("{}\n", next(40))),
                    false => {}
                }
            }
            let old: Vec<&str> = old.iter().map(String::as_str).collect();
            let new: Vec<&str> = new.iter().map(String::as_str).collect();
            let (ops, is_whole) = operations(&old, &new);
            assert_eq!(applied(&old, &new, &ops), new.concat(), "{kept} % are kept");
            assert_eq!(is_whole, kept < 95, "{kept} % are kept");
        }
    }
}
