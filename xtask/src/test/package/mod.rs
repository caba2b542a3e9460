//! Packages for users, made from the programs of the tests: installed, upgraded, removed, and run in
//! a container.

mod compose;
mod debian;
mod image;
mod output;
mod unit;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Error, Result, ensure};

use super::{Context, tally::Tally};
use crate::{
    interrupt::interrupted,
    package::{
        Build, Papers, check_static,
        debian::{Packing, build as build_debian_package},
        release::Release,
    },
    process::run as run_command,
    step::{notice, step},
};

/// Folder of the checks among the reports.
const FOLDER: &str = "packages";
/// Programs that are packed.
const PROGRAMS: [&str; 3] = ["opensandbox-server", "execd", "egress"];

/// What a check found, unless it failed.
enum Outcome {
    /// Everything is right.
    Passed,
    /// It needs something that this machine does not have.
    Missing(Error),
    /// It cannot be done on this machine, whatever is installed.
    Skipped(String),
}

/// One check.
struct Check {
    name: &'static str,
    on_docker: bool,
    run: fn(&Packaged<'_>) -> Result<Outcome>,
}

static CHECKS: [Check; 7] = [
    Check {
        name: "packages: programs for other systems are static",
        on_docker: false,
        run: programs_are_static,
    },
    Check {
        name: "packages: the Debian package is installed, upgraded and purged",
        on_docker: false,
        run: debian::lifecycle,
    },
    Check {
        name: "packages: systemd accepts the unit",
        on_docker: false,
        run: unit::verify,
    },
    Check {
        name: "packages: the Debian package starts and stops its service",
        on_docker: true,
        run: debian::service,
    },
    Check {
        name: "packages: the image of the server creates sandboxes",
        on_docker: true,
        run: image::serve,
    },
    Check {
        name: "packages: the compose file is valid",
        on_docker: true,
        run: compose::validate,
    },
    Check {
        name: "packages: the compose file starts server and database",
        on_docker: true,
        run: compose::up,
    },
];

/// Runs the checks whose names contain the filter. Without an engine, as the error in `docker` says,
/// those that need one are not run.
pub(super) fn run(context: &Context<'_>, docker: Result<(), &Error>) -> Tally {
    let filter = context.options.filter.as_deref().unwrap_or_default();
    let (mut tally, mut selected) = (Tally::default(), Vec::new());
    for check in CHECKS.iter().filter(|check| check.name.contains(filter)) {
        match docker {
            Err(error) if check.on_docker => {
                tally += context.report_failure(&format!("check {:?}", check.name), error);
            }
            _ => selected.push(check),
        }
    }
    if selected.is_empty() {
        return tally;
    }
    let packaged = match Packaged::prepare(context) {
        Ok(packaged) => packaged,
        Err(error) => {
            notice(&format!("FAILED: packages: {error:#}"));
            tally += Tally::FAILED;
            return tally;
        }
    };
    for check in selected {
        if !interrupted() {
            tally += packaged.check(check);
        }
    }
    tally
}

/// A release of the programs of the tests.
struct Packaged<'a> {
    context: &'a Context<'a>,
    folder: PathBuf,
    programs: PathBuf,
    release: Release,
    papers: Papers,
}

impl<'a> Packaged<'a> {
    fn prepare(context: &'a Context<'a>) -> Result<Self> {
        let folder = context.repo.reports().join(FOLDER);
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("cannot empty {}", folder.display()))?;
        }
        let programs = folder.join("programs");
        fs::create_dir_all(&programs)
            .with_context(|| format!("cannot make {}", programs.display()))?;
        step("strip the programs for the packages", || {
            for name in PROGRAMS {
                let built = context.repo.dist_for_tests().join(name);
                // What debuggers read is most of a test build.
                let mut strip = Command::new("strip");
                run_command(strip.arg("-o").args([&programs.join(name), &built]))?;
            }
            Ok(())
        })?;
        let release = Release::of(context.repo)?;
        let papers = Papers::of(context.repo, &release, &programs)?;
        Ok(Self {
            context,
            folder,
            programs,
            release,
            papers,
        })
    }

    fn check(&self, check: &Check) -> Tally {
        match step(check.name, || (check.run)(self)) {
            Ok(Outcome::Passed) => Tally::PASSED,
            Ok(Outcome::Missing(error)) => {
                let what = format!("check {:?}", check.name);
                self.context.report_failure(&what, &error)
            }
            Ok(Outcome::Skipped(reason)) => {
                notice(&format!("SKIPPED: {}: {reason}", check.name));
                Tally::SKIPPED
            }
            Err(error) => {
                notice(&format!("FAILED: {error:#}"));
                Tally::FAILED
            }
        }
    }

    /// Makes a Debian package of a release in a new folder of this name.
    fn debian_package(&self, release: &Release, name: &str) -> Result<PathBuf> {
        let folder = self.folder.join(name);
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let build = Build::of(std::env::consts::ARCH, self.programs.clone());
        let contents = self.papers.contents(release, &build);
        let work = self.folder.join("work");
        build_debian_package(self.context.repo, &contents, Packing::Test, &work, &folder)
    }

    /// Ensures that a program is on `PATH`, or says why it is not.
    fn needs(&self, program: &str, package: &str) -> Option<Outcome> {
        let found = self.context.installer.program(program, &[package]);
        found.err().map(Outcome::Missing)
    }
}

/// The check for releases accepts those programs that are static in a test build, too, and no other.
fn programs_are_static(packaged: &Packaged<'_>) -> Result<Outcome> {
    let check = |name: &str| check_static(&packaged.programs.join(name), std::env::consts::ARCH);
    check("execd")?;
    check("egress")?;
    let server = check("opensandbox-server");
    let refused = server.as_ref().is_err_and(is_linked);
    ensure!(
        refused,
        "the server of the tests counts as static: {server:?}"
    );
    Ok(Outcome::Passed)
}

fn is_linked(error: &Error) -> bool {
    format!("{error:#}").contains("it is not static")
}

/// Fails unless a file is there.
fn require(path: &Path) -> Result<()> {
    ensure!(path.exists(), "{} is missing", path.display());
    Ok(())
}

/// Fails if a file is there.
fn require_none(path: &Path) -> Result<()> {
    ensure!(!path.exists(), "{} is still there", path.display());
    Ok(())
}
