//! `test`: runs every suite and adds up their counts.

mod browser;
mod cargo;
mod fuzz;
mod js;
mod leftovers;
mod package;
mod python;
mod server;
mod suite;
pub(crate) mod tally;

use std::{io::Write, process::ExitCode};

use anyhow::{Error, Result};
use clap::{Args, ValueEnum};

use self::{leftovers::Baseline, tally::Tally};
use crate::{
    build::{self, Profile},
    host::{self, Installer, engine},
    interrupt::{self, interrupted},
    repo::Repo,
    step::notice,
    up::{ensure_base_image, ensure_egress_image, random_key},
};

/// Options of `test`.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Also run the long form of some tests, and each fuzz target for ten minutes
    #[arg(long)]
    full: bool,
    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run only these suites; may be repeated
    #[arg(long = "suite", value_enum, value_name = "SUITE")]
    suites: Vec<Chosen>,
    /// Database of the server that the suites in Python test completely
    #[arg(long, value_enum, default_value_t)]
    store: Database,
    /// Print what is missing on this machine instead of installing it
    #[arg(long)]
    no_install: bool,
}

/// A suite that can be run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Chosen {
    /// Tests of the crates.
    Rust,
    /// Checks of the packages.
    Packages,
    /// Official SDKs in Python, and the contract over HTTP.
    Python,
    /// The official SDK in JavaScript.
    Javascript,
    /// The console in a browser.
    Browser,
}

/// Where a server keeps its store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Database {
    /// In a file; a part of the suites runs on PostgreSQL as well.
    #[default]
    Sqlite,
    /// In a database that is started for the tests.
    Postgresql,
}

impl Options {
    /// Whether missing packages may be installed.
    pub(crate) fn may_install(&self) -> bool {
        !self.no_install
    }

    /// Whether a suite is run.
    fn includes(&self, suite: Chosen) -> bool {
        self.suites.is_empty() || self.suites.contains(&suite)
    }
}

/// State that the suites share.
struct Context<'a> {
    repo: &'a Repo,
    installer: Installer,
    options: &'a Options,
    /// Unique name of this run.
    run: String,
}

impl<'a> Context<'a> {
    fn new(repo: &'a Repo, options: &'a Options) -> Result<Self> {
        Ok(Self {
            repo,
            installer: Installer::new(options.may_install()),
            options,
            run: random_key()?,
        })
    }

    /// Reports that a prerequisite of a suite is missing. That is a failure where xtask may install
    /// packages; elsewhere the suite counts as skipped.
    fn report_failure(&self, what: &str, error: &Error) -> Tally {
        if self.installer.may_install() {
            notice(&format!("FAILED: could not {what}: {error:#}"));
            Tally::FAILED
        } else {
            notice(&format!("SKIPPED: could not {what}: {error:#}"));
            Tally::SKIPPED
        }
    }
}

pub(crate) use cargo::build_dependencies;

/// Runs a suite that needs the server and an engine.
type Run = fn(&Context<'_>) -> Tally;

/// Runs the suites and prints the count as the last line.
pub(crate) fn test(repo: &Repo, options: &Options) -> ExitCode {
    conclude(suites(repo, options))
}

/// Prints the last line and turns the count into an exit code.
pub(crate) fn conclude(tally: Tally) -> ExitCode {
    println!("{tally}");
    // A closed pipe is no failure of the tests.
    let _ = std::io::stdout().flush();
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Runs all suites, also after one failed.
pub(crate) fn suites(repo: &Repo, options: &Options) -> Tally {
    if let Err(error) = interrupt::listen() {
        notice(&format!("Ctrl-C will not clean up: {error:#}"));
    }
    match Context::new(repo, options) {
        Ok(context) => all(&context),
        Err(error) => {
            notice(&format!("FAILED: the run has no name: {error:#}"));
            Tally::FAILED
        }
    }
}

fn all(context: &Context<'_>) -> Tally {
    let Context {
        repo,
        installer,
        options,
        run,
    } = context;
    let missing = host::missing_for_build(installer).into_iter();
    if let Err(error) = host::require_all(missing.chain(host::missing_for_tests(installer))) {
        notice(&format!("{error:#}"));
    }
    // The engine first: Rust tests use it as well.
    let engine = engine::ensure(installer).and_then(|()| Baseline::record(run, &repo.reports()));
    let built = build::all(repo, installer, Profile::Dev, &repo.dist_for_tests());
    let images = || {
        ensure_base_image(repo, installer)?;
        match &built {
            Ok(()) => ensure_egress_image(repo, installer, &repo.dist_for_tests()),
            // It is reported below.
            Err(_) => Ok(()),
        }
    };
    let image = match &engine {
        Ok(_) => images(),
        Err(_) => Ok(()),
    };

    let docker = match (&engine, &image) {
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(_), Ok(())) => Ok(()),
    };

    let mut tally = Tally::default();
    if options.includes(Chosen::Rust) && !interrupted() {
        tally += cargo::run(context, docker);
    }
    if built.is_ok() && options.includes(Chosen::Packages) && !interrupted() {
        tally += package::run(context, docker);
    }
    match (built, docker) {
        (Ok(()), Ok(())) => {
            let suites: [(Chosen, Run); 3] = [
                (Chosen::Python, python::run),
                (Chosen::Javascript, js::run),
                (Chosen::Browser, browser::run),
            ];
            for (suite, run) in suites {
                if options.includes(suite) && !interrupted() {
                    tally += run(context);
                }
            }
        }
        (Err(error), _) => {
            notice(&format!("FAILED: the build: {error:#}"));
            tally += Tally::FAILED;
        }
        (Ok(()), Err(error)) => tally += without_docker(context, error),
    }
    if options.full && !interrupted() {
        tally += fuzz::run_all(context);
    }
    if let Some(filter) = &options.filter
        && tally == Tally::default()
        && !interrupted()
    {
        notice(&format!("FAILED: no test matches {filter:?}"));
        tally += Tally::FAILED;
    }
    if let Ok(baseline) = &engine {
        tally += check_leftovers(context, baseline);
    }
    if interrupted() {
        notice("FAILED: interrupted");
        tally += Tally::FAILED;
    }
    tally
}

/// Reports the suites that need a real engine as not run.
fn without_docker(context: &Context<'_>, error: &Error) -> Tally {
    let mut tally = Tally::default();
    for suite in python::NAMES.into_iter().chain([js::NAME, browser::NAME]) {
        tally += context.report_failure(&format!("run the suite {suite:?}"), error);
    }
    tally
}

fn check_leftovers(context: &Context<'_>, baseline: &Baseline) -> Tally {
    match baseline.leftovers() {
        Ok(left) if left.is_empty() => Tally::PASSED,
        Ok(left) => {
            notice(&format!(
                "FAILED: the run left behind:\n{}",
                left.join("\n")
            ));
            Tally::FAILED
        }
        Err(error) => context.report_failure("look for leftovers", &error),
    }
}
