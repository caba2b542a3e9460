//! Durations of a run: of its steps, its suites and its tests. They show where the time goes.

use std::{
    fmt::Write as _,
    fs,
    path::Path,
    sync::{LazyLock, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use crate::duration::readable;

/// Steps and suites that took less are left out of the printed table.
const SHORTEST: Duration = Duration::from_secs(1);
/// Tests in the printed table.
const SLOWEST: usize = 20;

/// When this process began.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// What took the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A step of xtask.
    Step,
    /// A program that runs tests.
    Suite,
    /// A test of a suite.
    Test,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Suite => "suite",
            Self::Test => "test",
        }
    }
}

#[derive(Clone, Debug)]
struct Record {
    kind: Kind,
    name: String,
    /// Since the start of the process; unknown for tests.
    start: Option<Duration>,
    took: Duration,
}

/// Starts the clock of the run.
pub(crate) fn begin() {
    LazyLock::force(&BEGAN);
}

/// Time since the start of the run.
pub(crate) fn elapsed() -> Duration {
    BEGAN.elapsed()
}

/// Records a step or a suite that ends now.
pub(crate) fn record(kind: Kind, name: &str, started: Instant) {
    records().push(Record {
        kind,
        name: name.to_owned(),
        start: Some(started.saturating_duration_since(*BEGAN)),
        took: started.elapsed(),
    });
}

/// Records a test with the duration that its suite measured.
pub(crate) fn record_test(name: String, took: Duration) {
    records().push(Record {
        kind: Kind::Test,
        name,
        start: None,
        took,
    });
}

/// Writes all durations to `times.tsv` in a folder, and returns the table of the longest.
///
/// The file has the columns kind, start in seconds, duration in seconds, and name.
pub(crate) fn report(folder: &Path) -> Result<String> {
    let records = records().clone();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let file = folder.join("times.tsv");
    fs::write(&file, tsv(&records)).with_context(|| format!("cannot write {}", file.display()))?;
    Ok(table(&records, elapsed()))
}

fn tsv(records: &[Record]) -> String {
    let mut text = String::from("kind\tstart_s\ttook_s\tname\n");
    for record in records {
        let start = record
            .start
            .map_or_else(String::new, |start| format!("{:.1}", start.as_secs_f64()));
        let took = record.took.as_secs_f64();
        let name = record.name.replace(['\t', '\n'], " ");
        let kind = record.kind.name();
        writeln!(text, "{kind}\t{start}\t{took:.2}\t{name}").expect("a string can be written to");
    }
    text
}

fn table(records: &[Record], whole: Duration) -> String {
    let mut text = format!("Durations; the whole run took {}\n", readable(whole));
    for kind in [Kind::Step, Kind::Suite] {
        let mut long: Vec<_> = records
            .iter()
            .filter(|record| record.kind == kind && record.took >= SHORTEST)
            .collect();
        long.sort_by_key(|record| record.start);
        for record in long {
            let start = readable(record.start.unwrap_or_default());
            line(&mut text, record, &format!("  from {start}"));
        }
    }
    let mut tests: Vec<_> = records
        .iter()
        .filter(|record| record.kind == Kind::Test)
        .collect();
    tests.sort_by_key(|record| std::cmp::Reverse(record.took));
    for record in tests.into_iter().take(SLOWEST) {
        line(&mut text, record, "");
    }
    text
}

fn line(text: &mut String, record: &Record, more: &str) {
    let (kind, took) = (record.kind.name(), readable(record.took));
    writeln!(text, "{kind:5} {took:>12}  {}{more}", record.name)
        .expect("a string can be written to");
}

fn records() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: Kind, name: &str, start: Option<u64>, took: u64) -> Record {
        Record {
            kind,
            name: name.to_owned(),
            start: start.map(Duration::from_millis),
            took: Duration::from_millis(took),
        }
    }

    #[test]
    fn the_table_has_steps_by_start_and_the_slowest_tests() {
        let mut records = vec![
            record(Kind::Step, "link", Some(9_000), 2_000),
            record(Kind::Step, "compile", Some(0), 9_000),
            record(Kind::Step, "look", Some(0), 10),
            record(Kind::Suite, "browser", Some(11_000), 61_000),
        ];
        for number in 0..30_u64 {
            records.push(record(Kind::Test, &format!("t{number}"), None, number));
        }
        let text = table(&records, Duration::from_secs(72));
        let names: Vec<_> = text
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .collect();
        assert_eq!(names[0][3], "compile", "{text}");
        assert_eq!(names[1][3], "link", "{text}");
        assert_eq!(names[2].join(" "), "suite 1 min 1 s browser from 11.0 s");
        assert_eq!(names[3][3], "t29", "{text}");
        assert_eq!(names.len(), 3 + SLOWEST, "{text}");
        assert!(text.starts_with("Durations; the whole run took 1 min 12 s\n"));
    }

    #[test]
    fn the_file_has_every_duration() {
        let records = [
            record(Kind::Step, "a\tb", Some(1_500), 10),
            record(Kind::Test, "c", None, 20),
        ];
        let text = tsv(&records);
        let want = "kind\tstart_s\ttook_s\tname\nstep\t1.5\t0.01\ta b\ntest\t\t0.02\tc\n";
        assert_eq!(text, want);
    }
}
