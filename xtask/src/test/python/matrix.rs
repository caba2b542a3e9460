//! Which combinations of the official SDK's flavours and routes a run tests.
//!
//! Each test can run with the blocking and the asyncio flavour, direct and through the server, in
//! two generations of the SDK. A run takes a pair of combinations for each generation: both flavours
//! and both routes. Which pairs they are alternates, so that two runs test every combination.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};

/// Name of the counter.
const COUNTER: &str = "matrix";

/// Combinations of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Matrix {
    /// Every one.
    Full,
    /// A pair for each generation, by the number of runs before this one.
    Pairs(u64),
}

impl Matrix {
    /// The pairs that are next according to the counter in this folder. Without a readable counter
    /// this is the first run.
    pub(super) fn next_in(records: &Path) -> Self {
        let counter = fs::read_to_string(records.join(COUNTER));
        let runs = counter.ok().and_then(|text| text.trim().parse().ok());
        Self::Pairs(runs.unwrap_or_default())
    }

    /// Counts a run that ended, after which the other pairs are next.
    pub(super) fn count_in(self, records: &Path) -> Result<()> {
        let Self::Pairs(runs) = self else {
            return Ok(());
        };
        let file = records.join(COUNTER);
        fs::create_dir_all(records)
            .and_then(|()| fs::write(&file, format!("{}\n", runs.wrapping_add(1))))
            .with_context(|| format!("cannot write {}", file.display()))
    }

    /// Option of the tests.
    pub(super) fn option(self) -> String {
        let chosen = match self {
            Self::Full => "full".to_owned(),
            Self::Pairs(runs) => (runs % 2).to_string(),
        };
        format!("--matrix={chosen}")
    }

    /// Description for the log of a run.
    pub(super) fn description(self) -> String {
        const PAIRS: [&str; 2] = ["sync-direct and async-proxy", "sync-proxy and async-direct"];
        let Self::Pairs(runs) = self else {
            return "matrix: every combination of flavour and route".to_owned();
        };
        let [first, second] = match runs % 2 {
            0 => PAIRS,
            _ => [PAIRS[1], PAIRS[0]],
        };
        format!("matrix: SDK 1.1 {first}, SDK 0.1 {second} this run, complement next")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_alternate_from_run_to_run() {
        let folder = std::env::temp_dir().join(format!("xtask-matrix-{}", std::process::id()));
        let mut options = Vec::new();
        for _ in 0..3 {
            let matrix = Matrix::next_in(&folder);
            options.push(matrix.option());
            matrix.count_in(&folder).unwrap();
        }
        assert_eq!(options, ["--matrix=0", "--matrix=1", "--matrix=0"]);
        // A run of everything leaves the counter as it is.
        Matrix::Full.count_in(&folder).unwrap();
        assert_eq!(Matrix::next_in(&folder), Matrix::Pairs(3));
        fs::write(folder.join(COUNTER), "damaged").unwrap();
        assert_eq!(Matrix::next_in(&folder), Matrix::Pairs(0));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_log_names_the_pairs() {
        let log = Matrix::Pairs(0).description();
        assert!(log.contains("SDK 1.1 sync-direct and async-proxy"), "{log}");
        assert!(log.contains("SDK 0.1 sync-proxy and async-direct"), "{log}");
        let log = Matrix::Pairs(1).description();
        assert!(log.contains("SDK 1.1 sync-proxy and async-direct"), "{log}");
        assert_eq!(Matrix::Full.option(), "--matrix=full");
    }
}
