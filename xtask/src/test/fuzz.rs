//! The fuzz targets of execd and egress, ten minutes each, one per processor at a time. Only full
//! runs include them.

use std::{fs, process::Command, sync::Mutex, thread, time::Duration};

use anyhow::{Context as _, Result};

use super::{Context, suite::Suite, tally::Tally};
use crate::{
    interrupt::interrupted,
    process::{self, find_program, run},
    step::{notice, step},
};

/// Folder of the targets.
const FOLDER: &str = "fuzz";
/// Duration of one target, in seconds.
const SECONDS: u64 = 600;
/// Longest time of one target, which may include its build.
const LIMIT: Duration = Duration::from_secs(SECONDS + 20 * 60);

/// Runs every target whose name contains the filter.
pub(super) fn run_all(context: &Context<'_>) -> Tally {
    match targets(context) {
        Ok(tally) => tally,
        Err(error) => context.report_failure("fuzz", &error),
    }
}

fn targets(context: &Context<'_>) -> Result<Tally> {
    let folder = context.repo.path(FOLDER);
    let filter = context.options.filter.as_deref().unwrap_or_default();
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join("seeds"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.contains(filter) {
            names.push(name);
        }
    }
    names.sort();
    if names.is_empty() {
        return Ok(Tally::default());
    }
    install(context)?;
    step("build the fuzz targets", || {
        run(cargo_fuzz(context).arg("build"))
    })?;
    let lanes = thread::available_parallelism().map_or(1, usize::from);
    let (waiting, tally) = (Mutex::new(names.into_iter()), Mutex::new(Tally::default()));
    let next = || waiting.lock().ok()?.next();
    thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while !interrupted()
                    && let Some(name) = next()
                {
                    let result = target(context, &name).unwrap_or_else(|error| {
                        notice(&format!("FAILED: fuzz {name}: {error:#}"));
                        Tally::FAILED
                    });
                    if let Ok(mut tally) = tally.lock() {
                        *tally += result;
                    }
                }
            });
        }
    });
    tally
        .into_inner()
        .ok()
        .context("a run of a fuzz target ended without a result")
}

fn install(context: &Context<'_>) -> Result<()> {
    if find_program("cargo-fuzz").is_some() {
        return Ok(());
    }
    anyhow::ensure!(
        context.installer.may_install(),
        "cargo-fuzz is not installed; run: cargo install cargo-fuzz --locked"
    );
    step("install cargo-fuzz", || {
        run(process::cargo().args(["install", "cargo-fuzz", "--locked"]))
    })
}

fn cargo_fuzz(context: &Context<'_>) -> Command {
    let mut cargo = process::cargo();
    cargo
        .arg("fuzz")
        // The instrumentation is a nightly feature of the compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", context.repo.cargo_target().join("fuzz"))
        .current_dir(context.repo.path(FOLDER));
    cargo
}

fn target(context: &Context<'_>, name: &str) -> Result<Tally> {
    let found = context.repo.cargo_target().join("fuzz/corpus").join(name);
    fs::create_dir_all(&found)?;
    let mut cargo = cargo_fuzz(context);
    cargo
        .args(["run", "--fuzz-dir", ".", name])
        // libFuzzer writes new inputs to the first folder.
        .arg(&found)
        .arg(format!("seeds/{name}"))
        .args(["--", "-print_final_stats=1", "-timeout=20"])
        .arg(format!("-max_total_time={SECONDS}"));
    let suite = Suite {
        name: "fuzz",
        labelled: false,
        limit: LIMIT,
        tests_failed: None,
    };
    Ok(suite.run(&mut cargo, &mut |_| {}, || Ok(Tally::PASSED)))
}
