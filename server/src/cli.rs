//! The command line (contract: lifecycle §16).

use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use osb_protocol::identity::Role;
use osb_service::build_info::BuildInfo;
use secrecy::SecretString;

/// The OpenSandbox server: REST API and console.
#[derive(Debug, Parser)]
#[command(name = "opensandbox-server", version)]
pub struct Cli {
    /// Configuration file; `$SANDBOX_CONFIG_PATH` or ~/.sandbox.toml when absent
    #[arg(long, value_name = "PATH", global = true)]
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
    /// Look at the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Save the store, put a saved one back, look for damage.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Copy the snapshots of another OpenSandbox server, from its SQLite file, into the store; a server may
    /// be running. Snapshots that the store has already are skipped.
    MigrateSnapshots {
        /// SQLite file of the other server. It is only read.
        #[arg(
            long,
            value_name = "SQLITE_PATH",
            default_value = "~/.opensandbox/opensandbox.db"
        )]
        from: PathBuf,
        /// Connection string of a store in PostgreSQL; the configured store when absent.
        #[arg(long, value_name = "POSTGRESQL_DSN")]
        to: Option<SecretString>,
        /// Only count, and write nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Ask the running server whether it answers. Exit status 1 means that it does not.
    Health {
        /// Also whether sandboxes can be created.
        #[arg(long)]
        ready: bool,
    },
    /// Collect what a report about a problem needs, without secrets, in a new archive.
    SupportBundle {
        /// The archive; named by the time when absent.
        file: Option<PathBuf>,
    },
    /// Manage users. Works beside a running server, which notices within two seconds.
    User {
        /// What to do.
        #[command(subcommand)]
        command: UserCommand,
    },
    /// Manage API keys. Works beside a running server, which notices within two seconds.
    Key {
        /// What to do.
        #[command(subcommand)]
        command: KeyCommand,
    },
}

/// What to do with the store.
#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Save the store in a new file; a server may be running.
    Backup {
        /// The file; named by the time when absent.
        file: Option<PathBuf>,
    },
    /// Put a saved store in the place of the present one, which is kept under another name; no
    /// server may be running.
    Restore {
        /// What `store backup` wrote.
        file: PathBuf,
    },
    /// Look for damage; a server may be running. Exit status 1 means that there is some.
    Check {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Print every key with its value, without secrets, and where the value came from.
    Show {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

/// Help about roles.
const ROLES: &str = "read_only, operator or service_admin";

/// What to do with users. Passwords are asked for, or read from the first line of standard input.
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Add a user.
    Add {
        /// Name to sign in with.
        name: String,
        /// What it may do.
        #[arg(long, default_value_t = Role::ReadOnly, help = ROLES)]
        role: Role,
        /// Tenant that the user is limited to.
        #[arg(long)]
        tenant: Option<String>,
    },
    /// Set a new password and let the user sign in again; ends the user's sessions.
    Reset {
        /// Name of the user.
        name: String,
    },
    /// Delete a user.
    Remove {
        /// Name of the user.
        name: String,
    },
    /// List users.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

/// What to do with API keys.
#[derive(Debug, Subcommand)]
pub enum KeyCommand {
    /// Make an API key and print its secret, once.
    Add {
        /// Name for people.
        name: String,
        /// What it may do.
        #[arg(long, default_value_t = Role::ReadOnly, help = ROLES)]
        role: Role,
        /// Tenant that the key is limited to.
        #[arg(long)]
        tenant: Option<String>,
        /// Days after which the key stops working; never when absent.
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: Option<u32>,
    },
    /// List API keys.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Revoke an API key.
    Revoke {
        /// Id of the key, or the beginning of its secret as the list shows it.
        key: String,
    },
}

/// Configurations to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Example {
    /// One Docker engine.
    Docker,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_can_be_named_before_and_behind_a_command() {
        Cli::command().debug_assert();
        for words in [
            ["opensandbox-server", "--config", "a", "store", "check"],
            ["opensandbox-server", "store", "check", "--config", "a"],
        ] {
            let cli = Cli::try_parse_from(words).unwrap();
            assert_eq!(cli.config, Some(PathBuf::from("a")));
            let command = cli.command.unwrap();
            let is_check = matches!(command, Command::Store(StoreCommand::Check { json: false }));
            assert!(is_check, "{command:?}");
        }
    }
}
