//! Reports in the `JUnit` format, which every test program here can write.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context, Result};
use roxmltree::{Document, Node};

use super::tally::Tally;

/// Most characters of a failure that are kept.
const KEPT: usize = 20_000;

/// A test of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// Group of the test: a class, a file or a program, as the test program writes it.
    pub(super) group: String,
    /// Name within the group.
    pub(super) name: String,
    /// File of the test, where the test program writes it.
    pub(super) file: Option<String>,
    pub(super) took: Duration,
    pub(super) outcome: Outcome,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// With what the test program said about it.
    Failed(String),
    Skipped,
}

/// Reads the tests of a report.
pub(super) fn read(report: &Path) -> Result<Vec<Case>> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    parse(&text).with_context(|| format!("{} is no report", report.display()))
}

fn parse(text: &str) -> Result<Vec<Case>> {
    // Test output in a report may hold characters that XML has no place for.
    let text: String = text.chars().filter(|char| is_allowed(*char)).collect();
    let document = Document::parse(&text)?;
    let root = document.root_element();
    anyhow::ensure!(
        ["testsuites", "testsuite"].contains(&root.tag_name().name()),
        "the root is <{}>",
        root.tag_name().name()
    );
    Ok(document
        .descendants()
        .filter(|node| node.has_tag_name("testcase"))
        .map(|node| case(&node))
        .collect())
}

fn is_allowed(char: char) -> bool {
    matches!(char, '\t' | '\n' | '\r') || (char >= ' ' && !matches!(char, '\u{fffe}' | '\u{ffff}'))
}

fn case(node: &Node<'_, '_>) -> Case {
    let text = |name: &str| node.attribute(name).unwrap_or_default().to_owned();
    let seconds: f64 = text("time").parse().unwrap_or_default();
    let child = |names: &[&str]| {
        node.children()
            .find(|child| child.is_element() && names.contains(&child.tag_name().name()))
    };
    let outcome = match (child(&["failure", "error"]), child(&["skipped"])) {
        (Some(failure), _) => Outcome::Failed(failure_text(node, &failure)),
        (None, Some(_)) => Outcome::Skipped,
        (None, None) => Outcome::Passed,
    };
    Case {
        group: text("classname"),
        name: text("name"),
        file: node.attribute("file").map(str::to_owned),
        took: Duration::try_from_secs_f64(seconds).unwrap_or_default(),
        outcome,
    }
}

/// The message of a failure, its text, and what the test printed.
fn failure_text(case: &Node<'_, '_>, failure: &Node<'_, '_>) -> String {
    let printed = case
        .children()
        .filter(|child| child.has_tag_name("system-out") || child.has_tag_name("system-err"));
    let texts = failure
        .attribute("message")
        .into_iter()
        .chain(failure.text())
        .chain(printed.filter_map(|child| child.text()));
    let text: Vec<&str> = texts
        .map(str::trim)
        .filter(|text| !text.is_empty())
        .collect();
    text.join("\n").chars().take(KEPT).collect()
}

/// Counts tests.
pub(super) fn count(cases: &[Case]) -> Tally {
    let mut tally = Tally::default();
    for case in cases {
        tally += match case.outcome {
            Outcome::Passed => Tally::PASSED,
            Outcome::Failed(_) => Tally::FAILED,
            Outcome::Skipped => Tally::SKIPPED,
        };
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<?xml version=\"1.0\"?><testsuites><testsuite name=\"x\" tests=\"4\">\
        <testcase classname=\"sdk.test_a\" name=\"test_a[sync]\" file=\"sdk/test_a.py\" time=\"1.5\"/>\
        <testsuite name=\"y\"><testcase classname=\"b\" name=\"b\" time=\"?\">\
        <failure message=\"left\">at \u{1b}[31mline &lt;3&gt;</failure><system-out>said</system-out></testcase></testsuite>\
        <testcase classname=\"c\" name=\"c\"><error>setup</error></testcase>\
        <testcase classname=\"d\" name=\"d\"><skipped message=\"no\"/></testcase>\
        </testsuite></testsuites>";

    #[test]
    fn tests_are_read_with_their_durations_and_failures() {
        let cases = parse(TEXT).unwrap();
        assert_eq!(cases[0].file.as_deref(), Some("sdk/test_a.py"));
        assert_eq!(cases[0].name, "test_a[sync]");
        assert_eq!(cases[0].took, Duration::from_millis(1_500));
        assert_eq!(cases[1].took, Duration::ZERO);
        let failed = Outcome::Failed("left\nat [31mline <3>\nsaid".to_owned());
        assert_eq!(cases[1].outcome, failed);
        assert_eq!(cases[2].outcome, Outcome::Failed("setup".to_owned()));
        let tally = count(&cases);
        assert_eq!(tally.to_string(), "1 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn what_is_no_report_is_an_error() {
        for text in ["", "<html/>", "<testsuites>"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(parse("<testsuites/>").unwrap(), []);
    }
}
