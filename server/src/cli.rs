//! The command line (contract: lifecycle §16).

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

/// The OpenSandbox server: REST API and console.
#[derive(Debug, Parser)]
#[command(name = "opensandbox-server", version = osb_service::build_info::summary())]
pub struct Cli {
    /// Configuration file; `$SANDBOX_CONFIG_PATH` or ~/.sandbox.toml when absent
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
    /// What to do instead of serving.
    #[command(subcommand)]
    pub command: Option<Command>,
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
