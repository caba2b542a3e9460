//! The Rust tests of every crate but the browser's, each in a process of its own.

use std::{
    fs,
    io::ErrorKind,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use anyhow::{Context as _, Error, Result, bail};

use super::{
    Context,
    changed::Changed,
    junit::{self, Case},
    suite::Suite,
    tally::Tally,
};
use crate::{
    host::{GVISOR, OF_TESTS, postgres::Postgres, tools::NEXTEST},
    load,
    process::{self, Ended, describe, run_within, watch},
    progress::Line,
    repo::Repo,
    step::{notice, step},
};

/// Longest time to build the tests from scratch, and longest time to run them.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Variable that selects the long form of tests that have one.
const FULL: &str = "OPENSANDBOX_TEST_FULL";

/// Profiles of the test runner, in `.config/nextest.toml`; the second one is for the long form of tests.
const PROFILE: &str = "ci";
const PROFILE_FULL: &str = "full";
/// Exit status of the test runner when tests failed.
const TESTS_FAILED: i32 = 100;

/// Tests that need the engine.
const ON_DOCKER: &str = "binary(=docker)";
/// Tests of servers that must pass on every store, without those that are only about SQLite's files.
const ON_ANY_STORE: &str = "(binary(=server) + binary(=kills) + (binary(=alone) & test(/^clock::/))) - test(/(^|::)sqlite_/)";

/// Variable with the URL of a PostgreSQL for tests.
const POSTGRES: &str = "OPENSANDBOX_TEST_POSTGRESQL";
/// Variable that selects the database of test servers.
const STORE: &str = "OPENSANDBOX_TEST_STORE";

/// Runs all tests, then those of servers again on PostgreSQL. Without an engine, as the error in
/// `docker` says, it leaves out the tests that need one.
pub(super) fn run(context: &Context<'_>, docker: Result<(), &Error>) -> Tally {
    let built = build(context.repo).and_then(|()| NEXTEST.ensure(context.repo, &context.installer));
    let program = match built {
        Ok(program) => program,
        Err(error) => {
            notice(&format!("FAILED: {error:#}"));
            return Tally::FAILED;
        }
    };
    let mut tally = Tally::default();
    let postgres = step("start PostgreSQL for the tests", || {
        Postgres::start(&context.installer)
    });
    if let Err(error) = &postgres {
        tally += context.report_failure("test PostgreSQL", error);
    }
    let postgres = postgres.ok();
    let url = postgres.as_ref().map(Postgres::url);
    let programs = step("provide programs for the tests", || {
        OF_TESTS
            .into_iter()
            .try_for_each(|(program, package)| context.installer.program(program, &[package]))
    });
    if let Err(error) = &programs {
        tally += context.report_failure("provide programs", error);
    }
    let gvisor = step("provide gVisor for the tests", || {
        context.installer.program(GVISOR, &[GVISOR])
    });
    if let Err(error) = &gvisor {
        // Its test leaves itself out: where there is no package, there is nothing to repair.
        notice(&format!("SKIPPED: could not test gVisor: {error:#}"));
        tally += Tally::SKIPPED;
    }
    let mut runner = Runner {
        name: "Rust tests",
        program,
        database: url,
        on_database: false,
        tests: "all()".to_owned(),
    };
    if let Err(why) = docker {
        match on_docker(context, &runner) {
            Ok(names) => {
                runner.tests = format!("all() - {ON_DOCKER}");
                tally += left_out(context, &names, why);
            }
            // The test run below fails in the same way and is counted.
            Err(error) => notice(&format!("cannot list the tests on Docker: {error:#}")),
        }
    }
    context.wait_until_quiet(runner.name);
    tally += thread::scope(|scope| {
        let is_whole = context.changed.is_none();
        let examples = is_whole.then(|| scope.spawn(|| documented(context)));
        let tally = runner.run(context);
        let examples = examples.map(|it| it.join().unwrap_or_else(|panic| resume_unwind(panic)));
        tally + examples.unwrap_or_default()
    });
    if runner.database.is_some() {
        let again = Runner {
            name: "Rust tests on PostgreSQL",
            on_database: true,
            tests: ON_ANY_STORE.to_owned(),
            ..runner
        };
        context.wait_until_quiet(again.name);
        tally += again.run(context);
    }
    tally
}

/// A selection of tests, and where their servers keep what they store.
#[derive(Clone)]
struct Runner {
    /// Name in messages.
    name: &'static str,
    /// The test runner.
    program: PathBuf,
    /// URL of a PostgreSQL for tests.
    database: Option<String>,
    /// Whether test servers use it.
    on_database: bool,
    /// Which tests, as a filter of the test runner.
    tests: String,
}

impl Runner {
    fn run(&self, context: &Context<'_>) -> Tally {
        let mut command = self.command(context, "run");
        let profile = match context.options.full {
            true => PROFILE_FULL,
            false => PROFILE,
        };
        command.args(["--profile", profile]);
        command.env(load::PATIENCE, load::patience(self.name).to_string());
        let is_part = context.options.filter.is_some() || context.changed.is_some();
        if is_part {
            command.args(["--no-tests", "pass"]);
        }
        let tests = match context.changed.as_ref().and_then(Changed::rust) {
            None => self.tests.clone(),
            Some(changed) => format!("({}) & ({changed})", self.tests),
        };
        command.args(["--filterset", &tests]);
        command.args(context.options.filter.as_deref());
        let suite = Suite {
            name: self.name,
            labelled: true,
            limit: LIMIT,
            tests_failed: Some(TESTS_FAILED),
        };
        let report = context.repo.path("target/nextest").join(profile);
        let report = report.join("junit.xml");
        if let Err(error) = remove(&report) {
            return context.report_failure(&format!("run {}", self.name), &error);
        }
        eprintln!("==> {}", self.name);
        suite.run_cases(
            context,
            &mut command,
            None,
            // A run without tests writes no report.
            || match is_part && !report.exists() {
                true => Ok(Vec::new()),
                false => junit::read(&report),
            },
            |case| {
                let alone = self.only(case);
                Box::new(move |context| alone.again(context))
            },
        )
    }

    /// The same with a database of its own: that of the run has ended.
    fn again(&self, context: &Context<'_>) -> Tally {
        if self.database.is_none() {
            return self.run(context);
        }
        let postgres = match Postgres::start(&context.installer) {
            Ok(postgres) => postgres,
            Err(error) => return context.report_failure("test PostgreSQL", &error),
        };
        let again = Self {
            database: Some(postgres.url()),
            ..self.clone()
        };
        again.run(context)
    }

    /// The same with a single test.
    fn only(&self, case: &Case) -> Self {
        Self {
            tests: format!("binary_id(={}) & test(={})", case.group, case.name),
            ..self.clone()
        }
    }

    fn command(&self, context: &Context<'_>, action: &str) -> Command {
        let runner = Command::new(&self.program);
        let mut command = process::without_xtask_variables(runner);
        command
            .args(["nextest", action])
            .env(
                "OPENSANDBOX_EXECD_PATH",
                context.repo.dist_for_tests().join("execd"),
            )
            .env("OPENSANDBOX_TEST_RUN", &context.run)
            .current_dir(context.repo.root());
        if context.options.full {
            command.env(FULL, "1");
        }
        if let Some(url) = &self.database {
            command.env(POSTGRES, url);
        }
        if self.on_database {
            command.env(STORE, "postgresql");
        }
        command
    }
}

/// Removes the report of an earlier run, if there is one.
fn remove(report: &Path) -> Result<()> {
    match fs::remove_file(report) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", report.display()))
        }
        _ => Ok(()),
    }
}

/// Runs the examples in the documentation of the crates that have some.
fn documented(context: &Context<'_>) -> Tally {
    let mut cargo = cargo_test(context.repo);
    cargo.args(["--doc", "--no-fail-fast", "--"]);
    cargo.args(context.options.filter.as_deref());
    let mut counted = Tally::default();
    let mut add = |line: &str| counted += parse_summary(line).unwrap_or_default();
    let suite = Suite {
        name: "examples in the documentation",
        labelled: true,
        limit: LIMIT,
        tests_failed: None,
    };
    let mut around = suite.run(&mut cargo, &mut add, || Ok(Tally::default()));
    if counted.failed > 0 {
        // The exit status only repeats failures that the summary lines counted.
        around = Tally::default();
    }
    counted + around
}

/// Builds the tests.
pub(super) fn build(repo: &Repo) -> Result<()> {
    step("build the Rust tests", || {
        run_within(LIMIT, cargo_test(repo).arg("--no-run"))
    })
}

fn cargo_test(repo: &Repo) -> Command {
    let mut cargo = process::cargo();
    cargo.arg("test").current_dir(repo.root());
    cargo
}

/// Names of the tests that need the engine.
fn on_docker(context: &Context<'_>, runner: &Runner) -> Result<Vec<String>> {
    let mut list = runner.command(context, "list");
    list.args(["--filterset", ON_DOCKER, "--message-format", "oneline"]);
    let mut names = Vec::new();
    let ended = watch(&mut list, LIMIT, &mut |line| match line {
        Line::Out(text) => names.extend(parse_listed(text)),
        Line::Err(text) => eprintln!("{text}"),
        Line::Transient(_) | Line::Idle => {}
    })?;
    match ended {
        Ended::Exited(status) if status.success() && !names.is_empty() => Ok(names),
        Ended::Exited(status) => bail!("{} named none and ended with {status}", describe(&list)),
        Ended::Killed => bail!("{} hung", describe(&list)),
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

/// Parses the name in a line such as `osb-testkit::docker module::name`.
fn parse_listed(line: &str) -> Option<String> {
    let (_program, name) = line.trim().split_once(' ')?;
    Some(name.to_owned())
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

    /// A new target is added to [`ON_ANY_STORE`] or is known to store nothing.
    #[test]
    fn every_target_of_the_testkit_runs_on_every_store_or_needs_none() {
        let repo = Repo::find().unwrap();
        let targets = fs::read_dir(repo.path("crates/testkit/tests")).unwrap();
        let names = targets.map(|it| it.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        assert_eq!(names, ["alone", "docker", "kills", "server"]);
        for on_any in ["server", "kills"] {
            assert!(ON_ANY_STORE.contains(&format!("binary(={on_any})")));
        }
    }

    #[test]
    fn without_an_engine_docker_tests_are_skipped_and_counted() {
        let names: Vec<_> = [
            "osb-testkit::docker a_restart",
            "osb-testkit::docker a::delete",
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
