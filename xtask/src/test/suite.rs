//! One suite: a test program with a time limit, and the report that it writes.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    Context,
    junit::{self, Case, Outcome},
    repeat::{Again, Failure},
    tally::Tally,
};
use crate::{
    deadline,
    process::{Ended, describe, watch},
    progress::Line,
    step::notice,
    times::{self, Kind},
};

/// A program that runs tests.
pub(super) struct Suite<'a> {
    /// Name in messages.
    pub(super) name: &'a str,
    /// Whether each line of its output names it, because another suite runs beside it.
    pub(super) labelled: bool,
    /// Time after which it is killed with all its child processes.
    pub(super) limit: Duration,
    /// Exit status that says that tests failed and nothing else did, if the program has one.
    pub(super) tests_failed: Option<i32>,
}

/// Escapes a text for JavaScript: a regular expression that matches the text literally.
pub(super) fn literal(text: &str) -> String {
    let mut pattern = String::new();
    for char in text.chars() {
        if r"\^$.|?*+()[]{}/".contains(char) {
            pattern.push('\\');
        }
        pattern.push(char);
    }
    pattern
}

impl Suite<'_> {
    /// Runs `command`, passes its lines on stdout to `on_line`, and returns the result of `count`.
    ///
    /// A suite that hangs, cannot start, writes no report, or fails for another reason than the
    /// failures that it reports counts as one failure more.
    pub(super) fn run(
        &self,
        command: &mut Command,
        on_line: &mut dyn FnMut(&str),
        count: impl FnOnce() -> Result<Tally>,
    ) -> Tally {
        self.run_filtered(command, None, on_line, count)
    }

    /// Runs `command`, reads the tests of its report with `read`, and keeps their durations and the
    /// failures, for which `again` says how one test is repeated.
    pub(super) fn run_cases(
        &self,
        context: &Context<'_>,
        command: &mut Command,
        no_match: Option<i32>,
        read: impl FnOnce() -> Result<Vec<Case>>,
        again: impl Fn(&Case) -> Again,
    ) -> Tally {
        let mut cases = Vec::new();
        let tally = self.run_filtered(command, no_match, &mut |_| {}, || {
            cases = read()?;
            Ok(junit::count(&cases))
        });
        for case in cases {
            let name = format!("{}: {} {}", self.name, case.group, case.name);
            times::record_test(name, case.took);
            if let Outcome::Failed(text) = &case.outcome {
                context.note_failure(Failure {
                    suite: self.name.to_owned(),
                    text: text.clone(),
                    again: again(&case),
                    case,
                });
            }
        }
        tally
    }

    /// Like [`run`](Self::run), with a filter. A program that exits with the status `no_match`
    /// because no test matches is no failure.
    pub(super) fn run_filtered(
        &self,
        command: &mut Command,
        no_match: Option<i32>,
        on_line: &mut dyn FnMut(&str),
        count: impl FnOnce() -> Result<Tally>,
    ) -> Tally {
        let mut last = String::new();
        let limit = deadline::within(self.limit);
        let started = Instant::now();
        let label = match self.labelled {
            true => format!("{} | ", self.name),
            false => String::new(),
        };
        let ended = watch(command, limit, &mut |line| match line {
            Line::Out(text) => {
                eprintln!("{label}{text}");
                on_line(text);
                text.clone_into(&mut last);
            }
            Line::Err(text) | Line::Transient(text) => eprintln!("{label}{text}"),
            Line::Idle => {}
        });
        times::record(Kind::Suite, self.name, started);
        let status = match ended {
            Ok(Ended::Exited(status)) => status,
            Ok(Ended::Killed) => {
                notice(&format!(
                    "{} hung: killed after {} s; its last line was:\n{last}",
                    self.name,
                    limit.as_secs()
                ));
                let mut tally = count().unwrap_or_default();
                tally += Tally::FAILED;
                return tally;
            }
            Err(error) => {
                notice(&format!("{} could not run: {error:#}", self.name));
                return Tally::FAILED;
            }
        };
        let mut tally = count().unwrap_or_else(|error| {
            notice(&format!("{} left no report: {error:#}", self.name));
            Tally::FAILED
        });
        let nothing_matched =
            no_match.is_some() && status.code() == no_match && tally == Tally::default();
        let says_it = self.tests_failed.is_none() || status.code() == self.tests_failed;
        let is_counted = tally.failed > 0 && says_it;
        if !status.success() && !is_counted && !nothing_matched {
            notice(&format!(
                "{} ended with {status}: {}",
                self.name,
                describe(command)
            ));
            tally += Tally::FAILED;
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run(script: &str, limit: u64, counted: Result<Tally>) -> Tally {
        let suite = Suite {
            name: "probe",
            labelled: false,
            limit: Duration::from_secs(limit),
            tests_failed: None,
        };
        suite.run(&mut shell(script), &mut |_| {}, || counted)
    }

    #[test]
    fn filters_match_literally() {
        assert_eq!(literal("two words"), "two words");
        assert_eq!(literal(r"a.b(c)[d]\e/"), r"a\.b\(c\)\[d\]\\e\/");
    }

    #[test]
    fn a_filter_that_matches_nothing_in_one_suite_is_no_failure() {
        let suite = Suite {
            name: "probe",
            labelled: false,
            limit: Duration::from_secs(60),
            tests_failed: None,
        };
        let run = |no_match, counted| {
            let count = || Ok(counted);
            suite.run_filtered(&mut shell("exit 5"), no_match, &mut |_| {}, count)
        };
        assert_eq!(run(Some(5), Tally::default()), Tally::default());
        assert_eq!(run(Some(4), Tally::default()), Tally::FAILED);
        assert_eq!(run(None, Tally::default()), Tally::FAILED);
        assert_eq!(run(Some(5), Tally::PASSED).failed, 1);
    }

    #[test]
    fn a_failure_outside_the_tests_counts_beside_those_in_them() {
        let run = |script| {
            let suite = Suite {
                name: "probe",
                labelled: false,
                limit: Duration::from_secs(60),
                tests_failed: Some(1),
            };
            let count = || Ok(Tally::FAILED);
            suite.run(&mut shell(script), &mut |_| {}, count).failed
        };
        assert_eq!(run("exit 1"), 1);
        assert_eq!(run("exit 3"), 2);
    }

    #[test]
    fn failures_outside_the_tests_count_once() {
        let three = Tally {
            passed: 3,
            failed: 0,
            skipped: 0,
        };
        let three_and_a_failure = Tally {
            passed: 3,
            failed: 1,
            skipped: 0,
        };
        assert_eq!(run("exit 0", 60, Ok(three)), three);
        assert_eq!(run("exit 1", 60, Ok(three)), three_and_a_failure);
        assert_eq!(
            run("exit 1", 60, Ok(three_and_a_failure)),
            three_and_a_failure
        );
        assert_eq!(run("sleep 1000", 1, Ok(three)), three_and_a_failure);
        assert_eq!(
            run("exit 0", 60, Err(anyhow::anyhow!("no file"))),
            Tally::FAILED
        );
    }
}
