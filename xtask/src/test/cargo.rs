//! The Rust tests of every crate but the browser's.

use std::time::Duration;

use super::{Context, suite::Suite, tally::Tally};
use crate::process;

/// Longest time, building from nothing included.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Runs `cargo test`. Tests that need Docker find it, or say that they were ignored.
pub(super) fn run(context: &Context<'_>) -> Tally {
    let mut cargo = process::cargo();
    cargo
        .args(["test", "--no-fail-fast"])
        .env(
            "OPENSANDBOX_EXECD_PATH",
            context.repo.dist_for_tests().join("execd"),
        )
        .current_dir(context.repo.root());
    if let Some(filter) = &context.options.filter {
        cargo.arg(filter);
    }
    let mut tally = Tally::default();
    let mut add = |line: &str| tally += of_line(line).unwrap_or_default();
    let suite = Suite {
        name: "cargo test",
        limit: LIMIT,
    };
    let mut around = suite.run(&mut cargo, &mut add, || Ok(Tally::default()));
    if tally.failed > 0 {
        // The exit status only repeats what the lines said.
        around = Tally::default();
    }
    tally += around;
    tally
}

/// Counts of a line such as `test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; …`.
fn of_line(line: &str) -> Option<Tally> {
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

    #[test]
    fn results_are_read_from_the_summary_lines() {
        let line = "test result: FAILED. 12 passed; 2 failed; 1 ignored; 0 measured; 3 filtered out; finished in 0.00s";
        assert_eq!(
            of_line(line),
            Some(Tally {
                passed: 12,
                failed: 2,
                skipped: 1
            })
        );
        let line = "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(of_line(line), Some(Tally::default()));
        assert_eq!(of_line("test a::b ... ok"), None);
    }
}
