//! The Rust tests of every crate but the browser's.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Error, Result, bail};

use super::{Context, suite::Suite, tally::Tally};
use crate::{
    build,
    host::{GVISOR, REDIS, postgres::Postgres},
    process::{self, Ended, describe, run_ignoring_failure, run_within, watch},
    progress::Line,
    repo::Repo,
    step::{notice, step},
};

/// Longest time to build the tests from scratch, and longest time to run them.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Variable that selects the long form of tests that have one.
const FULL: &str = "OPENSANDBOX_TEST_FULL";

/// Name of the integration test target with the tests that need the engine, in every crate.
const ON_DOCKER: &str = "docker";

/// Variable with the URL of a PostgreSQL for tests.
const POSTGRES: &str = "OPENSANDBOX_TEST_POSTGRESQL";
/// Variable that selects the database of test servers.
const STORE: &str = "OPENSANDBOX_TEST_STORE";
/// Folder with a test target per file or folder, of servers over the simulated runtime.
const SERVER_TESTS: &str = "crates/testkit/tests";
/// Those of them that are not run again on PostgreSQL: they need the engine, or their servers store
/// nothing that they look at.
const ON_ONE_STORE: [&str; 6] = [
    ON_DOCKER,
    "edge",
    "neighbours",
    "openapi",
    "overload",
    "telemetry",
];
/// Prefix of the names of tests that are only about SQLite's files.
const ON_FILES: &str = "sqlite_";

/// Runs `cargo test`, then the servers' tests again on PostgreSQL. Without an engine, as the error in `docker` says, it leaves out the tests that
/// need one.
pub(super) fn run(context: &Context<'_>, docker: Result<(), &Error>) -> Tally {
    let built = step("build the Rust tests", || {
        run_within(LIMIT, cargo_test(context).arg("--no-run"))
    });
    if let Err(error) = built {
        notice(&format!("FAILED: {error:#}"));
        return Tally::FAILED;
    }
    let mut tally = Tally::default();
    let postgres = step("start PostgreSQL for the tests", || {
        Postgres::start(&context.installer)
    });
    if let Err(error) = &postgres {
        tally += context.report_failure("test PostgreSQL", error);
    }
    let postgres = postgres.ok();
    let redis = step("provide Redis for the tests", || {
        context.installer.program(REDIS, &[REDIS])
    });
    if let Err(error) = &redis {
        tally += context.report_failure("test Redis", error);
    }
    let gvisor = step("provide gVisor for the tests", || {
        context.installer.program(GVISOR, &[GVISOR])
    });
    if let Err(error) = &gvisor {
        // Its test leaves itself out: where there is no package, there is nothing to repair.
        notice(&format!("SKIPPED: could not test gVisor: {error:#}"));
        tally += Tally::SKIPPED;
    }
    let filter = context.options.filter.as_deref();
    let mut cargo = cargo_test(context);
    if let Some(postgres) = &postgres {
        cargo.env(POSTGRES, postgres.url());
    }
    cargo.args(["--no-fail-fast", "--"]).args(filter);
    if let Err(why) = docker {
        match on_docker(context) {
            Ok(names) => {
                for name in &names {
                    cargo.args(["--skip", name]);
                }
                tally += left_out(context, &names, why);
            }
            // The test run below fails in the same way and is counted.
            Err(error) => notice(&format!("cannot list the tests on Docker: {error:#}")),
        }
    }
    tally += run_and_count(&mut cargo, "cargo test");
    if let Some(postgres) = &postgres {
        let mut cargo = cargo_test(context);
        cargo.env(POSTGRES, postgres.url()).env(STORE, "postgresql");
        // Without a package: one alone would be built with other features of its dependencies.
        cargo.arg("--no-fail-fast");
        for target in on_any_store(context.repo.root()) {
            cargo.args(["--test", &target]);
        }
        cargo.args(["--", "--skip", ON_FILES]).args(filter);
        tally += run_and_count(&mut cargo, "cargo test on PostgreSQL");
    }
    tally
}

/// Builds what the Rust tests need but the server, while the site is made that the server embeds.
pub(crate) fn build_dependencies(repo: &Repo) -> Result<()> {
    if repo.site().join("pkg").exists() {
        return Ok(());
    }
    step("build the dependencies of the Rust tests", || {
        let mut cargo = process::cargo();
        cargo
            // As `test --no-run`, which cannot go on after a failure.
            .args(["build", "--tests", "--keep-going"])
            .env(build::ONLY_DEPENDENCIES, "1")
            .current_dir(repo.root());
        run_ignoring_failure(&mut cargo)
    })
}

/// Test targets that must pass on every store: a new one is among them.
fn on_any_store(root: &Path) -> Vec<String> {
    let files = fs::read_dir(root.join(SERVER_TESTS));
    let mut targets: Vec<_> = files
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|file| file.path().file_stem()?.to_str().map(str::to_owned))
        .filter(|target| !ON_ONE_STORE.contains(&target.as_str()))
        .collect();
    targets.sort();
    targets
}

/// Runs `cargo test` and adds up its summary lines.
fn run_and_count(cargo: &mut Command, name: &str) -> Tally {
    let mut counted = Tally::default();
    let mut add = |line: &str| counted += parse_summary(line).unwrap_or_default();
    let suite = Suite {
        name,
        labelled: false,
        limit: LIMIT,
    };
    let mut around = suite.run(cargo, &mut add, || Ok(Tally::default()));
    if counted.failed > 0 {
        // The exit status only repeats failures that the summary lines counted.
        around = Tally::default();
    }
    counted += around;
    counted
}

fn cargo_test(context: &Context<'_>) -> Command {
    let mut cargo = process::cargo();
    cargo
        .arg("test")
        .env(
            "OPENSANDBOX_EXECD_PATH",
            context.repo.dist_for_tests().join("execd"),
        )
        .env("OPENSANDBOX_TEST_RUN", &context.run)
        .current_dir(context.repo.root());
    if context.options.full {
        cargo.env(FULL, "1");
    }
    cargo
}

/// Names of the tests that need the engine.
fn on_docker(context: &Context<'_>) -> Result<Vec<String>> {
    let mut cargo = cargo_test(context);
    cargo.args(["--test", ON_DOCKER, "--", "--list", "--format", "terse"]);
    let mut names = Vec::new();
    let ended = watch(&mut cargo, LIMIT, &mut |line| match line {
        Line::Out(text) => names.extend(parse_listed(text)),
        Line::Err(text) => eprintln!("{text}"),
        Line::Transient(_) | Line::Idle => {}
    })?;
    match ended {
        Ended::Exited(status) if status.success() && !names.is_empty() => Ok(names),
        Ended::Exited(status) => bail!("{} named none and ended with {status}", describe(&cargo)),
        Ended::Killed => bail!("{} hung", describe(&cargo)),
    }
}

/// Counts the tests that are left out: each as skipped, or all as one failure where the engine
/// should have been installed.
fn left_out(context: &Context<'_>, names: &[String], why: &Error) -> Tally {
    let filter = context.options.filter.as_deref().unwrap_or_default();
    let count = names.iter().filter(|name| name.contains(filter)).count();
    if count == 0 {
        return Tally::default();
    }
    let one = context.report_failure(&format!("run {count} Rust tests on Docker"), why);
    Tally {
        skipped: one.skipped * count as u64,
        ..one
    }
}

/// Parses the name in a line of a terse list, such as `module::name: test`.
fn parse_listed(line: &str) -> Option<String> {
    Some(line.strip_suffix(": test")?.to_owned())
}

/// Parses a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
fn parse_summary(line: &str) -> Option<Tally> {
    let counts = line.strip_prefix("test result: ")?.split_once(". ")?.1;
    let count = |what: &str| -> Option<u64> {
        counts
            .split("; ")
            .find_map(|part| part.strip_suffix(what)?.trim().parse().ok())
    };
    Some(Tally {
        passed: count("passed")?,
        failed: count("failed")?,
        skipped: count("ignored")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{repo::Repo, test::Options};

    #[test]
    fn the_servers_tests_run_on_every_store() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let targets = on_any_store(&root);
        for target in ["access", "kills", "tenants", "webhooks"] {
            assert!(targets.iter().any(|it| it == target), "{targets:?}");
        }
        for target in ON_ONE_STORE {
            assert!(!targets.iter().any(|it| it == target), "{targets:?}");
            let path = root.join(SERVER_TESTS).join(target);
            assert!(
                path.exists() || path.with_extension("rs").exists(),
                "{target}"
            );
        }
    }

    #[test]
    fn without_an_engine_docker_tests_are_skipped_and_counted() {
        let names: Vec<_> = [
            "a_restart: test",
            "a::delete: test",
            "3 tests, 0 benchmarks",
            "",
        ]
        .into_iter()
        .filter_map(parse_listed)
        .collect();
        assert_eq!(names, ["a_restart", "a::delete"]);
        let counted = |filter: Option<&str>| {
            let options = Options {
                no_install: true,
                filter: filter.map(str::to_owned),
                ..Options::default()
            };
            let repo = Repo::find().unwrap();
            let context = Context::new(&repo, &options).unwrap();
            left_out(&context, &names, &anyhow::anyhow!("no engine"))
        };
        let skipped = |skipped| Tally {
            skipped,
            ..Tally::default()
        };
        assert_eq!(counted(None), skipped(2));
        assert_eq!(counted(Some("delete")), skipped(1));
        assert_eq!(counted(Some("other")), skipped(0));
    }

    #[test]
    fn results_are_parsed_from_summary_lines() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        assert_eq!(
            parse_summary(line),
            Some(Tally {
                passed: 12,
                failed: 2,
                skipped: 1
            })
        );
        let line = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(parse_summary(line), Some(Tally::default()));
        assert_eq!(parse_summary("test a::b ... ok"), None);
    }
}
