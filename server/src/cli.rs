//! The command line (contract: lifecycle §16).

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use osb_service::build_info::BuildInfo;

/// The OpenSandbox server: REST API and console.
#[derive(Debug, Parser)]
#[command(name = "opensandbox-server", version)]
pub struct Cli {
    /// Configuration file; `$SANDBOX_CONFIG_PATH` or ~/.sandbox.toml when absent
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
}

impl Cli {
    /// Reads the arguments of this process. Ends it where they are wrong or only ask for help.
    #[must_use]
    pub fn of_process(build: BuildInfo) -> Self {
        let matches = Self::command().version(build.to_string()).get_matches();
        Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// Other things than serving.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a configuration to begin with.
    InitConfig {
        /// Where to write it.
        #[arg(default_value = "~/.sandbox.toml")]
        path: PathBuf,
        /// Which one.
        #[arg(long, value_enum, default_value_t = Example::Docker)]
        example: Example,
        /// Overwrite an existing file.
        #[arg(long)]
        force: bool,
    },
}

/// Configurations to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// One Docker engine.
    Docker,
}
