//! `test`: runs every suite and adds up their counts.

mod browser;
mod cargo;
mod changed;
mod fuzz;
mod js;
mod junit;
mod leftovers;
mod netlink;
mod package;
mod python;
mod repeat;
mod server;
mod suite;
pub(crate) mod tally;
mod tier;

use std::{
    fs,
    io::{ErrorKind, Write},
    path::PathBuf,
    process::ExitCode,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
};

use anyhow::{Context as _, Error, Result};
use clap::{Args, ValueEnum};

use self::{changed::Changed, leftovers::Baseline, repeat::Failure, tally::Tally};
use crate::{
    build::{self, Profile},
    deadline,
    host::{self, Installer, engine},
    interrupt::{self, interrupted},
    load::{self, BusyLoops},
    progress::say,
    repo::Repo,
    step::notice,
    times,
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
    /// Run beside busy loops. `test` runs the tests of what differs from a commit, and those that were
    /// flaky, five times beside two loops for each processor; `ci` runs everything once beside one each
    #[arg(long, value_name = "COMMIT", num_args = 0..=1, default_missing_value = "@{upstream}")]
    under_load: Option<String>,
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

impl Chosen {
    /// Name in messages.
    fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust tests",
            Self::Packages => "packages",
            Self::Python => "suites in Python",
            Self::Javascript => js::NAME,
            Self::Browser => browser::NAME,
        }
    }
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

    /// Whether no test is left out.
    fn is_whole(&self) -> bool {
        self.filter.is_none() && self.suites.is_empty() && self.under_load.is_none()
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
    /// Servers that were started.
    servers: AtomicU32,
    /// Tests that failed, to be repeated.
    failures: Mutex<Vec<Failure>>,
    /// The only tests to run, if some are named by what changed.
    changed: Option<Changed>,
}

impl<'a> Context<'a> {
    fn new(repo: &'a Repo, options: &'a Options) -> Result<Self> {
        Ok(Self {
            repo,
            installer: Installer::new(options.may_install()),
            options,
            run: random_key()?,
            servers: AtomicU32::default(),
            failures: Mutex::default(),
            changed: None,
        })
    }

    /// Whether a suite is run.
    fn includes(&self, suite: Chosen) -> bool {
        let has_changed = self.changed.as_ref().is_none_or(|changed| match suite {
            Chosen::Rust => changed.rust().is_some(),
            Chosen::Packages => false,
            Chosen::Python => changed.has_python(),
            Chosen::Javascript => changed.javascript,
            Chosen::Browser => !changed.browser().is_empty(),
        });
        has_changed && self.options.includes(suite)
    }

    /// Whether the tests in JavaScript run beside the suites in Python.
    fn has_lanes(&self) -> bool {
        self.options.store == Database::Sqlite
            && self.includes(Chosen::Python)
            && self.includes(Chosen::Javascript)
    }

    /// Waits until other work on this machine is over, unless the run makes load itself.
    fn wait_until_quiet(&self, suite: &str) {
        if self.options.under_load.is_none() {
            load::wait_until_quiet(suite);
        }
    }

    /// Folder for the configuration, store and log of a server: another one for each server of the
    /// run, because what a server left behind on the engine is known by its store.
    fn folder_of_server(&self, name: &str) -> PathBuf {
        let number = self.servers.fetch_add(1, Ordering::Relaxed);
        self.repo
            .reports()
            .join(SERVERS)
            .join(format!("{number}-{name}"))
    }

    /// Keeps a test that failed.
    fn note_failure(&self, failure: Failure) {
        let failures = self.failures.lock();
        failures
            .unwrap_or_else(PoisonError::into_inner)
            .push(failure);
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

/// Builds the tests and what they run, but for the site.
pub(crate) fn build(repo: &Repo) -> Result<()> {
    build::for_tests(repo, &repo.dist_for_tests())?;
    cargo::build(repo)
}

/// Runs a suite that needs the server and an engine.
type Run = fn(&Context<'_>) -> Tally;

/// Runs the suites and prints the count as the last line.
pub(crate) fn test(repo: &Repo, options: &Options) -> ExitCode {
    limit(options);
    let tally = match &options.under_load {
        None => suites(repo, options),
        Some(base) => under_load(repo, options, base),
    };
    conclude(repo, tally)
}

/// Sets the deadline of the run. The long form of the tests takes longer than any.
pub(crate) fn limit(options: &Options) {
    if !options.full {
        deadline::set(deadline::WHOLE_RUN);
    }
}

/// Prints the durations and the last line, and turns the count into an exit code.
pub(crate) fn conclude(repo: &Repo, mut tally: Tally) -> ExitCode {
    if deadline::passed() {
        let minutes = deadline::WHOLE_RUN.as_secs() / 60;
        notice(&format!(
            "FAILED: the run took longer than {minutes} minutes"
        ));
        tally += Tally::FAILED;
    }
    match times::report(&repo.reports()) {
        Ok(table) => say(&table),
        Err(error) => notice(&format!("the durations cannot be written: {error:#}")),
    }
    println!("{tally}");
    // A closed pipe is no failure of the tests.
    let _ = std::io::stdout().flush();
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Folder of the run's servers, below that of the reports.
const SERVERS: &str = "servers";

/// Times that the tests of what changed run under load.
const ROUNDS: usize = 5;
/// Busy loops for each processor, beside the tests of what changed,
const BUSY_LOOPS: usize = 2;
/// and beside all tests, which must end within [`deadline::WHOLE_RUN`].
const BUSY_LOOPS_FOR_ALL: usize = 1;

/// Runs the tests of what differs from the commit `base` several times beside busy loops. Nothing is
/// repeated: each failure counts.
fn under_load(repo: &Repo, options: &Options, base: &str) -> Tally {
    let changed = match Changed::since(repo, base) {
        Ok(changed) => changed,
        Err(error) => {
            notice(&format!("FAILED: {error:#}"));
            return Tally::FAILED;
        }
    };
    let mut tally = Tally::default();
    for round in (1..=ROUNDS).take_while(|_| !stopped()) {
        say(&format!("==> round {round} of {ROUNDS} under load"));
        tally += in_context(repo, options, Some(changed.clone()));
    }
    tally
}

/// Runs all suites, also after one failed.
pub(crate) fn suites(repo: &Repo, options: &Options) -> Tally {
    in_context(repo, options, None)
}

fn in_context(repo: &Repo, options: &Options, changed: Option<Changed>) -> Tally {
    if let Err(error) = interrupt::listen() {
        notice(&format!("Ctrl-C will not clean up: {error:#}"));
    }
    match Context::new(repo, options) {
        Ok(mut context) => {
            context.changed = changed;
            all(&context)
        }
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
        ..
    } = context;
    let missing = host::missing_for_build(installer).into_iter();
    if let Err(error) = host::require_all(missing.chain(host::missing_for_tests(installer))) {
        notice(&format!("{error:#}"));
    }
    // The engine first: Rust tests use it as well.
    let engine = engine::ensure(installer).and_then(|()| {
        let baseline = Baseline::record(run, &repo.reports())?;
        remove_servers(repo)?;
        Ok(baseline)
    });
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

    // Builds are not tested, so that they are not slowed down.
    let loops = match &context.changed {
        Some(_) => BUSY_LOOPS,
        None => BUSY_LOOPS_FOR_ALL,
    };
    let _busy = (options.under_load.is_some()).then(|| BusyLoops::start(loops));
    let mut tally = Tally::default();
    if context.includes(Chosen::Rust) && !stopped() {
        tally += cargo::run(context, docker);
    }
    if built.is_ok() && context.includes(Chosen::Packages) && !stopped() {
        tally += tier::run(context, "packages", "", || package::run(context, docker));
    }
    match (built, docker) {
        (Ok(()), Ok(())) => {
            let suites: [(Chosen, Run); 3] = [
                (Chosen::Python, python::run),
                (Chosen::Javascript, js::run),
                (Chosen::Browser, browser::run),
            ];
            for (suite, run) in suites {
                // In lanes, it has run already.
                let has_run = suite == Chosen::Javascript && context.has_lanes();
                if context.includes(suite) && !has_run && !stopped() {
                    context.wait_until_quiet(suite.name());
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
    if options.full && !stopped() {
        tally += fuzz::run_all(context);
    }
    if let Some(filter) = &options.filter
        && tally == Tally::default()
        && !interrupted()
    {
        notice(&format!("FAILED: no test matches {filter:?}"));
        tally += Tally::FAILED;
    }
    match context.changed {
        None => repeat::alone(context, &mut tally),
        Some(_) if tally == Tally::default() => {
            notice("FAILED: none of the changed tests ran");
            tally += Tally::FAILED;
        }
        Some(_) => {}
    }
    if options.is_whole() && !stopped() {
        tier::count(context);
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

/// Removes the folders of an earlier run's servers.
fn remove_servers(repo: &Repo) -> Result<()> {
    let folder = repo.reports().join(SERVERS);
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Whether no further suite may start.
fn stopped() -> bool {
    interrupted() || deadline::passed()
}

/// Reports the suites that need a real engine as not run.
fn without_docker(context: &Context<'_>, error: &Error) -> Tally {
    let mut tally = Tally::default();
    let others = js::NAMES.into_iter().chain([browser::NAME]);
    for suite in python::NAMES.into_iter().chain(others) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascript_runs_beside_python_where_both_are_chosen() {
        let repo = Repo::find().unwrap();
        let has_lanes = |suites: &[Chosen], store| {
            let options = Options {
                suites: suites.to_vec(),
                store,
                ..Options::default()
            };
            Context::new(&repo, &options).unwrap().has_lanes()
        };
        assert!(has_lanes(&[], Database::Sqlite));
        for only in [Chosen::Python, Chosen::Javascript] {
            assert!(!has_lanes(&[only], Database::Sqlite));
        }
        assert!(!has_lanes(&[], Database::Postgresql));
    }
}
