//! The suites in Python: both generations of the official SDK, the official command, and the contract
//! over plain HTTP.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use super::{Context, Database, server::TestServer, suite::Suite, tally::Tally};
use crate::{
    host::{postgres::Postgres, python},
    interrupt::interrupted,
    step::in_parallel,
};

/// Longest time of one suite, and with the long form of its tests.
const LIMIT: Duration = Duration::from_secs(15 * 60);
const LIMIT_FULL: Duration = Duration::from_secs(90 * 60);

/// Exit status of pytest when no test was selected.
const NO_MATCH: i32 = 5;

/// One run of pytest.
struct Run {
    /// Name in messages.
    name: &'static str,
    /// Virtual environment, `end2end/.venv-<environment>`; also in the name of the report.
    environment: &'static str,
    /// Packages of the environment, below `end2end`.
    requirements: &'static str,
    /// Folder of the tests, below `end2end`.
    folder: &'static str,
    /// Files in the folder; all of them if none is named.
    files: &'static [&'static str],
    /// Added to the environment in the name of the report.
    suffix: &'static str,
}

/// The SDK generations come first, because users depend on them.
const RUNS: [Run; 5] = [
    Run {
        name: "official SDK 1.1",
        environment: "1.1",
        requirements: "sdk/requirements-1.1.txt",
        folder: "sdk",
        files: &[],
        suffix: "",
    },
    Run {
        name: "official SDK 0.1",
        environment: "0.1",
        requirements: "sdk/requirements-0.1.txt",
        folder: "sdk",
        files: &[],
        suffix: "",
    },
    Run {
        name: "contract over HTTP",
        environment: "contract",
        requirements: "contract/requirements.txt",
        folder: "contract",
        files: &[],
        suffix: "",
    },
    Run {
        name: "official command osb 1.1",
        environment: "cli",
        requirements: "cli/requirements.txt",
        folder: "cli",
        files: &[],
        suffix: "",
    },
    // An older release of its generation.
    Run {
        name: "network policies with the official SDK 0.1.13",
        environment: "0.1.13",
        requirements: "sdk/requirements-0.1.13.txt",
        folder: "sdk",
        files: &["test_network_policy.py"],
        suffix: "",
    },
];

/// What depends on the store, for a server on PostgreSQL.
const ON_POSTGRESQL: [Run; 2] = [
    Run {
        name: "official SDK 1.1 on PostgreSQL",
        files: &[
            "test_diagnostics.py",
            "test_errors.py",
            "test_lifecycle.py",
            "test_listing.py",
            "test_pause.py",
        ],
        suffix: "-postgresql",
        ..RUNS[0]
    },
    Run {
        name: "contract over HTTP on PostgreSQL",
        files: &[
            "test_pause.py",
            "test_restart.py",
            "test_surface.py",
            "test_validation.py",
        ],
        suffix: "-postgresql",
        ..RUNS[2]
    },
];

/// Names of the suites.
pub(super) const NAMES: [&str; RUNS.len()] = [
    RUNS[0].name,
    RUNS[1].name,
    RUNS[2].name,
    RUNS[3].name,
    RUNS[4].name,
];

/// How many of [`RUNS`] are about the SDK as such. They take as long as the others together.
const SDK_RUNS: usize = 2;

/// Runs all suites, and a part of them against a server on PostgreSQL; or all suites against the
/// latter.
///
/// Sandboxes start and end most of the time, which leaves processors idle. So one half of the suites
/// runs beside the other, each against its own server.
pub(super) fn run(context: &Context<'_>) -> Tally {
    let (of_sdk, others) = RUNS.split_at(SDK_RUNS);
    match context.options.store {
        Database::Sqlite => {
            let both = in_parallel(
                || Ok(all(context, "python-server-sdk", of_sdk, None)),
                || {
                    let mut tally = all(context, "python-server", others, None);
                    if !interrupted() {
                        tally += on_postgresql(context, &ON_POSTGRESQL);
                    }
                    Ok(tally)
                },
            );
            match both {
                Ok((mut tally, other)) => {
                    tally += other;
                    tally
                }
                Err(error) => context.report_failure("run the suites in Python", &error),
            }
        }
        Database::Postgresql => on_postgresql(context, &RUNS),
    }
}

fn on_postgresql(context: &Context<'_>, runs: &[Run]) -> Tally {
    match Postgres::start(&context.installer) {
        Ok(postgres) => all(
            context,
            "python-server-postgresql",
            runs,
            Some(&postgres.url()),
        ),
        Err(error) => context.report_failure("start PostgreSQL for the SDK tests", &error),
    }
}

/// Runs suites against one server, whose store is in this database, if there is one.
fn all(context: &Context<'_>, name: &str, runs: &[Run], database: Option<&str>) -> Tally {
    let server = match TestServer::start_on(context, name, database) {
        Ok(server) => server,
        Err(error) => return context.report_failure("start a server for the SDK tests", &error),
    };
    let mut tally = Tally::default();
    for run in runs.iter().take_while(|_| !interrupted()) {
        tally += match one(context, &server, run) {
            Ok(counted) => counted,
            Err(error) => context.report_failure(&format!("run the suite {:?}", run.name), &error),
        };
    }
    eprintln!(
        "    log of the server: {}",
        server.dir().join("server.log").display()
    );
    if let Err(error) = server.stop() {
        tally += context.report_failure("stop the server of the SDK tests", &error);
    }
    tally
}

fn one(context: &Context<'_>, server: &TestServer, run: &Run) -> Result<Tally> {
    let folder = context.repo.path("end2end").join(run.folder);
    let requirements = context.repo.path("end2end").join(run.requirements);
    let python = python::environment(
        context.repo,
        &context.installer,
        run.environment,
        &requirements,
    )?;
    let report = context
        .repo
        .reports()
        .join(format!("pytest-{}{}.xml", run.environment, run.suffix));
    // Holds the stores of servers that tests start.
    let scratch = report.with_extension("tmp");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut pytest = Command::new(python);
    pytest
        .args(["-m", "pytest", "--quiet", "-ra", "--color=no"])
        .arg(format!("--junitxml={}", report.display()))
        .arg(format!("--basetemp={}", scratch.display()))
        .current_dir(&folder);
    pytest.args(run.files);
    let filter = context.options.filter.as_ref();
    if let Some(filter) = filter {
        pytest.arg(format!("--containing={filter}"));
    }
    server.describe_to(&mut pytest);
    let suite = Suite {
        name: run.name,
        labelled: true,
        limit: match context.options.full {
            true => LIMIT_FULL,
            false => LIMIT,
        },
    };
    eprintln!("==> {}", run.name);
    let no_match = filter.map(|_| NO_MATCH);
    Ok(suite.run_filtered(&mut pytest, no_match, &mut |_| {}, || read_report(&report)))
}

/// Reads the counts from the `JUnit` report that pytest writes.
fn read_report(report: &Path) -> Result<Tally> {
    let text =
        fs::read_to_string(report).with_context(|| format!("cannot read {}", report.display()))?;
    parse_report(&text).context("the report has no <testsuite> with counts")
}

fn parse_report(text: &str) -> Option<Tally> {
    let suite = text.split_once("<testsuite ")?.1.split_once('>')?.0;
    let count = |name: &str| -> Option<u64> {
        let value = suite.split_once(&format!(" {name}=\""))?.1;
        value.split_once('"')?.0.parse().ok()
    };
    let failed = count("failures")? + count("errors")?;
    let skipped = count("skipped")?;
    Some(Tally {
        passed: count("tests")?.saturating_sub(failed + skipped),
        failed,
        skipped,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_the_suite_element() {
        let text = r#"<?xml version="1.0"?><testsuites name="pytest tests"><testsuite name="pytest" errors="1" failures="2" skipped="3" tests="10" time="0.1"><testcase name="a"/></testsuite></testsuites>"#;
        assert_eq!(
            parse_report(text),
            Some(Tally {
                passed: 4,
                failed: 3,
                skipped: 3
            })
        );
        assert_eq!(parse_report("<testsuites/>"), None);
    }
}
