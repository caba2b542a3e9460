//! The form that changes labels: its rows, and the change that they mean. Shared by the page and the
//! server, which reads the same form without script.

use std::collections::{BTreeMap, BTreeSet};

use osb_protocol::labels;

/// The label that is a sandbox's title; its row is the first.
pub(super) const NAME: &str = "name";
/// Longest form, in rows. Sandboxes have a few labels.
const ROWS_MAX: usize = 512;

/// A row of the form. Its key stays when rows above it are deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRow {
    pub(super) key: u32,
    /// Name and value that the label had when the form was shown; empty for a new one.
    pub(super) was: (String, String),
    pub(super) name: String,
    pub(super) value: String,
}

/// What is wrong with a row, by its key.
pub type RowProblem = (u32, String);

/// Values to set, and `None` for labels to delete, as in a merge patch of the API.
pub type LabelPatch = BTreeMap<String, Option<String>>;

/// The rows for these labels, the name first, and empty ones to type in.
pub(super) fn rows_of(labels: &BTreeMap<String, String>) -> Vec<LabelRow> {
    const EMPTY: usize = 2;
    let name = labels.get_key_value(NAME);
    let others = labels.iter().filter(|(name, _)| *name != NAME);
    let row = |(name, value): (&String, &String)| LabelRow {
        key: 0,
        was: (name.clone(), value.clone()),
        name: name.clone(),
        value: value.clone(),
    };
    let first = name.map(row).unwrap_or_else(|| LabelRow {
        name: NAME.to_owned(),
        ..LabelRow::default()
    });
    let rows = [first].into_iter().chain(others.map(row));
    let empty = std::iter::repeat_n(LabelRow::default(), EMPTY);
    (0..)
        .zip(rows.chain(empty))
        .map(|(key, row)| LabelRow { key, ..row })
        .collect()
}

/// The rows of a form that was sent: `was`, `old`, `label` and `value` of each, in this order.
#[must_use]
pub fn rows_of_form<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<LabelRow> {
    let mut rows: Vec<LabelRow> = Vec::new();
    for (field, text) in pairs {
        if field == "was" {
            if rows.len() == ROWS_MAX {
                break;
            }
            rows.push(LabelRow {
                key: u32::try_from(rows.len()).unwrap_or(u32::MAX),
                was: (text.to_owned(), String::new()),
                ..LabelRow::default()
            });
        } else if let Some(row) = rows.last_mut() {
            match field {
                "old" => text.clone_into(&mut row.was.1),
                "label" => text.clone_into(&mut row.name),
                "value" => text.clone_into(&mut row.value),
                _ => {}
            }
        }
    }
    rows
}

/// The change that the rows mean. What is as it was is not part of it, so that a change that another
/// client made meanwhile stays.
///
/// # Errors
/// What is wrong with each row.
pub fn patch_of(rows: &[LabelRow]) -> Result<LabelPatch, Vec<RowProblem>> {
    let mut names = BTreeSet::new();
    let mut problems = Vec::new();
    let (mut set, mut deleted) = (LabelPatch::new(), LabelPatch::new());
    for row in rows {
        let (name, value) = (row.name.trim(), row.value.trim());
        let (old_name, old_value) = (row.was.0.as_str(), row.was.1.as_str());
        // A title that is empty is none.
        let is_deleted = name.is_empty() || (name == NAME && value.is_empty());
        if is_deleted {
            match (old_name.is_empty(), value.is_empty()) {
                (false, _) => drop(deleted.insert(old_name.to_owned(), None)),
                (true, false) => problems.push((row.key, "A label needs a name.".to_owned())),
                (true, true) => {}
            }
            continue;
        }
        if !names.insert(name) {
            problems.push((row.key, format!("There is another label {name}.")));
            continue;
        }
        if (name, value) == (old_name, old_value) {
            continue;
        }
        match labels::check_key(name).and_then(|()| labels::check_value(name, value)) {
            Ok(()) => drop(set.insert(name.to_owned(), Some(value.to_owned()))),
            Err(error) => problems.push((row.key, words(&error))),
        }
        if !old_name.is_empty() && old_name != name {
            deleted.insert(old_name.to_owned(), None);
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    // A row may have taken the name of another.
    deleted.retain(|name, _| !names.contains(name.as_str()));
    deleted.extend(set);
    Ok(deleted)
}

/// A broken rule in words of the form, which shows name and value.
fn words(error: &labels::LabelError) -> String {
    match error {
        labels::LabelError::Reserved(_) => {
            format!(
                "Names that begin with {} are reserved.",
                labels::RESERVED_PREFIX
            )
        }
        labels::LabelError::Key(_) => {
            "A name has 1 to 63 letters, digits and ._- between, with an optional prefix such as \
             example.com/."
                .to_owned()
        }
        labels::LabelError::Value { .. } => {
            "A value is empty, or 1 to 63 letters, digits and ._- between.".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn typed(rows: &mut [LabelRow], key: u32, name: &str, value: &str) {
        let row = rows.iter_mut().find(|row| row.key == key).unwrap();
        name.clone_into(&mut row.name);
        value.clone_into(&mut row.value);
    }

    fn patch(all: &[(&str, Option<&str>)]) -> LabelPatch {
        let all = all.iter();
        all.map(|(name, value)| ((*name).to_owned(), value.map(str::to_owned)))
            .collect()
    }

    #[test]
    fn the_name_is_the_first_row_and_nothing_typed_changes_nothing() {
        for known in [
            labels(&[("a", "1"), ("name", "web"), ("z", "")]),
            labels(&[("a", "1")]),
        ] {
            let rows = rows_of(&known);
            assert_eq!(rows[0].name, NAME);
            assert_eq!(rows[1].name, "a");
            assert!(rows.last().unwrap().name.is_empty());
            assert_eq!(patch_of(&rows), Ok(LabelPatch::new()));
        }
    }

    #[test]
    fn only_what_was_changed_is_in_the_patch() {
        let mut rows = rows_of(&labels(&[
            ("name", "web"),
            ("a", "1"),
            ("b", "2"),
            ("c", "3"),
        ]));
        typed(&mut rows, 0, "name", "api");
        typed(&mut rows, 1, "", "1");
        typed(&mut rows, 2, "d", "2");
        typed(&mut rows, 4, " e ", "");
        let wanted = [
            ("a", None),
            ("b", None),
            ("d", Some("2")),
            ("e", Some("")),
            ("name", Some("api")),
        ];
        assert_eq!(patch_of(&rows), Ok(patch(&wanted)));
        typed(&mut rows, 0, "name", " ");
        assert_eq!(patch_of(&rows).unwrap()["name"], None, "no title");
    }

    #[test]
    fn two_labels_may_exchange_their_names() {
        let mut rows = rows_of(&labels(&[("a", "1"), ("b", "2")]));
        typed(&mut rows, 1, "b", "1");
        typed(&mut rows, 2, "a", "2");
        let wanted = [("a", Some("2")), ("b", Some("1"))];
        assert_eq!(patch_of(&rows), Ok(patch(&wanted)));
    }

    #[test]
    fn what_is_wrong_is_said_of_its_row() {
        let mut rows = rows_of(&labels(&[("a", "1"), ("b", "2"), ("c", "3")]));
        typed(&mut rows, 0, "name", "two words");
        typed(&mut rows, 1, "b", "1");
        typed(&mut rows, 3, "opensandbox.io/x", "");
        typed(&mut rows, 4, "-", "");
        typed(&mut rows, 5, "", "value");
        let problems = patch_of(&rows).unwrap_err();
        let keys: Vec<_> = problems.iter().map(|(key, _)| *key).collect();
        assert_eq!(keys, [0, 2, 3, 4, 5], "{problems:?}");
        for (problem, part) in problems.iter().zip([
            "value is",
            "another label b",
            "reserved",
            "name has",
            "needs a name",
        ]) {
            assert!(problem.1.contains(part), "{problem:?}");
        }
    }

    #[test]
    fn a_label_that_breaks_the_rules_already_does_no_harm() {
        // A label of the platform, for example.
        let rows = rows_of(&labels(&[("opensandbox.io/x", "1")]));
        assert_eq!(patch_of(&rows), Ok(LabelPatch::new()));
    }

    #[test]
    fn a_form_has_the_rows_that_the_page_had() {
        let mut rows = rows_of(&labels(&[("name", "web"), ("a", "1")]));
        typed(&mut rows, 2, "b", "2");
        let mut pairs = Vec::new();
        for row in &rows {
            pairs.extend([
                ("was", row.was.0.as_str()),
                ("old", &row.was.1),
                ("label", &row.name),
                ("value", &row.value),
            ]);
        }
        assert_eq!(rows_of_form(pairs.into_iter()), rows);
        assert_eq!(rows_of_form([("value", "x")].into_iter()), []);
    }
}
