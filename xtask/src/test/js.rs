//! The official JavaScript SDK, driven by Node's own test runner.

use std::{fs, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{
    Context,
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
/// Suffix of tests that the filter leaves out; Node.js 20 counts them as skipped.
const NO_MATCH: &str = "# SKIP test name does not match pattern";

/// Runs the tests against a dedicated server.
pub(super) fn run(context: &Context<'_>) -> Tally {
    match suite(context) {
        Ok(tally) => tally,
        Err(error) => context.report_failure("run the JavaScript tests", &error),
    }
}

fn suite(context: &Context<'_>) -> Result<Tally> {
    node::packages(context.repo, &context.installer)?;
    let node = node::for_browser_tests(context.repo)?;
    let server = TestServer::start(context, "js-server")?;
    let report = context.repo.reports().join("node.tap");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut tests = Command::new(node);
    tests
        .args(["--test", "--test-reporter=spec"])
        .arg("--test-reporter-destination=stdout")
        .arg("--test-reporter=tap")
        .arg(format!("--test-reporter-destination={}", report.display()))
        .current_dir(context.repo.root());
    server.describe_to(&mut tests);
    if let Some(filter) = &context.options.filter {
        tests.arg(format!("--test-name-pattern={}", literal(filter)));
    }
    tests.arg(format!("{FOLDER}/sdk.test.js"));
    let suite = Suite {
        name: NAME,
        labelled: false,
        limit: LIMIT,
    };
    eprintln!("==> {NAME}");
    let tally = suite.run(&mut tests, &mut |_| {}, || {
        let text = fs::read_to_string(&report)
            .with_context(|| format!("cannot read {}", report.display()))?;
        parse_report(&text).context("the report has no counts")
    });
    server.stop()?;
    Ok(tally)
}

/// Parses the counts at the end of a TAP report.
fn parse_report(text: &str) -> Option<Tally> {
    let count = |name: &str| -> Option<u64> {
        let line = text
            .lines()
            .rev()
            .find_map(|line| line.strip_prefix(name))?;
        line.trim().parse().ok()
    };
    let left_out = text.lines().filter(|line| line.ends_with(NO_MATCH)).count() as u64;
    let skipped = count("# skipped ")? + count("# todo ")?;
    Some(Tally {
        passed: count("# pass ")?,
        failed: count("# fail ")? + count("# cancelled ")?,
        skipped: skipped.saturating_sub(left_out),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_come_from_the_end_of_the_report() {
        let text = "TAP version 13\n# pass no\nok 1 - a\n1..2\n# tests 9\n# suites 2\n# pass 5\n# fail 1\n\
                    # cancelled 1\n# skipped 2\n# todo 0\n# duration_ms 3\n";
        let want = Tally {
            passed: 5,
            failed: 2,
            skipped: 2,
        };
        assert_eq!(parse_report(text), Some(want));
        let left_out = text.replace("ok 1 - a", &format!("ok 1 - a {NO_MATCH}"));
        assert_eq!(parse_report(&left_out).map(|tally| tally.skipped), Some(1));
        assert_eq!(parse_report("TAP version 13\n# pass 1\n"), None);
    }
}
