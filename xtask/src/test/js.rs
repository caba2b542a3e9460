//! The official JavaScript SDK, driven by Node's own test runner.

use std::{fs, process::Command, time::Duration};

use anyhow::Result;

use super::{
    Context,
    junit::{self, Case, Outcome},
    server::TestServer,
    suite::{Suite, literal},
    tally::Tally,
};
use crate::host::node;

/// Name of the suite.
pub(super) const NAME: &str = "official JavaScript SDK";
/// Longest time of the suite.
const LIMIT: Duration = Duration::from_secs(15 * 60);
/// Folder of the suite.
const FOLDER: &str = "end2end/js";

/// Runs the tests, unless they run beside the suites in Python.
pub(super) fn run(context: &Context<'_>) -> Tally {
    match context.has_lanes() {
        true => Tally::default(),
        false => tests(context, false),
    }
}

/// Runs the tests against a dedicated server. `labelled` says whether another suite runs beside them.
pub(super) fn tests(context: &Context<'_>, labelled: bool) -> Tally {
    let all = Selection {
        report: "node.xml",
        pattern: context.options.filter.clone(),
        labelled,
    };
    all.run(context)
}

/// Which tests run.
struct Selection {
    /// File name of the report.
    report: &'static str,
    /// Part of the names of the tests; all of them if there is none.
    pattern: Option<String>,
    labelled: bool,
}

impl Selection {
    fn run(&self, context: &Context<'_>) -> Tally {
        self.suite(context)
            .unwrap_or_else(|error| context.report_failure("run the JavaScript tests", &error))
    }

    fn suite(&self, context: &Context<'_>) -> Result<Tally> {
        node::packages(context.repo, &context.installer)?;
        let node = node::for_browser_tests(context.repo)?;
        let server = TestServer::start(context, "js-server")?;
        let report = context.repo.reports().join(self.report);
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut tests = Command::new(node);
        tests
            .args(["--test", "--test-reporter=spec"])
            .arg("--test-reporter-destination=stdout")
            .arg("--test-reporter=junit")
            .arg(format!("--test-reporter-destination={}", report.display()))
            .current_dir(context.repo.root());
        server.describe_to(&mut tests);
        if let Some(pattern) = &self.pattern {
            tests.arg(format!("--test-name-pattern={}", literal(pattern)));
        }
        tests.arg(format!("{FOLDER}/sdk.test.js"));
        let suite = Suite {
            name: NAME,
            labelled: self.labelled,
            limit: LIMIT,
            tests_failed: None,
        };
        eprintln!("==> {NAME}");
        let mut tally = suite.run_cases(
            context,
            &mut tests,
            None,
            || Ok(selected(junit::read(&report)?, self.pattern.as_deref())),
            |case| {
                let alone = Self {
                    report: "node-alone.xml",
                    pattern: Some(case.name.clone()),
                    labelled: false,
                };
                Box::new(move |context| alone.run(context))
            },
        );
        if let Err(error) = server.stop() {
            tally += context.report_failure("stop the server of the JavaScript tests", &error);
        }
        Ok(tally)
    }
}

/// The tests that the pattern selects. Node.js 20 lists the others as skipped.
fn selected(mut cases: Vec<Case>, pattern: Option<&str>) -> Vec<Case> {
    cases.retain(|case| {
        case.outcome != Outcome::Skipped || pattern.is_none_or(|text| case.name.contains(text))
    });
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_a_pattern_leaves_out_do_not_count_as_skipped() {
        let case = |name: &str, outcome| Case {
            group: "test".to_owned(),
            name: name.to_owned(),
            file: None,
            took: Duration::ZERO,
            outcome,
        };
        let cases = || {
            vec![
                case("files are read", Outcome::Passed),
                case("files are found", Outcome::Skipped),
                case("metrics", Outcome::Skipped),
            ]
        };
        let names = |pattern| -> Vec<String> {
            let kept = selected(cases(), pattern).into_iter();
            kept.map(|case| case.name).collect()
        };
        assert_eq!(names(None).len(), 3);
        assert_eq!(names(Some("files")), ["files are read", "files are found"]);
    }
}
