//! The console in a real browser.

use std::{fs, process::Command, time::Duration};

use anyhow::Result;
use serde::Deserialize;

use super::{
    Context,
    junit::{self, Case, Outcome},
    netlink,
    server::TestServer,
    suite::{Suite, literal},
    tally::Tally,
};
use crate::{host::node, load, up::BASE_IMAGE};

/// Name of the suite.
pub(super) const NAME: &str = "console in the browser";
/// Longest time of the suite.
const LIMIT: Duration = Duration::from_secs(60 * 60);
/// The same with long outages.
const FULL_LIMIT: Duration = Duration::from_secs(90 * 60);
/// Length of each outage in milliseconds in a full run. In others it is as long as what is checked
/// during it.
const OUTAGE_MS: &str = "60000";
/// Configuration of the suite.
const CONFIG: &str = "end2end/browser/playwright.config.ts";

/// Between the titles of a test and of the groups that it is in, in reports and in what
/// `--grep` compares with.
const IN_REPORTS: &str = " › ";
const IN_GREP: &str = " ";

/// Runs Playwright against dedicated servers, one for each of its workers.
pub(super) fn run(context: &Context<'_>) -> Tally {
    let changed = context.changed.as_ref();
    let files = changed.map(|changed| changed.browser());
    let all = Selection {
        report: "playwright.xml",
        files: files.unwrap_or_default().into_iter().map(literal).collect(),
        pattern: context.options.filter.as_deref().map(literal),
        is_traced: false,
    };
    all.run(context)
}

/// Which tests run.
struct Selection {
    /// File name of the report.
    report: &'static str,
    /// Regular expressions of files; all files if there is none.
    files: Vec<String>,
    /// Regular expression of the titles.
    pattern: Option<String>,
    /// Whether a trace of each test is recorded.
    is_traced: bool,
}

impl Selection {
    /// A failed test, alone, with a trace.
    fn of(case: &Case) -> Self {
        let title = literal(&case.name.replace(IN_REPORTS, IN_GREP));
        Self {
            report: "playwright-alone.xml",
            files: vec![literal(&case.group)],
            pattern: Some(format!("{title}$")),
            is_traced: true,
        }
    }

    fn run(&self, context: &Context<'_>) -> Tally {
        self.suite(context)
            .unwrap_or_else(|error| context.report_failure("run the browser tests", &error))
    }

    fn suite(&self, context: &Context<'_>) -> Result<Tally> {
        node::packages(context.repo, &context.installer)?;
        let chromium = node::chromium(&context.installer)?;
        let node = node::for_browser_tests(context.repo)?;
        let server = TestServer::start(context, "browser-server")?;
        let report = context.repo.reports().join(self.report);
        let whole = report.with_extension("json");
        for old in [&report, &whole] {
            if old.exists() {
                fs::remove_file(old)?;
            }
        }
        let mut playwright = Command::new(node);
        playwright
            .arg("node_modules/@playwright/test/cli.js")
            .args(["test", "--config", CONFIG, "--project", "chromium"])
            .args(["--reporter", "list,junit,json"])
            .args(&self.files)
            .env("PLAYWRIGHT_JUNIT_OUTPUT_NAME", &report)
            .env("PLAYWRIGHT_JSON_OUTPUT_NAME", &whole)
            .env(load::PATIENCE, server.patience().to_string())
            .env("OSB_URL", server.url())
            .env("OSB_API_KEY", server.api_key())
            .env("OSB_IMAGE", BASE_IMAGE)
            .env("OSB_SERVER", server.program())
            .env("OSB_CONFIG", server.dir().join("config.toml"))
            .env("OSB_CHROMIUM", chromium)
            .current_dir(context.repo.root());
        if self.is_traced {
            playwright.env("OSB_TRACE", "1");
        }
        if context.options.full {
            playwright.env("OSB_OUTAGE_MS", OUTAGE_MS);
        }
        if let Some(pattern) = &self.pattern {
            playwright.args(["--grep", pattern, "--pass-with-no-tests"]);
        }
        let suite = Suite {
            name: NAME,
            labelled: false,
            limit: match context.options.full {
                true => FULL_LIMIT,
                false => LIMIT,
            },
            tests_failed: None,
        };
        eprintln!("==> {NAME}");
        let run = || {
            Ok(suite.run_cases(
                context,
                &mut playwright,
                None,
                || {
                    let mut cases = junit::read(&report)?;
                    cases.extend(outside_of_tests(&fs::read_to_string(&whole)?)?);
                    Ok(cases)
                },
                |case| {
                    let alone = Self::of(case);
                    Box::new(move |context| alone.run(context))
                },
            ))
        };
        // Of a network's changes only Chromium must not hear.
        let mut tally = netlink::without(run)?;
        if let Err(error) = server.stop() {
            tally += context.report_failure("stop the server of the browser tests", &error);
        }
        Ok(tally)
    }
}

/// Failures that belong to no test, such as those of a worker, which only this report has. They are
/// cases of no file, which no repeat finds.
fn outside_of_tests(report: &str) -> Result<Vec<Case>> {
    #[derive(Deserialize)]
    struct Report {
        errors: Vec<Failed>,
    }
    #[derive(Deserialize)]
    struct Failed {
        message: Option<String>,
    }
    let report: Report = serde_json::from_str(report)?;
    let case = |failed: Failed| Case {
        group: String::new(),
        name: "outside of the tests".to_owned(),
        file: None,
        took: Duration::ZERO,
        outcome: Outcome::Failed(failed.message.unwrap_or_default()),
    };
    Ok(report.errors.into_iter().map(case).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_outside_of_the_tests_is_a_failure() {
        let report = r#"{"config": {}, "suites": [], "errors": [{"message": "no end"}, {}]}"#;
        let cases = outside_of_tests(report).unwrap();
        let texts: Vec<_> = cases.iter().map(|case| &case.outcome).collect();
        let failed = |text: &str| Outcome::Failed(text.to_owned());
        assert_eq!(texts, [&failed("no end"), &failed("")]);
        assert!(outside_of_tests(r#"{"errors": []}"#).unwrap().is_empty());
        assert!(outside_of_tests("{}").is_err());
    }

    #[test]
    fn a_failed_test_is_repeated_by_its_file_and_its_titles() {
        let alone = Selection::of(&Case {
            group: "list.spec.ts".to_owned(),
            name: "without script › a (b)".to_owned(),
            file: None,
            took: Duration::ZERO,
            outcome: Outcome::Passed,
        });
        assert_eq!(alone.files, [r"list\.spec\.ts"]);
        assert_eq!(alone.pattern.as_deref(), Some(r"without script a \(b\)$"));
    }
}
