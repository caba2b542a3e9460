//! The tests of what changed, for `--under-load`: those in changed files, those of changed modules,
//! and those that were flaky in the latest runs.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};

use super::repeat::{self, Name};
use crate::{process::query, repo::Repo};

/// Folders of the suites in Python, below `end2end`.
const FOLDERS: [&str; 4] = ["sdk", "contract", "cli", "agents"];
/// Every file of such a folder.
pub(super) const ALL: &str = ".";

/// Tests to run, by their suite. A suite without any is not run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// Filters of the runner of the Rust tests.
    rust: BTreeSet<String>,
    /// Files of the suites in Python, below `end2end`.
    python: BTreeSet<String>,
    /// Files of the browser tests.
    browser: BTreeSet<String>,
    /// Whether the tests in JavaScript are among them.
    pub(super) javascript: bool,
}

impl Changed {
    /// The tests of what differs from the commit `base`, committed or not.
    ///
    /// # Errors
    /// When git does not know the commit.
    pub(super) fn since(repo: &Repo, base: &str) -> Result<Self> {
        let git = |arguments: &[&str]| {
            query(
                Command::new("git")
                    .arg("-C")
                    .arg(repo.root())
                    .args(arguments),
            )
        };
        let fork = git(&["merge-base", "HEAD", base])
            .with_context(|| format!("cannot compare with {base:?}; name a commit"))?;
        let differs = git(&["diff", "--name-only", "--diff-filter=d", &fork])?;
        let untracked = git(&["ls-files", "--others", "--exclude-standard"])?;
        let mut changed = Self::default();
        for path in differs.lines().chain(untracked.lines()) {
            changed.add_file(path);
        }
        for name in repeat::known_flaky(&repo.records()) {
            let file = name.file.as_ref();
            // A file may have been renamed since.
            if file.is_none_or(|file| repo.path("end2end").join(file).exists()) {
                changed.add_flaky(&name);
            }
        }
        ensure!(
            changed != Self::default(),
            "nothing with tests changed since {base}"
        );
        Ok(changed)
    }

    /// Adds the tests in a file, or all those that use it.
    fn add_file(&mut self, path: &str) {
        let below = path.strip_prefix("end2end/").unwrap_or_default();
        let (folder, name) = below.rsplit_once('/').unwrap_or(("", below));
        if below.ends_with(".py") && name.starts_with("test_") {
            self.python.insert(below.to_owned());
        } else if below.ends_with(".py") && FOLDERS.contains(&folder) {
            self.python.insert(format!("{folder}/{ALL}"));
        } else if below.ends_with(".py") && folder.is_empty() {
            let all = FOLDERS.map(|folder| format!("{folder}/{ALL}"));
            self.python.extend(all);
        } else if folder == "js" {
            self.javascript = true;
        } else if folder == "browser" && name.ends_with(".spec.ts") {
            self.browser.insert(name.to_owned());
        } else if folder == "browser" && name.ends_with(".ts") {
            self.browser.insert(".spec.ts".to_owned());
        } else if path.starts_with("crates/testkit/src/") {
            self.rust.insert("package(=osb-testkit)".to_owned());
        } else if let Some(filter) = rust_filter(path) {
            self.rust.insert(filter);
        }
    }

    fn add_flaky(&mut self, name: &Name) {
        if let Some(file) = &name.file {
            self.python.insert(file.clone());
        } else if name.group.ends_with(".spec.ts") {
            self.browser.insert(file_name(&name.group).to_owned());
        } else if name.group.contains("::") || name.group.starts_with("osb-") {
            let (group, name) = (&name.group, &name.name);
            self.rust
                .insert(format!("(binary_id(={group}) & test(={name}))"));
        } else {
            self.javascript = true;
        }
    }

    /// A filter for the runner of the Rust tests; `None` if there are none.
    pub(super) fn rust(&self) -> Option<String> {
        let all: Vec<_> = self.rust.iter().map(String::as_str).collect();
        (!all.is_empty()).then(|| all.join(" + "))
    }

    /// Names of test files in Python in a folder below `end2end`, or [`ALL`].
    pub(super) fn python(&self, folder: &str) -> Vec<&str> {
        self.python
            .iter()
            .filter_map(|path| path.strip_prefix(folder)?.strip_prefix('/'))
            .collect()
    }

    /// Whether any test in Python is among them.
    pub(super) fn has_python(&self) -> bool {
        !self.python.is_empty()
    }

    /// Names of the files of browser tests.
    pub(super) fn browser(&self) -> Vec<&str> {
        self.browser.iter().map(String::as_str).collect()
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A filter for the tests in a file of Rust, and in the modules below it.
fn rust_filter(path: &str) -> Option<String> {
    let stem = path.strip_suffix(".rs")?;
    let (folder, kind, below) =
        [("src", "lib"), ("tests", "test")]
            .into_iter()
            .find_map(|(source, kind)| {
                let (folder, below) = stem.split_once(&format!("{source}/"))?;
                Some((folder.trim_end_matches('/'), kind, below))
            })?;
    let folder = Path::new(folder).file_name()?.to_str()?;
    // A package is named after its folder.
    let package = match folder {
        "xtask" => folder.to_owned(),
        _ => format!("osb-{folder}"),
    };
    let mut modules: Vec<&str> = below.split('/').collect();
    let target = (kind == "test").then(|| modules.remove(0));
    while modules
        .last()
        .is_some_and(|last| ["mod", "lib", "main", "tests"].contains(last))
    {
        modules.pop();
    }
    let within = match modules.is_empty() {
        true => String::new(),
        false => format!(" & test(/^{}::/)", modules.join("::")),
    };
    Some(match target {
        Some(target) => format!("(package(={package}) & binary(={target}){within})"),
        None => format!("(package(={package}) & (kind(=lib) + kind(=bin)){within})"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changed_files_select_the_tests_in_them() {
        let mut changed = Changed::default();
        for path in [
            "end2end/sdk/test_files.py",
            "end2end/contract/test_pty.py",
            "end2end/cli/conftest.py",
            "end2end/browser/list.spec.ts",
            "README.md",
        ] {
            changed.add_file(path);
        }
        assert_eq!(changed.python("sdk"), ["test_files.py"]);
        assert_eq!(changed.python("cli"), [ALL]);
        assert_eq!(changed.python("contract"), ["test_pty.py"]);
        assert_eq!(changed.browser(), ["list.spec.ts"]);
        assert!(!changed.javascript);
        assert_eq!(changed.rust(), None);
        changed.add_file("end2end/js/pools.js");
        assert!(changed.javascript);
    }

    #[test]
    fn what_all_tests_of_a_suite_use_selects_all_of_them() {
        let mut changed = Changed::default();
        changed.add_file("end2end/waiting.py");
        for folder in FOLDERS {
            assert_eq!(changed.python(folder), [ALL], "{folder}");
        }
        changed.add_file("end2end/browser/own.ts");
        assert_eq!(changed.browser(), [".spec.ts"]);
        changed.add_file("crates/testkit/src/server.rs");
        assert_eq!(changed.rust().as_deref(), Some("package(=osb-testkit)"));
    }

    #[test]
    fn changed_modules_select_their_tests() {
        let filter = |path| rust_filter(path).unwrap();
        let runtime =
            "(package(=osb-runtime) & (kind(=lib) + kind(=bin)) & test(/^docker::volumes::/))";
        assert_eq!(filter("crates/runtime/src/docker/volumes/mod.rs"), runtime);
        assert_eq!(
            filter("crates/runtime/src/docker/volumes/tests.rs"),
            runtime
        );
        assert_eq!(
            filter("crates/testkit/tests/server/access/rows.rs"),
            "(package(=osb-testkit) & binary(=server) & test(/^access::rows::/))"
        );
        assert_eq!(
            filter("egress/tests/network.rs"),
            "(package(=osb-egress) & binary(=network))"
        );
        assert_eq!(
            filter("xtask/src/main.rs"),
            "(package(=xtask) & (kind(=lib) + kind(=bin)))"
        );
        assert_eq!(rust_filter("server/build.rs"), None);
    }

    #[test]
    fn flaky_tests_are_among_them() {
        let flaky = |group: &str, name: &str, file: Option<&str>| Name {
            suite: "any".to_owned(),
            group: group.to_owned(),
            name: name.to_owned(),
            file: file.map(str::to_owned),
        };
        let mut changed = Changed::default();
        changed.add_flaky(&flaky("osb-testkit::server", "a::b", None));
        changed.add_flaky(&flaky("sdk.test_a", "test_b", Some("sdk/test_a.py")));
        changed.add_flaky(&flaky("list.spec.ts", "rows › stay", None));
        changed.add_flaky(&flaky("test", "pools", None));
        let want = "(binary_id(=osb-testkit::server) & test(=a::b))";
        assert_eq!(changed.rust().as_deref(), Some(want));
        assert_eq!(changed.python("sdk"), ["test_a.py"]);
        assert_eq!(changed.browser(), ["list.spec.ts"]);
        assert!(changed.javascript);
    }
}
