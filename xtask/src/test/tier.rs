//! The slower tier: suites that repeat what others test as well, on another store or in a package. One
//! whose inputs are those of a complete run without failures is left out, and counts as skipped.
//!
//! Inputs are what a suite runs, not what that was built from: the programs of the tests contain every
//! crate, feature and flag. Each run takes one of the suites all the same, in turn, so that an input
//! that is missing here shows.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{Context, tally::Tally};
use crate::{
    build::commit,
    process::query,
    step::{hex, notice},
    up::{BASE_IMAGE, EGRESS_IMAGE},
};

/// Time after which a suite runs again, whatever its inputs are.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Programs that every suite uses.
const PROGRAMS: [&str; 3] = ["opensandbox-server", "execd", "egress"];
/// Commands that say which versions of what is not in the tree a suite uses.
const VERSIONS: [(&str, &[&str]); 5] = [
    ("uname", &["-r"]),
    ("docker", &["version", "--format", "{{.Server.Version}}"]),
    (
        "docker",
        &[
            "image",
            "inspect",
            "--format",
            "{{.Id}}",
            BASE_IMAGE,
            EGRESS_IMAGE,
        ],
    ),
    ("python3", &["--version"]),
    ("sh", &["-c", "ls /usr/lib/postgresql"]),
];

/// A suite of the slower tier.
pub(super) struct Slower {
    /// Name in messages; also that of its record.
    pub(super) name: &'static str,
    /// Files and folders of the tree that it uses.
    pub(super) paths: &'static [&'static str],
}

/// All of them.
pub(super) const ALL: [Slower; 2] = [
    Slower {
        name: "packages",
        paths: &[
            "deploy",
            "docs",
            "xtask",
            "CHANGELOG.md",
            "Cargo.lock",
            "Cargo.toml",
            "LICENSE",
            "README.md",
            "SECURITY.md",
            "deny.toml",
            "package-lock.json",
        ],
    },
    Slower {
        name: "python-on-postgresql",
        paths: &[
            "end2end/sdk",
            "end2end/contract",
            "end2end/conftest.py",
            "end2end/listener.py",
            "end2end/pytest.ini",
            "end2end/target.py",
            "end2end/waiting.py",
        ],
    },
];

/// A complete run of a suite without failures.
#[derive(Debug, Deserialize, Serialize)]
struct Green {
    inputs: String,
    commit: String,
    passed: u64,
}

/// Runs a suite of the slower tier, or counts it as skipped. Each variant of it, such as which tests
/// it takes, has a record of its own.
pub(super) fn run(
    context: &Context<'_>,
    name: &str,
    variant: &str,
    run: impl FnOnce() -> Tally,
) -> Tally {
    let index = ALL.iter().position(|slower| slower.name == name);
    let (Some(index), true) = (index, context.options.is_whole() && !context.options.full) else {
        return run();
    };
    let inputs = match inputs(context, &ALL[index]) {
        Ok(inputs) => inputs,
        Err(error) => {
            notice(&format!("{name}: its inputs are unknown: {error:#}"));
            return run();
        }
    };
    let record = format!("{name}{variant}");
    let record = context.repo.records().join("green").join(record);
    if index != turn(&context.repo.records())
        && let Some(green) = known(&record, &inputs)
    {
        notice(&format!(
            "SKIPPED: {name}: unchanged since {}, {} passed then",
            green.commit, green.passed
        ));
        return Tally {
            skipped: green.passed,
            ..Tally::default()
        };
    }
    // A run that fails, or is ended, leaves none.
    match fs::remove_file(&record) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            notice(&format!("{name}: its old record stays: {error}"));
        }
        _ => {}
    }
    let tally = run();
    if tally.failed == 0 && tally.passed > 0 && !super::stopped() {
        let green = Green {
            inputs,
            commit: commit(context.repo).unwrap_or_default(),
            passed: tally.passed,
        };
        if let Err(error) = write(&record, &green) {
            notice(&format!("{name}: its record cannot be written: {error:#}"));
        }
    }
    tally
}

/// Counts a run that is over, so that the next takes another suite.
pub(super) fn count(context: &Context<'_>) {
    let records = context.repo.records();
    let next = (turn(&records) + 1) % ALL.len();
    let written = fs::create_dir_all(&records)
        .and_then(|()| fs::write(records.join("turn"), next.to_string()));
    if let Err(error) = written {
        notice(&format!("the next run takes the same suite: {error}"));
    }
}

/// Which suite this run takes in any case.
fn turn(records: &Path) -> usize {
    let text = fs::read_to_string(records.join("turn")).unwrap_or_default();
    text.parse::<usize>().unwrap_or_default() % ALL.len()
}

fn known(record: &Path, inputs: &str) -> Option<Green> {
    let age = SystemTime::now().duration_since(record.metadata().ok()?.modified().ok()?);
    let green: Green = serde_json::from_str(&fs::read_to_string(record).ok()?).ok()?;
    (green.inputs == inputs && age.is_ok_and(|age| age < LONGEST)).then_some(green)
}

fn write(record: &Path, green: &Green) -> Result<()> {
    if let Some(folder) = record.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(record, serde_json::to_string(green)?)
        .with_context(|| format!("cannot write {}", record.display()))
}

/// Hash of all that a suite uses.
fn inputs(context: &Context<'_>, slower: &Slower) -> Result<String> {
    let programs = context.repo.dist_for_tests();
    let mut hash = Sha256::new();
    for (program, arguments) in VERSIONS {
        let version = query(Command::new(program).args(arguments)).unwrap_or_default();
        add(&mut hash, program.as_bytes(), version.as_bytes());
    }
    let paths = slower.paths.iter().map(|path| context.repo.path(path));
    let mut files = Vec::new();
    for path in PROGRAMS.iter().map(|name| programs.join(name)).chain(paths) {
        collect(&path, &mut files)?;
    }
    files.sort();
    for file in files {
        let content = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        add(&mut hash, file.to_string_lossy().as_bytes(), &content);
    }
    Ok(hex(&hash.finalize()))
}

fn add(hash: &mut Sha256, name: &[u8], content: &[u8]) {
    for part in [name, content] {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
}

/// Collects the files below a path, without what Python leaves beside them.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        if name != "__pycache__" && name != ".pytest_cache" {
            collect(&entry.path(), files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{repo::Repo, test::Options};

    #[test]
    fn every_input_of_the_tree_exists() {
        let repo = Repo::find().unwrap();
        for path in ALL.iter().flat_map(|slower| slower.paths) {
            assert!(repo.path(path).exists(), "{path}");
        }
    }

    #[test]
    fn a_suite_is_known_by_the_hash_of_its_inputs() {
        let dir = std::env::temp_dir().join(format!("xtask-tier-{}", std::process::id()));
        let record = dir.join("green/suite");
        assert!(known(&record, "a").is_none());
        let green = Green {
            inputs: "a".to_owned(),
            commit: "c0ffee".to_owned(),
            passed: 3,
        };
        write(&record, &green).unwrap();
        assert_eq!(known(&record, "a").map(|green| green.passed), Some(3));
        assert!(known(&record, "b").is_none());
        let old = SystemTime::now() - LONGEST - Duration::from_secs(1);
        fs::File::open(&record).unwrap().set_modified(old).unwrap();
        assert!(known(&record, "a").is_none());
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_run_of_some_tests_neither_uses_nor_writes_records() {
        let repo = Repo::find().unwrap();
        let options = Options {
            no_install: true,
            filter: Some("some".to_owned()),
            ..Options::default()
        };
        let context = Context::new(&repo, &options).unwrap();
        let record = repo.records().join("green/packages");
        let before = fs::read_to_string(&record).ok();
        let ran = run(&context, "packages", "", || Tally::PASSED);
        assert_eq!(ran, Tally::PASSED);
        assert_eq!(fs::read_to_string(&record).ok(), before);
    }
}
