//! `ci`: the checks that must pass before a merge.

use std::process::{Command, ExitCode};

use anyhow::Result;

use crate::{
    build::wasm,
    host::{
        Installer, node,
        toolchain::{Toolchain, WASM},
        tools::DENY,
    },
    process::{self, run},
    repo::Repo,
    step::{in_parallel, notice, step},
    test::{self, Options, tally::Tally},
};

/// Runs the gates, then all tests. A failing gate counts as a failed test.
pub(crate) fn ci(repo: &Repo, options: &Options) -> ExitCode {
    test::limit(options);
    let mut tally = Tally::default();
    let mut count = |checked: Result<()>| {
        tally += match checked {
            Ok(()) => Tally::PASSED,
            Err(error) => {
                notice(&format!("FAILED: {error:#}"));
                Tally::FAILED
            }
        };
    };
    count(step("check the format", || {
        run(cargo(repo).args(["fmt", "--all", "--check"]))
    }));
    // The wasm takes longest and mostly one processor, so the others give way to it.
    let installer = Installer::new(options.may_install());
    let checked = in_parallel(
        || {
            process::give_way();
            Ok(step("check the lints", || lint(repo)))
        },
        || {
            in_parallel(
                || {
                    process::give_way();
                    Ok(step("build what the tests run", || test::build(repo)))
                },
                || {
                    let build = || wasm::build(repo, Toolchain::ensure(WASM, &installer)?);
                    Ok(step("build the wasm", build))
                },
            )
        },
    );
    match checked {
        Ok((lints, (programs, wasm))) => {
            for checked in [lints, programs, wasm] {
                count(checked);
            }
        }
        Err(error) => count(Err(error)),
    }
    let mut gate = |name: &str, check: &dyn Fn() -> Result<()>| count(step(name, check));
    gate("check the types of the browser tests", &|| {
        node::packages(repo, &installer)?;
        run(Command::new("node")
            .args(["node_modules/typescript/bin/tsc", "--project"])
            .arg("end2end/browser/tsconfig.json")
            .current_dir(repo.root()))
    });
    gate("check licences and banned crates", &|| {
        let program = DENY.ensure(repo, &installer)?;
        // Without advisories, whose list is a repository of its own.
        run(Command::new(program)
            .args(["check", "bans", "licenses", "sources"])
            .current_dir(repo.root()))
    });
    tally += test::suites(repo, options);
    test::conclude(repo, tally)
}

/// Runs the lints, in a folder of their own: Cargo locks the folder that it builds in.
fn lint(repo: &Repo) -> Result<()> {
    run(cargo(repo)
        .args(["clippy", "--all-targets"])
        .arg("--target-dir")
        .arg(repo.cargo_target().join("lints"))
        .args(["--", "--deny", "warnings"]))
}

fn cargo(repo: &Repo) -> Command {
    let mut cargo = process::cargo();
    cargo.current_dir(repo.root());
    cargo
}
