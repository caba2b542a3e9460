//! The official JavaScript SDK, on Node, Bun and Deno. Their own test runners run the same tests.

mod runtime;

use std::{fs, time::Duration};

use anyhow::Result;

use self::runtime::Runtime;
use super::{
    Context,
    junit::{self, Case},
    server::TestServer,
    stopped,
    suite::Suite,
    tally::Tally,
};
use crate::{host::node, step::notice};

/// Names of the suites.
pub(super) const NAMES: [&str; 3] = [NAME, Runtime::Bun.suite(), Runtime::Deno.suite()];
/// Name of the first suite, and of all of them.
pub(super) const NAME: &str = Runtime::Node.suite();
/// Longest time of a suite.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// Runs the tests, unless they run beside the suites in Python.
pub(super) fn run(context: &Context<'_>) -> Tally {
    match context.has_lanes() {
        true => Tally::default(),
        false => tests(context, false),
    }
}

/// Runs the tests in each runtime. `labelled` says whether another suite runs beside them.
pub(super) fn tests(context: &Context<'_>, labelled: bool) -> Tally {
    on_a_server(
        context,
        &Runtime::ALL.map(|runtime| Selection {
            pattern: context.options.filter.clone(),
            ..Selection::all(runtime, labelled)
        }),
    )
}

/// Runs tests against a dedicated server.
fn on_a_server(context: &Context<'_>, selections: &[Selection]) -> Tally {
    let server = node::packages(context.repo, &context.installer)
        .and_then(|()| TestServer::start(context, "js-server"));
    let server = match server {
        Ok(server) => server,
        Err(error) => return context.report_failure("run the JavaScript tests", &error),
    };
    let mut tally = Tally::default();
    for selection in selections.iter().take_while(|_| !stopped()) {
        tally += selection
            .run(context, &server)
            .unwrap_or_else(|error| context.report_failure("run the JavaScript tests", &error));
        // Deno runs all tests whatever their names are, so that a name of other suites must not start it.
        if selection.pattern.is_some() && tally == Tally::default() {
            break;
        }
    }
    if let Err(error) = server.stop() {
        tally += context.report_failure("stop the server of the JavaScript tests", &error);
    }
    tally
}

/// Which tests run, and where.
#[derive(Clone, Debug)]
struct Selection {
    runtime: Runtime,
    /// Part of the names of the tests; all of them if there is none.
    pattern: Option<String>,
    /// Group of the tests, or name of a test without one, by which Deno chooses; all of them if there is
    /// none.
    group: Option<String>,
    /// End of the name of the report.
    suffix: &'static str,
    labelled: bool,
}

impl Selection {
    fn all(runtime: Runtime, labelled: bool) -> Self {
        Self {
            runtime,
            pattern: None,
            group: None,
            suffix: "",
            labelled,
        }
    }

    /// One test of a report.
    fn alone(runtime: Runtime, case: &Case) -> Self {
        let group = match case.group.is_empty() {
            true => &case.name,
            false => &case.group,
        };
        Self {
            pattern: Some(case.name.clone()),
            group: Some(group.clone()),
            suffix: "-alone",
            ..Self::all(runtime, false)
        }
    }

    fn run(&self, context: &Context<'_>, server: &TestServer) -> Result<Tally> {
        let runtime = self.runtime;
        let program = match runtime.program(context) {
            // Not every processor and registry has them, and then there is nothing to repair.
            Err(error) if runtime != Runtime::Node => {
                let name = runtime.suite();
                notice(&format!("SKIPPED: could not run the {name}: {error:#}"));
                return Ok(Tally::SKIPPED);
            }
            program => program?,
        };
        let name = format!("{}{}.xml", runtime.report(), self.suffix);
        let report = context.repo.reports().join(name);
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut tests = runtime.command(context, &program, self, &report);
        server.describe_to(&mut tests);
        let suite = Suite {
            name: runtime.suite(),
            labelled: self.labelled,
            limit: LIMIT,
            tests_failed: None,
        };
        eprintln!("==> {}", suite.name);
        Ok(suite.run_cases(
            context,
            &mut tests,
            None,
            || Ok(runtime.chosen(junit::read(&report)?, self)),
            |case| {
                let alone = Self::alone(runtime, case);
                Box::new(move |context| on_a_server(context, std::slice::from_ref(&alone)))
            },
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::junit::Outcome;

    #[test]
    fn a_test_is_repeated_by_its_name_and_its_group() {
        let alone = |group: &str| {
            let case = Case {
                group: group.to_owned(),
                name: "a wrong key is refused".to_owned(),
                file: None,
                took: Duration::ZERO,
                outcome: Outcome::Failed(String::new()),
            };
            let alone = Selection::alone(Runtime::Deno, &case);
            assert_eq!(alone.pattern.as_ref(), Some(&case.name));
            assert_eq!(alone.suffix, "-alone");
            alone.group.unwrap()
        };
        assert_eq!(alone("through the server"), "through the server");
        assert_eq!(alone(""), "a wrong key is refused");
    }
}
