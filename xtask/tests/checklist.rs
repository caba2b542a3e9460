//! Every test that a page names exists, and every row of a checklist has a test or a reason.

use std::{fs, path::Path};

/// A page that names tests.
struct Checklist {
    page: &'static str,
    /// Whether it is a checklist: a page with a row for each requirement.
    has_requirements: bool,
    /// Kinds of tests, and the folder of each.
    kinds: &'static [(&'static str, &'static str)],
    /// Fewest tests that it names: guards against a table that is not found.
    least: usize,
}

const CHECKLISTS: [Checklist; 5] = [
    Checklist {
        page: "docs/console-tests.md",
        has_requirements: true,
        kinds: &[
            ("browser", "end2end/browser"),
            ("api", "crates/testkit/tests"),
            ("unit", "server/src"),
        ],
        least: 50,
    },
    Checklist {
        page: "docs/egress-tests.md",
        has_requirements: true,
        kinds: &[
            ("unit", "egress/src"),
            ("protocol", "crates/protocol/src"),
            ("otlp", "crates/otlp/src"),
            ("log", "crates/log/src"),
            ("runtime", "crates/runtime/src"),
            ("network", "egress/tests/network"),
            ("runtime", "crates/runtime/src"),
            ("domain", "server/src"),
            ("api", "crates/testkit/tests"),
            ("contract", "end2end/contract"),
            ("sdk", "end2end/sdk"),
            ("osb", "end2end/cli"),
            ("javascript", "end2end/js"),
        ],
        least: 100,
    },
    Checklist {
        page: "docs/egress.md",
        has_requirements: false,
        kinds: &[("network", "egress/tests/network")],
        least: 10,
    },
    Checklist {
        page: "docs/execd-tests.md",
        has_requirements: true,
        kinds: &[
            ("unit", "execd/src"),
            ("log", "crates/log/src"),
            ("otlp", "crates/otlp/src"),
            ("daemon", "execd/tests/daemon"),
            ("contract", "end2end/contract"),
            ("sdk", "end2end/sdk"),
        ],
        least: 50,
    },
    Checklist {
        page: "docs/lifecycle-tests.md",
        has_requirements: true,
        kinds: &[
            ("api", "crates/testkit/tests"),
            ("unit", "server/src"),
            ("runtime", "crates/runtime/src"),
            ("store", "crates/store/src"),
            ("protocol", "crates/protocol/src"),
            ("forward", "crates/forward/tests/forward"),
            ("contract", "end2end/contract"),
            ("sdk", "end2end/sdk"),
        ],
        least: 200,
    },
];

/// Words that begin the reason of a row without a test.
const REASONS: [&str; 2] = ["*differs*: ", "*later*: "];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

/// The tests that a text names, as kind and test.
fn named(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|name| name.split_once(' ').filter(|(_, test)| test.contains("::")))
}

/// Whether a file of Rust has a test with this name that is not ignored.
fn is_test(text: &str, function: &str) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let head = format!("fn {function}(");
    let found = lines.iter().position(|line| {
        let before = line.split(&head).next().unwrap_or_default();
        line.contains(&head) && ["", "async "].contains(&before)
    });
    let Some(at) = found else {
        return false;
    };
    // Its attributes: back to the end of what is before it.
    let attributes: Vec<&str> = lines[..at]
        .iter()
        .rev()
        .take_while(|line| !line.is_empty() && **line != "}")
        .copied()
        .collect();
    let has = |start: &str| attributes.iter().any(|line| line.starts_with(start));
    (has("#[test]") || has("#[tokio::test")) && !has("#[ignore")
}

/// Whether a function is in the list of the store's tests that run on every database.
fn runs_on_every_database(folder: &str, module: &str, function: &str) -> bool {
    let Some(module) = module.strip_prefix("tests/") else {
        return false;
    };
    let text = read(&format!("{folder}/tests/{module}.rs"));
    let list = read(&format!("{folder}/tests/mod.rs"));
    let line = format!("{module}::{function},");
    text.contains(&format!("fn {function}(")) && list.lines().any(|it| it.trim() == line)
}

#[test]
fn what_is_no_test_or_is_ignored_does_not_count() {
    let text = "    /// Why.\n    #[tokio::test(start_paused = true)]\n    async fn a() {\n    }\n\n\
                #[test]\n#[ignore = \"slow\"]\nfn b() {\n}\n\nfn c() {\n}\n\n#[test]\nfn d() {}\n";
    let counted = ["a", "b", "c", "d", "e"].map(|name| is_test(text, name));
    assert_eq!(counted, [true, false, false, true, false]);
}

#[test]
fn every_test_that_a_checklist_names_exists() {
    for list in CHECKLISTS {
        let mut count = 0;
        let mut missing = Vec::new();
        for (kind, test) in named(&read(list.page)) {
            let folder = list.kinds.iter().find(|(known, _)| *known == kind);
            let (_, folder) = folder.unwrap_or_else(|| panic!("what kind is `{kind} {test}`?"));
            let (module, function) = test.split_once("::").unwrap();
            let extension = match *folder {
                "end2end/browser" => "spec.ts",
                "end2end/js" => "js",
                folder if folder.starts_with("end2end") => "py",
                _ => "rs",
            };
            let text = read(&format!("{folder}/{module}.{extension}"));
            let runs = match extension {
                "spec.ts" | "js" => text.contains(&format!("test(\"{function}\", ")),
                "py" => text.contains(&format!("def {function}(")) && function.starts_with("test"),
                _ => is_test(&text, function) || runs_on_every_database(folder, module, function),
            };
            if !runs {
                missing.push(format!("{kind} {test}"));
            }
            count += 1;
        }
        assert!(missing.is_empty(), "{}: {missing:#?}", list.page);
        assert!(count >= list.least, "{} names {count} tests", list.page);
    }
}

#[test]
fn every_row_of_a_checklist_has_a_test_or_a_reason() {
    for list in CHECKLISTS.iter().filter(|it| it.has_requirements) {
        let mut bare = Vec::new();
        let text = read(list.page);
        let rows = text.lines().filter_map(|line| line.strip_prefix("| "));
        // Rows of other tables have more cells, or are the head.
        let rows = rows.filter_map(|row| row.strip_suffix(" |")?.split_once(" | "));
        let mut count = 0;
        for (row, checked) in rows.filter(|(_, checked)| !checked.contains(" | ")) {
            let is_head = checked == "Checked by" || checked == "Location";
            let is_kind = row.starts_with('`') && list.kinds.iter().any(|it| row.contains(it.0));
            if is_head || is_kind {
                continue;
            }
            count += 1;
            let has_reason = REASONS.iter().any(|reason| checked.contains(reason));
            if named(checked).next().is_none() && !has_reason {
                bare.push(row.to_owned());
            }
        }
        assert!(bare.is_empty(), "{}: {bare:#?}", list.page);
        assert!(count > 20, "{} has {count} rows", list.page);
    }
}
