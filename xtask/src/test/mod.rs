//! `test`: every suite, one count.

mod browser;
mod cargo;
mod leftovers;
mod python;
mod server;
mod suite;
pub(crate) mod tally;

use std::{io::Write, process::ExitCode};

use anyhow::Error;
use clap::Args;

use self::{leftovers::Inventory, tally::Tally};
use crate::{
    build::{self, Profile},
    host::{Installer, engine},
    interrupt::{self, interrupted},
    repo::Repo,
    step::{notice, step},
    up::ensure_base_image,
};

/// Which tests run.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    /// Also the heavy parts
    #[arg(long)]
    full: bool,
    /// Only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print what is missing on this machine instead of installing it
    #[arg(long)]
    no_install: bool,
}

impl Options {
    /// Whether missing packages may be installed.
    pub(crate) fn may_install(&self) -> bool {
        !self.no_install
    }
}

/// What the suites share.
struct Context<'a> {
    repo: &'a Repo,
    installer: Installer,
    options: &'a Options,
}

impl Context<'_> {
    /// Something a suite needs went wrong: where we may install, that is a failure; elsewhere the
    /// machine lacks it, and what could not run is counted as skipped.
    fn could_not(&self, what: &str, error: &Error) -> Tally {
        if self.installer.may_install() {
            notice(&format!("FAILED: could not {what}: {error:#}"));
            Tally::FAILED
        } else {
            notice(&format!("SKIPPED: could not {what}: {error:#}"));
            Tally::SKIPPED
        }
    }
}

/// Runs the suites and prints the count as the last line.
pub(crate) fn test(repo: &Repo, options: &Options) -> ExitCode {
    conclude(suites(repo, options))
}

/// Prints the last line and turns the count into an exit code.
pub(crate) fn conclude(tally: Tally) -> ExitCode {
    println!("{tally}");
    // A closed pipe has nobody to tell.
    let _ = std::io::stdout().flush();
    if tally.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// All suites, whatever the earlier ones gave.
pub(crate) fn suites(repo: &Repo, options: &Options) -> Tally {
    if let Err(error) = interrupt::listen() {
        notice(&format!("Ctrl-C will leave things behind: {error:#}"));
    }
    let installer = Installer::new(options.may_install());
    let context = Context {
        repo,
        installer,
        options,
    };
    if options.full {
        notice("--full: there are no heavy parts yet; this is the plain run");
    }
    // The engine first: Rust tests use it as well.
    let engine = step("the Docker engine answers", || {
        engine::ensure(&context.installer)
    });
    let engine = engine.and_then(|()| Inventory::take());
    let built = step("build what the suites drive", || {
        build::all(
            repo,
            &context.installer,
            Profile::Dev,
            &repo.dist_for_tests(),
        )
    });
    let image = match &engine {
        Ok(_) => ensure_base_image(repo, &context.installer),
        Err(_) => Ok(()),
    };

    let docker = match (&engine, &image) {
        (Err(error), _) | (_, Err(error)) => Err(error),
        (Ok(_), Ok(())) => Ok(()),
    };

    let mut tally = Tally::default();
    if !interrupted() {
        tally += cargo::run(&context, docker);
    }
    match (built, docker) {
        (Ok(()), Ok(())) => {
            for suite in [python::run, browser::run] {
                if !interrupted() {
                    tally += suite(&context);
                }
            }
        }
        (Err(error), _) => {
            notice(&format!("FAILED: the build: {error:#}"));
            tally += Tally::FAILED;
        }
        (Ok(()), Err(error)) => tally += without_docker(&context, error),
    }
    if let Ok(before) = &engine {
        tally += clean(&context, before);
    }
    if interrupted() {
        notice("FAILED: interrupted");
        tally += Tally::FAILED;
    }
    tally
}

/// The suites that drive a server on a real engine, when there is none.
fn without_docker(context: &Context<'_>, error: &Error) -> Tally {
    let mut tally = Tally::default();
    for suite in python::NAMES.into_iter().chain([browser::NAME]) {
        tally += context.could_not(&format!("run the suite {suite:?}"), error);
    }
    tally
}

fn clean(context: &Context<'_>, before: &Inventory) -> Tally {
    let after = Inventory::take().and_then(|after| {
        after.release_networks(before);
        Inventory::take()
    });
    match after {
        Ok(after) => {
            let left = after.beyond(before);
            if left.is_empty() {
                return Tally::PASSED;
            }
            notice(&format!(
                "FAILED: the run left behind:\n{}",
                left.join("\n")
            ));
            Tally::FAILED
        }
        Err(error) => context.could_not("look for leftovers", &error),
    }
}
