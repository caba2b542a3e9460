//! Repeats of failed tests: each once, alone. A second failure is one; a pass makes the test flaky,
//! which is reported and kept in a ledger.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
    sync::PoisonError,
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::{Context, junit::Case, stopped, tally::Tally};
use crate::step::{notice, step};

/// Most failures that are repeated: of more, the cause is no chance.
const MOST_REPEATED: usize = 10;
/// Most flaky tests of a run.
const MOST_FLAKY: usize = 3;
/// Runs in which a test may be flaky once.
const REMEMBERED: usize = 10;

/// Runs a test again, on a server of its own where it needs one.
pub(super) type Again = Box<dyn Fn(&Context<'_>) -> Tally + Send>;

/// A test that failed.
pub(super) struct Failure {
    /// Name of the suite.
    pub(super) suite: String,
    pub(super) case: Case,
    /// What the test said.
    pub(super) text: String,
    pub(super) again: Again,
}

impl Failure {
    fn name(&self) -> Name {
        Name {
            suite: self.suite.clone(),
            group: self.case.group.clone(),
            name: self.case.name.clone(),
            file: self.case.file.clone(),
        }
    }
}

/// Name of a test.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) struct Name {
    pub(super) suite: String,
    /// As in [`Case`].
    pub(super) group: String,
    pub(super) name: String,
    pub(super) file: Option<String>,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}", self.suite, self.group, self.name)
    }
}

/// Repeats the failures of a run, alone, and returns what that changes in its count.
pub(super) fn alone(context: &Context<'_>, tally: &mut Tally) {
    let failures = std::mem::take(
        &mut *context
            .failures
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    if stopped() {
        return;
    }
    if failures.len() > MOST_REPEATED {
        notice(&format!(
            "{} tests failed, too many to be chance: none is repeated",
            failures.len()
        ));
        return;
    }
    let mut flaky = Vec::new();
    for failure in failures.into_iter().take_while(|_| !stopped()) {
        let name = failure.name();
        let passed = repeated(context, &failure, &name);
        if passed {
            notice(&format!(
                "FLAKY {name}: it failed, and passed alone. The failure was:\n{}",
                failure.text
            ));
            flaky.push(name);
        }
    }
    let ledger = Ledger::in_folder(&context.repo.records());
    let verdicts = match ledger.judge(&flaky) {
        Ok(verdicts) => verdicts,
        Err(error) => {
            notice(&format!(
                "the ledger of flaky tests is unreadable: {error:#}"
            ));
            judge(&flaky, &[])
        }
    };
    for (name, verdict) in flaky.iter().zip(verdicts) {
        match verdict {
            Ok(()) => {
                tally.failed = tally.failed.saturating_sub(1);
                tally.passed += 1;
            }
            Err(why) => notice(&format!("FAILED: {name}: {why}")),
        }
    }
    // A filter leaves most tests out, so that such a run says nothing about how often one fails.
    if context.options.is_whole()
        && let Err(error) = ledger.add(flaky)
    {
        notice(&format!(
            "the ledger of flaky tests cannot be written: {error:#}"
        ));
    }
}

fn repeated(context: &Context<'_>, failure: &Failure, name: &Name) -> bool {
    context.wait_until_quiet(&failure.suite);
    let outcome = step(&format!("repeat {name}"), || Ok((failure.again)(context)));
    outcome.is_ok_and(|tally| tally.passed > 0 && tally.failed == 0)
}

/// A run and its flaky tests.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
struct Run {
    flaky: Vec<Name>,
}

/// Flaky tests of the latest runs, a line in JSON for each run.
struct Ledger(PathBuf);

impl Ledger {
    fn in_folder(folder: &Path) -> Self {
        Self(folder.join("flaky.jsonl"))
    }

    /// The latest runs, the oldest first; none without a ledger.
    fn runs(&self) -> Result<Vec<Run>> {
        if !self.0.exists() {
            return Ok(Vec::new());
        }
        let text = fs::read_to_string(&self.0)?;
        let runs: Vec<Run> = text
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<_, _>>()
            .with_context(|| format!("{} is damaged", self.0.display()))?;
        let old = runs.len().saturating_sub(REMEMBERED);
        Ok(runs.into_iter().skip(old).collect())
    }

    fn judge(&self, flaky: &[Name]) -> Result<Vec<Result<(), String>>> {
        Ok(judge(flaky, &self.runs()?))
    }

    fn add(&self, flaky: Vec<Name>) -> Result<()> {
        let mut runs = self.runs().unwrap_or_default();
        runs.push(Run { flaky });
        let mut text = String::new();
        for run in runs.iter().skip(runs.len().saturating_sub(REMEMBERED)) {
            text.push_str(&serde_json::to_string(run)?);
            text.push('\n');
        }
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&self.0, text)?;
        Ok(())
    }
}

/// Names of the flaky tests of the latest runs.
pub(super) fn known_flaky(records: &Path) -> Vec<Name> {
    let runs = Ledger::in_folder(records).runs().unwrap_or_default();
    runs.into_iter().flat_map(|run| run.flaky).collect()
}

/// Says for each flaky test whether it may count as passed, or why not.
fn judge(flaky: &[Name], before: &[Run]) -> Vec<Result<(), String>> {
    let too_many = flaky.len() > MOST_FLAKY;
    flaky
        .iter()
        .map(|name| {
            if too_many {
                return Err(format!(
                    "{} tests of this run are flaky, of at most {MOST_FLAKY}",
                    flaky.len()
                ));
            }
            match before.iter().any(|run| run.flaky.contains(name)) {
                true => Err(format!(
                    "it was flaky in the last {REMEMBERED} runs as well"
                )),
                false => Ok(()),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<Name> {
        let name = |name: &&str| Name {
            suite: "probe".to_owned(),
            group: "osb-probe".to_owned(),
            name: (*name).to_owned(),
            file: None,
        };
        names.iter().map(name).collect()
    }

    #[test]
    fn a_flaky_test_passes_once_in_ten_runs() {
        let dir = tempdir("ledger");
        let ledger = Ledger::in_folder(&dir);
        let one = names(&["a"]);
        assert_eq!(ledger.judge(&one).unwrap(), [Ok(())]);
        ledger.add(one.clone()).unwrap();
        for _ in 0..REMEMBERED - 1 {
            assert!(ledger.judge(&one).unwrap()[0].is_err());
            ledger.add(Vec::new()).unwrap();
        }
        assert!(ledger.judge(&one).unwrap()[0].is_err());
        assert_eq!(ledger.judge(&names(&["b"])).unwrap(), [Ok(())]);
        assert_eq!(known_flaky(&dir), one);
        ledger.add(Vec::new()).unwrap();
        assert_eq!(ledger.judge(&one).unwrap(), [Ok(())]);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn more_than_three_flaky_tests_are_failures() {
        assert!(
            judge(&names(&["a", "b", "c"]), &[])
                .iter()
                .all(Result::is_ok)
        );
        let four = judge(&names(&["a", "b", "c", "d"]), &[]);
        assert!(four.iter().all(Result::is_err), "{four:?}");
    }

    #[test]
    fn a_damaged_ledger_is_an_error_and_is_replaced() {
        let dir = tempdir("damaged");
        let ledger = Ledger::in_folder(&dir);
        fs::write(&ledger.0, "{").unwrap();
        assert!(ledger.judge(&names(&["a"])).is_err());
        ledger.add(Vec::new()).unwrap();
        assert_eq!(ledger.runs().unwrap(), [Run { flaky: Vec::new() }]);
        fs::remove_dir_all(&dir).unwrap();
    }

    fn tempdir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("xtask-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}
