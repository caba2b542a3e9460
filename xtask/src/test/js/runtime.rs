//! The runtimes of the tests in JavaScript: how each of them runs tests, and its reports.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use super::{LIMIT, Selection};
use crate::{
    host::{node, tools::DENO},
    test::{
        Context,
        junit::{Case, Outcome},
        suite::literal,
    },
};

/// File with all tests.
const TESTS: &str = "end2end/js/sdk.test.js";
/// Between the names of a group and of a test in a report of Deno.
const IN_GROUP: &str = " > ";

/// A program that runs JavaScript. Each has a test runner that knows the tests' module, `node:test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runtime {
    Node,
    Bun,
    Deno,
}

impl Runtime {
    /// Node first, because most users have it.
    pub(super) const ALL: [Self; 3] = [Self::Node, Self::Bun, Self::Deno];

    /// Name of the suite.
    pub(super) const fn suite(self) -> &'static str {
        match self {
            Self::Node => "official JavaScript SDK",
            Self::Bun => "official JavaScript SDK on Bun",
            Self::Deno => "official JavaScript SDK on Deno",
        }
    }

    /// Start of the name of a report.
    pub(super) fn report(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Bun => "bun",
            Self::Deno => "deno",
        }
    }

    /// Its program.
    pub(super) fn program(self, context: &Context<'_>) -> Result<PathBuf> {
        match self {
            Self::Node => node::for_browser_tests(context.repo),
            Self::Bun => node::bun(context.repo),
            Self::Deno => DENO.pinned(context.repo, &context.installer),
        }
    }

    /// The command that runs the tests of a selection and writes a report.
    pub(super) fn command(
        self,
        context: &Context<'_>,
        program: &Path,
        selection: &Selection,
        report: &Path,
    ) -> Command {
        let mut tests = Command::new(program);
        tests.current_dir(context.repo.root());
        let pattern = selection.pattern.as_deref();
        match self {
            Self::Node => {
                tests
                    .args(["--test", "--test-reporter=spec"])
                    .arg("--test-reporter-destination=stdout")
                    .arg("--test-reporter=junit")
                    .arg(format!("--test-reporter-destination={}", report.display()))
                    .args(pattern.map(|text| format!("--test-name-pattern={}", literal(text))));
            }
            Self::Bun => {
                tests
                    .arg("test")
                    // A test, or what is before all of a group, may take five seconds otherwise.
                    .arg(format!("--timeout={}", LIMIT.as_millis()))
                    .arg("--reporter=junit")
                    .arg(format!("--reporter-outfile={}", report.display()))
                    // Nothing in the user's folder.
                    .env("BUN_RUNTIME_TRANSPILER_CACHE_PATH", "0")
                    .args(pattern.map(|text| format!("--test-name-pattern={}", literal(text))));
            }
            Self::Deno => {
                let folder = context.repo.path("target/deno");
                let group = selection.group.as_deref();
                tests
                    .args(["test", "--allow-all", "--no-lock", "--no-check"])
                    .arg("--node-modules-dir=manual")
                    .arg(format!("--junit-path={}", report.display()))
                    .args(group.map(|name| format!("--filter=/^{}$/", literal(name))))
                    .env("DENO_DIR", folder)
                    .env("DENO_NO_UPDATE_CHECK", "1")
                    .env("NO_COLOR", "1");
            }
        }
        tests.arg(TESTS);
        tests
    }

    /// The tests of a report that the selection chose.
    pub(super) fn chosen(self, cases: Vec<Case>, selection: &Selection) -> Vec<Case> {
        let contains = |case: &Case| {
            let pattern = selection.pattern.as_deref();
            pattern.is_none_or(|text| case.name.contains(text))
        };
        let mut cases = match self {
            Self::Node | Self::Bun => cases,
            Self::Deno => of_deno(cases),
        };
        // Only tests in Python are known by their files, but Bun writes them as well.
        for case in &mut cases {
            case.file = None;
        }
        match self {
            // They list the others as skipped.
            Self::Node | Self::Bun => {
                cases.retain(|case| case.outcome != Outcome::Skipped || contains(case));
            }
            Self::Deno => cases.retain(contains),
        }
        cases
    }
}

/// The tests of a report of Deno without their groups, which are in it as well.
fn of_deno(cases: Vec<Case>) -> Vec<Case> {
    let split = |name: &str| {
        let (group, test) = name.split_once(IN_GROUP)?;
        Some((group.to_owned(), test.to_owned()))
    };
    let in_groups = cases.iter().filter_map(|case| split(&case.name));
    let groups: BTreeSet<_> = in_groups.map(|(group, _)| group).collect();
    let tests = cases
        .into_iter()
        .filter(|case| !groups.contains(&case.name));
    tests
        .map(|case| match split(&case.name) {
            Some((group, name)) => Case {
                group,
                name,
                ..case
            },
            None => Case {
                group: String::new(),
                ..case
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn case(name: &str, outcome: Outcome) -> Case {
        Case {
            group: "any".to_owned(),
            name: name.to_owned(),
            file: Some("end2end/js/any.js".to_owned()),
            took: Duration::ZERO,
            outcome,
        }
    }

    fn names(runtime: Runtime, cases: &[Case], pattern: Option<&str>) -> Vec<String> {
        let selection = Selection {
            pattern: pattern.map(str::to_owned),
            ..Selection::all(runtime, false)
        };
        let chosen = runtime.chosen(cases.to_vec(), &selection);
        assert!(chosen.iter().all(|case| case.file.is_none()), "{chosen:?}");
        chosen.into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn tests_that_a_pattern_leaves_out_do_not_count_as_skipped() {
        let cases = [
            case("files are read", Outcome::Passed),
            case("files are found", Outcome::Skipped),
            case("metrics", Outcome::Skipped),
        ];
        for runtime in Runtime::ALL {
            assert_eq!(names(runtime, &cases, None).len(), 3, "{runtime:?}");
            let files = names(runtime, &cases, Some("files"));
            assert_eq!(files, ["files are read", "files are found"], "{runtime:?}");
        }
    }

    #[test]
    fn groups_in_a_report_of_deno_are_no_tests() {
        let failed = || Outcome::Failed("1 test step failed.".to_owned());
        let cases = [
            case("direct", failed()),
            case("a key", Outcome::Passed),
            case("direct > files > 1", failed()),
            case("direct > metrics", Outcome::Passed),
            case("left out", Outcome::Skipped),
        ];
        assert_eq!(
            names(Runtime::Deno, &cases, None),
            ["a key", "files > 1", "metrics", "left out"]
        );
        assert_eq!(names(Runtime::Deno, &cases, Some("metric")), ["metrics"]);
        let groups = of_deno(cases.to_vec()).into_iter().map(|case| case.group);
        assert_eq!(groups.collect::<Vec<_>>(), ["", "direct", "direct", ""]);
    }
}
