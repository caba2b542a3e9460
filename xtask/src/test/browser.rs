//! The console in a real browser.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::{
    Context,
    server::TestServer,
    suite::{Suite, literal},
    tally::Tally,
};
use crate::{host::node, up::BASE_IMAGE};

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

/// Runs Playwright against a dedicated server.
pub(super) fn run(context: &Context<'_>) -> Tally {
    match suite(context) {
        Ok(tally) => tally,
        Err(error) => context.report_failure("run the browser tests", &error),
    }
}

fn suite(context: &Context<'_>) -> Result<Tally> {
    node::packages(context.repo, &context.installer)?;
    let chromium = node::chromium(&context.installer)?;
    let node = node::for_browser_tests(context.repo)?;
    let server = TestServer::start(context, "browser-server")?;
    let report = context.repo.reports().join("playwright.json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut playwright = Command::new(node);
    playwright
        .arg("node_modules/@playwright/test/cli.js")
        .args(["test", "--config", CONFIG, "--project", "chromium"])
        .args(["--reporter", "list,json"])
        .env("PLAYWRIGHT_JSON_OUTPUT_NAME", &report)
        .env("OSB_URL", server.url())
        .env("OSB_API_KEY", server.api_key())
        .env("OSB_IMAGE", BASE_IMAGE)
        .env("OSB_SERVER", server.program())
        .env("OSB_CHROMIUM", chromium)
        .current_dir(context.repo.root());
    if context.options.full {
        playwright.env("OSB_OUTAGE_MS", OUTAGE_MS);
    }
    if let Some(filter) = &context.options.filter {
        playwright.args(["--grep", &literal(filter), "--pass-with-no-tests"]);
    }
    let suite = Suite {
        name: NAME,
        labelled: false,
        limit: match context.options.full {
            true => FULL_LIMIT,
            false => LIMIT,
        },
    };
    eprintln!("==> {NAME}");
    let tally = suite.run(&mut playwright, &mut |_| {}, || read_report(&report));
    server.stop()?;
    Ok(tally)
}

#[derive(Deserialize)]
struct Report {
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    expected: u64,
    unexpected: u64,
    flaky: u64,
    skipped: u64,
}

fn read_report(report: &Path) -> Result<Tally> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    let Report { stats } = serde_json::from_str(&text).context("not Playwright's report")?;
    Ok(stats.into())
}

impl From<Stats> for Tally {
    /// Counts a flaky test as failed: it hides a race.
    fn from(stats: Stats) -> Self {
        Self {
            passed: stats.expected,
            failed: stats.unexpected + stats.flaky,
            skipped: stats.skipped,
        }
    }
}
