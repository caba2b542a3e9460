//! The suites in Python: both generations of the official SDK, agent frameworks that use it, the official
//! command, and the contract over plain HTTP.

mod matrix;

use std::{
    fs,
    panic::resume_unwind,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, PoisonError},
    thread,
    time::Duration,
};

use anyhow::Result;

use self::matrix::Matrix;
use super::{
    Context, Database, changed, js,
    junit::{self, Case},
    server::TestServer,
    stopped,
    suite::Suite,
    tally::Tally,
    tier,
};
use crate::{
    host::{postgres::Postgres, python},
    step::notice,
};

/// Longest time of one suite, and with the long form of its tests.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const LIMIT_FULL: Duration = Duration::from_secs(90 * 60);

/// Exit statuses of pytest: tests failed, and no test was selected.
const TESTS_FAILED: i32 = 1;
const NO_MATCH: i32 = 5;

/// Variable that selects the long form of tests that have one.
const FULL: &str = "OPENSANDBOX_TEST_FULL";

/// Folder of the tests with the SDK, which have a matrix.
const SDK: &str = "sdk";

/// Environment of packages of which one needs a newer Python than the other suites. Without one, its
/// tests say so and are skipped.
const DEEPAGENTS: &str = "deepagents";

/// One run of pytest.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Name in messages.
    name: &'static str,
    /// Virtual environment, `end2end/.venv-<environment>`; also in the name of the report.
    environment: &'static str,
    /// Packages of the environment, below `end2end`.
    requirements: &'static str,
    /// Folder of the tests, below `end2end`.
    folder: &'static str,
    /// Files in the folder; all of them if none is named,
    files: &'static [&'static str],
    /// but these.
    without: &'static [&'static str],
    /// Added to the environment in the name of the report.
    suffix: &'static str,
}

impl Run {
    /// Its files that the context selects.
    fn chosen_files<'a>(&self, context: &'a Context<'_>) -> Vec<&'a str> {
        let Some(changed) = &context.changed else {
            return self.files.to_vec();
        };
        let mut files = changed.python(self.folder);
        if files.contains(&changed::ALL) {
            return match self.files {
                [] => vec![changed::ALL],
                some => some.to_vec(),
            };
        }
        files.retain(|file| self.files.is_empty() || self.files.contains(file));
        files.retain(|file| !self.without.contains(file));
        files
    }
}

/// The contract. Files about the egress sidecar take half of its time, and so are a run of their own.
const CONTRACT: Run = Run {
    name: "contract over HTTP",
    environment: "contract",
    requirements: "contract/requirements.txt",
    folder: "contract",
    files: &[],
    without: &[],
    suffix: "",
};
const EGRESS: [&str; 3] = [
    "test_egress_default.py",
    "test_egress_effect.py",
    "test_egress_faults.py",
];

/// The SDK generations come first, because users depend on them.
const RUNS: [Run; 8] = [
    Run {
        name: "official SDK 1.1",
        environment: "1.1",
        requirements: "sdk/requirements-1.1.txt",
        folder: SDK,
        files: &[],
        without: &[],
        suffix: "",
    },
    Run {
        name: "official SDK 0.1",
        environment: "0.1",
        requirements: "sdk/requirements-0.1.txt",
        folder: SDK,
        files: &[],
        without: &[],
        suffix: "",
    },
    // An older release of its generation.
    Run {
        name: "network policies with the official SDK 0.1.13",
        environment: "0.1.13",
        requirements: "sdk/requirements-0.1.13.txt",
        folder: SDK,
        files: &["test_network_policy.py"],
        without: &[],
        suffix: "",
    },
    Run {
        name: "contract over HTTP, egress",
        files: &EGRESS,
        suffix: "-egress",
        ..CONTRACT
    },
    Run {
        name: "agents of deepagents",
        environment: DEEPAGENTS,
        requirements: "agents/requirements-deepagents.txt",
        folder: "agents",
        files: &["test_backends.py", "test_threads.py"],
        without: &[],
        suffix: "",
    },
    Run {
        name: "agents of agno",
        environment: "agno",
        requirements: "agents/requirements-agno.txt",
        folder: "agents",
        files: &["test_agno.py"],
        without: &[],
        suffix: "",
    },
    Run {
        without: &EGRESS,
        ..CONTRACT
    },
    Run {
        name: "official command osb 1.1",
        environment: "cli",
        requirements: "cli/requirements.txt",
        folder: "cli",
        files: &[],
        without: &[],
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
        ..CONTRACT
    },
];

/// Names of the suites.
pub(super) const NAMES: [&str; RUNS.len()] = [
    RUNS[0].name,
    RUNS[1].name,
    RUNS[2].name,
    RUNS[3].name,
    RUNS[4].name,
    RUNS[5].name,
    RUNS[6].name,
    RUNS[7].name,
];

/// How many of [`RUNS`] are about the SDK,
const SDK_RUNS: usize = 3;
/// and how many after them, about egress and agents, take as long as the rest.
const EGRESS_RUNS: usize = 3;

/// Runs all suites, and a part of them against a server on PostgreSQL; or all suites against the
/// latter.
pub(super) fn run(context: &Context<'_>) -> Tally {
    let records = context.repo.records();
    let options = context.options;
    let is_whole = options.filter.is_none() && context.changed.is_none();
    let matrix = match is_whole && !options.full {
        true => Matrix::next_in(&records),
        false => Matrix::Full,
    };
    eprintln!("{}", matrix.description());
    let tally = match options.store {
        Database::Sqlite => side_by_side(context, matrix),
        Database::Postgresql => {
            let lane = Lane::new("python-server-postgresql", Database::Postgresql, matrix);
            lane.run(context, &RUNS)
        }
    };
    // A failure is looked for again with the same combinations.
    let ended = tally.passed > 0 && tally.failed == 0 && !stopped();
    if ended && let Err(error) = matrix.count_in(&records) {
        notice(&format!("the next run has the same matrix: {error:#}"));
    }
    tally
}

/// Runs suites in four lanes. Sandboxes start and end most of the time, which leaves processors
/// idle.
fn side_by_side(context: &Context<'_>, matrix: Matrix) -> Tally {
    let (of_sdk, others) = RUNS.split_at(SDK_RUNS);
    let (egress, others) = others.split_at(EGRESS_RUNS);
    let lane = |server, store| Lane::new(server, store, matrix);
    let sdk = || lane("python-server-sdk", Database::Sqlite).run(context, of_sdk);
    let egress = || lane("python-server-egress", Database::Sqlite).run(context, egress);
    let contract = || lane("python-server", Database::Sqlite).run(context, others);
    let repeats = || {
        let lane = lane("python-server-postgresql", Database::Postgresql);
        let mut tally = tier::run(context, "python-on-postgresql", &matrix.option(), || {
            lane.run(context, &ON_POSTGRESQL)
        });
        if context.has_lanes() && !stopped() {
            tally += js::tests(context, true);
        }
        tally
    };
    thread::scope(|scope| {
        let lanes = [
            scope.spawn(sdk),
            scope.spawn(egress),
            scope.spawn(contract),
            scope.spawn(repeats),
        ];
        lanes.into_iter().fold(Tally::default(), |tally, lane| {
            tally + lane.join().unwrap_or_else(|panic| resume_unwind(panic))
        })
    })
}

/// Suites that run one after the other against one server.
#[derive(Clone, Debug)]
struct Lane {
    /// Name of the server.
    server: &'static str,
    /// Where the server keeps its store.
    store: Database,
    matrix: Matrix,
    /// The only test to run, as pytest names it.
    only: Option<String>,
}

impl Lane {
    fn new(server: &'static str, store: Database, matrix: Matrix) -> Self {
        Self {
            server,
            store,
            matrix,
            only: None,
        }
    }

    /// The same for one test of a report.
    fn only(&self, case: &Case) -> Option<Self> {
        let file = case.file.as_ref()?;
        Some(Self {
            server: "python-server-alone",
            only: Some(format!("{file}::{}", case.name)),
            ..self.clone()
        })
    }

    fn run(&self, context: &Context<'_>, runs: &[Run]) -> Tally {
        let some = |run: &&Run| context.changed.is_none() || !run.chosen_files(context).is_empty();
        let runs: Vec<_> = runs.iter().filter(some).collect();
        if runs.is_empty() {
            return Tally::default();
        }
        let postgres = match self.store {
            Database::Sqlite => None,
            Database::Postgresql => match Postgres::start(&context.installer) {
                Ok(postgres) => Some(postgres),
                Err(error) => {
                    return context.report_failure("start PostgreSQL for the SDK tests", &error);
                }
            },
        };
        let url = postgres.as_ref().map(Postgres::url);
        let server = match TestServer::start_on(context, self.server, url.as_deref()) {
            Ok(server) => server,
            Err(error) => {
                return context.report_failure("start a server for the SDK tests", &error);
            }
        };
        let mut tally = Tally::default();
        for run in runs.into_iter().take_while(|_| !stopped()) {
            tally += self.suite(context, &server, *run).unwrap_or_else(|error| {
                context.report_failure(&format!("run the suite {:?}", run.name), &error)
            });
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

    fn suite(&self, context: &Context<'_>, server: &TestServer, run: Run) -> Result<Tally> {
        let python = environment(context, run)?;
        let tests = context.repo.path("end2end");
        let alone = if self.only.is_some() { "-alone" } else { "" };
        let name = format!("pytest-{}{}{alone}.xml", run.environment, run.suffix);
        let report = context.repo.reports().join(name);
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
            .current_dir(tests.join(run.folder));
        if run.folder == SDK {
            pytest.arg(self.matrix.option());
        }
        let filter = context.options.filter.as_ref();
        if let Some(filter) = filter {
            pytest.arg(format!("--containing={filter}"));
        }
        if context.options.full {
            pytest.env(FULL, "1");
        }
        pytest.args(run.without.iter().map(|file| format!("--ignore={file}")));
        match &self.only {
            None => pytest.args(run.chosen_files(context)),
            Some(only) => pytest.arg(tests.join(only)),
        };
        server.describe_to(&mut pytest);
        let suite = Suite {
            name: run.name,
            labelled: true,
            limit: match context.options.full {
                true => LIMIT_FULL,
                false => LIMIT,
            },
            tests_failed: Some(TESTS_FAILED),
        };
        eprintln!("==> {}", run.name);
        Ok(suite.run_cases(
            context,
            &mut pytest,
            filter.map(|_| NO_MATCH),
            || read_report(&report),
            |case| {
                let alone = self.only(case);
                Box::new(move |context| match &alone {
                    Some(alone) => alone.run(context, &[run]),
                    // Not a test, but a file that could not be read.
                    None => Tally::FAILED,
                })
            },
        ))
    }
}

/// Ensures that a run has its packages, and returns its interpreter. Lanes share environments.
fn environment(context: &Context<'_>, run: Run) -> Result<PathBuf> {
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _held = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    let requirements = context.repo.path("end2end").join(run.requirements);
    let base = match run.environment {
        DEEPAGENTS => python::newer(),
        _ => PathBuf::from(python::PYTHON),
    };
    python::environment(
        context.repo,
        &context.installer,
        run.environment,
        &base,
        &requirements,
    )
}

/// Reads the tests of a report, with their files. What a report says about a file is where the
/// function of the test was made.
fn read_report(report: &Path) -> Result<Vec<Case>> {
    let mut cases = junit::read(report)?;
    for case in &mut cases {
        case.file = file_of(&case.group);
    }
    Ok(cases)
}

/// The file of a group: of `sdk.test_files`, `sdk/test_files.py`. A file that pytest cannot read is in
/// no group.
fn file_of(group: &str) -> Option<String> {
    let (folder, file) = group.split_once('.')?;
    Some(format!("{folder}/{file}.py"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::junit::Outcome;

    #[test]
    fn a_test_is_repeated_by_its_file_and_name() {
        let case = |group: &str| Case {
            group: group.to_owned(),
            name: "test_ranges[sync-proxy-bytes=0-3-0123]".to_owned(),
            file: file_of(group),
            took: Duration::ZERO,
            outcome: Outcome::Failed(String::new()),
        };
        let lane = Lane::new("python-server", Database::Postgresql, Matrix::Pairs(1));
        let alone = lane.only(&case("sdk.test_files")).unwrap();
        let id = "sdk/test_files.py::test_ranges[sync-proxy-bytes=0-3-0123]";
        assert_eq!(alone.only.as_deref(), Some(id));
        assert_eq!((alone.store, alone.matrix), (lane.store, lane.matrix));
        assert_ne!(alone.server, lane.server);
        assert!(lane.only(&case("")).is_none());
    }
}
