//! `cargo xtask`: the one place that knows how OpenSandbox is set up, built, run, tested and
//! measured. Each command is a module; progress goes to stderr, results to stdout.

mod bench;
mod build;
mod ci;
mod deadline;
mod duration;
mod host;
mod interrupt;
mod load;
mod package;
mod process;
mod progress;
mod repo;
mod step;
mod test;
mod times;
mod up;
mod wait;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{build::Profile, host::Installer, repo::Repo};

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    about = "Set up, build, package, run, test and measure OpenSandbox"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the release artifacts into target/dist: opensandbox-server with its console, execd, and
    /// egress
    Build {
        /// Build with optimisation, as for a release
        #[arg(long)]
        release: bool,
        /// Print what is missing on this machine instead of installing it
        #[arg(long)]
        no_install: bool,
    },
    /// Build what is published for users into target/package: static programs, archives, a Debian
    /// package, bills of materials, licences and checksums
    Package(package::Options),
    /// Set up this machine, build, and run the server with its console
    Up(up::Options),
    /// Stop the server that `up` started
    Down,
    /// Run all tests; the last line is `N passed, N failed, N skipped`
    Test(test::Options),
    /// Measure against raw Docker and plain forks
    #[command(subcommand)]
    Bench(bench::Bench),
    /// Run all checks that must pass before a merge: format, lints, wasm build, tests
    Ci(test::Options),
}

fn main() -> ExitCode {
    times::begin();
    match run(Cli::parse().command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode> {
    let repo = Repo::find()?;
    match command {
        Command::Build {
            release,
            no_install,
        } => {
            let profile = if release {
                Profile::Release
            } else {
                Profile::Dev
            };
            let dist = repo.dist();
            let installer = Installer::new(!no_install);
            host::require_all(host::missing_for_build(&installer))?;
            build::all(&repo, &installer, profile, &dist)?;
            println!("{}", dist.display());
            Ok(ExitCode::SUCCESS)
        }
        Command::Package(options) => package::package(&repo, &options),
        Command::Up(options) => up::up(&repo, &options),
        Command::Down => up::down(),
        Command::Test(options) => Ok(test::test(&repo, &options)),
        Command::Bench(bench) => bench::bench(&repo, &bench),
        Command::Ci(options) => Ok(ci::ci(&repo, &options)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ports_that_can_be_listened_on_are_accepted() {
        let parsed = |port| Cli::try_parse_from(["xtask", "up", "--port", port]).is_ok();
        assert!(parsed("1") && parsed("65535"));
        assert!(!parsed("0") && !parsed("65536"));
    }
}
