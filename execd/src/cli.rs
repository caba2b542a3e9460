//! Command-line flags, combined with the environment (contract: execd §1.2). Precedence: flag, then
//! environment, then default.

use std::{
    ffi::{OsStr, OsString},
    path::PathBuf,
};

use osb_protocol::execd::DEFAULT_PORT;
use secrecy::{ExposeSecret, SecretString};
use tracing::Level;

use crate::{
    duration,
    env::{names, report},
    file_worker::{self, FileIdentity},
    hook::StatusFile,
    isolated,
    mount_check::ExpectedMount,
};

/// Variable with the tail wait of streams. Streams of this daemon end at once, so only its format
/// is checked.
pub const ENV_GRACE: &str = "EXECD_API_GRACE_SHUTDOWN";

/// Printed for `--help` and for an invalid flag.
pub const USAGE: &str = "\
usage: execd [flags]
       execd init [flags] -- argv...     also run argv as the sandbox's entry point
flags (one or two dashes, --flag=value or --flag value):
  --port N                          port on all IPv4 addresses (default 44772; 0 takes a free one)
  --access-token TOKEN              demand this token on every route but /ping [EXECD_ACCESS_TOKEN]
  --log-level N                     0-2 only errors, 3 error, 4 warn, 5-6 info, 7 and above debug
  --graceful-shutdown-timeout DUR   accepted; streams end with their last event [EXECD_API_GRACE_SHUTDOWN]
  --isolation-config FILE           TOML file for isolated sessions and hardening [EXECD_ISOLATION_CONFIG]
  --expect-mount PATH=DEVICE:INODE  start nothing if something else is mounted there; may be repeated
  --init[=BOOL]                     as the init subcommand
  --lifecycle-startup-status-file PATH
                                    write the progress of the preStart hook there [hooks: OPENSANDBOX_LIFECYCLE]
  --runtime-init[=BOOL]             answer nothing until POST /internal/init [EXECD_RUNTIME_INIT]
  --claim-mark FILE                 keep the claim of POST /internal/init there, beyond a restart
  --version
  --help
of later features, ignored with a warning:
  --jupyter-host, --jupyter-token, --jupyter-idle-poll-interval (each with a value)
";

/// Action that the command line requests.
#[derive(Debug)]
pub enum Invocation {
    /// Run the daemon.
    Serve(Config),
    /// Print the version.
    Version,
    /// Print the usage.
    Help,
    /// Write the state of the shell that started this process to a socket of the daemon ([`report`]).
    ReportState(report::Target),
    /// Serve one file request with another identity ([`file_worker`]).
    FileWorker(FileIdentity),
    /// Run as the init of an isolated session ([`isolated::init`]).
    IsolatedInit,
}

/// Configuration of the daemon.
#[derive(Clone)]
pub struct Config {
    /// Port to listen on; 0 selects a free one.
    pub port: u16,
    /// Token that requests must present.
    pub access_token: Option<SecretString>,
    /// Minimum severity of logged events.
    pub log_level: Level,
    /// Accepted flags without effect.
    pub ignored: Vec<String>,
    /// Configuration file of isolated sessions; it may be absent.
    pub isolation_config: Option<PathBuf>,
    /// Whether the daemon learns only later which sandbox it serves.
    pub runtime_init: bool,
    /// File that keeps which claim the sandbox was given to.
    pub claim_mark: Option<PathBuf>,
    /// File for the startup status.
    pub startup_status: Option<StatusFile>,
    /// What must be mounted where. Checked before the daemon runs.
    pub expected_mounts: Vec<ExpectedMount>,
    /// The user's entry point, when the daemon is init. If empty, a shell runs.
    pub entrypoint: Option<Vec<OsString>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config")
            .field("port", &self.port)
            .field(
                "access_token",
                &self
                    .access_token
                    .as_ref()
                    .map(|token| masked(token.expose_secret())),
            )
            .field("log_level", &format_args!("{}", self.log_level))
            .field("init", &self.entrypoint.is_some())
            .field("runtime_init", &self.runtime_init)
            .finish()
    }
}

/// Reason to reject the command line.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CliError {
    /// Unknown flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// Flag without its value.
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    /// Invalid value.
    #[error("invalid value for {name}: expected {expected}")]
    BadValue {
        /// Flag or variable.
        name: &'static str,
        /// Expected format.
        expected: &'static str,
    },
}

/// Whether the first argument selects a helper process of the daemon.
#[must_use]
pub fn is_helper(first: &OsStr) -> bool {
    [
        report::SUBCOMMAND,
        file_worker::SUBCOMMAND,
        isolated::init::SUBCOMMAND,
    ]
    .iter()
    .any(|name| first == *name)
}

/// Parses the arguments (without the program's name), with variables as fallback.
///
/// # Errors
/// See [`CliError`].
pub fn parse(
    args: impl IntoIterator<Item = OsString>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Invocation, CliError> {
    let mut args = args.into_iter().peekable();
    let mut init = false;
    match args.peek().and_then(|arg| arg.to_str()) {
        Some("init") => {
            init = true;
            args.next();
        }
        Some(report::SUBCOMMAND) => {
            args.next();
            let target = report_target(args).ok_or_else(|| {
                let expected = "a descriptor, device and inode of a socket, and a UUID";
                bad(report::SUBCOMMAND, expected)
            })?;
            return Ok(Invocation::ReportState(target));
        }
        Some(isolated::init::SUBCOMMAND) => return Ok(Invocation::IsolatedInit),
        Some(file_worker::SUBCOMMAND) => {
            args.next();
            let mut number = || {
                args.next()
                    .unwrap_or_default()
                    .to_string_lossy()
                    .into_owned()
            };
            return FileIdentity::parse(&number(), &number())
                .map(Invocation::FileWorker)
                .map_err(|_| bad(file_worker::SUBCOMMAND, "a user and a group"));
        }
        _ => {}
    }
    let mut config = Config {
        port: DEFAULT_PORT,
        access_token: variable(names::ACCESS_TOKEN).map(SecretString::from),
        log_level: Level::INFO,
        ignored: Vec::new(),
        isolation_config: variable(names::ISOLATION_CONFIG)
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        runtime_init: false,
        claim_mark: None,
        startup_status: None,
        expected_mounts: Vec::new(),
        entrypoint: None,
    };
    if let Some(text) = variable(names::RUNTIME_INIT).filter(|text| !text.is_empty()) {
        let wanted = boolean(&text);
        config.runtime_init = wanted.ok_or_else(|| bad(names::RUNTIME_INIT, "true or false"))?;
    }
    if let Some(grace) = variable(ENV_GRACE).filter(|grace| !grace.is_empty()) {
        duration::parse(&grace).ok_or_else(|| bad(ENV_GRACE, A_DURATION))?;
    }
    // As in Go's flag package, the first argument that is not a flag ends the flags.
    while let Some(flag) = args.peek().and_then(flag_of) {
        args.next();
        let Some((name, value)) = flag else { break };
        let switch = |name| match &value {
            None => Ok(true),
            Some(text) => boolean(text).ok_or_else(|| bad(name, "true or false")),
        };
        let mut value = || {
            let next = || args.next().map(|arg| arg.to_string_lossy().into_owned());
            value
                .clone()
                .or_else(next)
                .ok_or_else(|| CliError::NoValue(name.clone()))
        };
        match name.as_str() {
            "port" => config.port = parsed("--port", "a port number", &value()?)?,
            "access-token" => config.access_token = Some(value()?.into()),
            "log-level" => {
                config.log_level = level(parsed("--log-level", "a number", &value()?)?);
            }
            "graceful-shutdown-timeout" => {
                duration::parse(&value()?)
                    .ok_or_else(|| bad("--graceful-shutdown-timeout", A_DURATION))?;
            }
            "expect-mount" => {
                let mount = ExpectedMount::parse(&value()?);
                let mount = mount.ok_or_else(|| bad("--expect-mount", "PATH=DEVICE:INODE"))?;
                config.expected_mounts.push(mount);
            }
            "init" => init |= switch("--init")?,
            "isolation-config" => {
                config.isolation_config = Some(value()?)
                    .filter(|path| !path.is_empty())
                    .map(PathBuf::from);
            }
            "jupyter-host" | "jupyter-token" | "jupyter-idle-poll-interval" => {
                value()?;
                config.ignored.push(name);
            }
            "lifecycle-startup-status-file" => {
                config.startup_status = Some(StatusFile::at(value()?));
            }
            "claim-mark" => {
                config.claim_mark = Some(PathBuf::from(value()?));
            }
            "runtime-init" => config.runtime_init = switch("--runtime-init")?,
            "version" => return Ok(Invocation::Version),
            "help" | "h" => return Ok(Invocation::Help),
            _ => return Err(CliError::Unknown(name)),
        }
    }
    config.access_token = config
        .access_token
        .filter(|token| !token.expose_secret().is_empty());
    // Outside init mode stray arguments are ignored (contract: execd §1.1).
    config.entrypoint = init.then(|| args.collect());
    Ok(Invocation::Serve(config))
}

fn report_target(args: impl Iterator<Item = OsString>) -> Option<report::Target> {
    let mut args = args.map(|arg| arg.to_string_lossy().into_owned());
    Some(report::Target {
        number: args.next()?.parse().ok()?,
        device: args.next()?.parse().ok()?,
        inode: args.next()?.parse().ok()?,
        nonce: args.next()?.parse().ok()?,
    })
}

/// `None`: not a flag. `Some(None)`: the `--` that ends the flags.
#[expect(clippy::option_option, reason = "three cases, named right above")]
fn flag_of(arg: &OsString) -> Option<Option<(String, Option<String>)>> {
    let arg = arg.to_str()?;
    let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'))?;
    if body.is_empty() {
        return (arg == "--").then_some(None);
    }
    Some(Some(match body.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (body.to_owned(), None),
    }))
}

const A_DURATION: &str = "a duration such as 500ms or 1m30s";

fn bad(name: &'static str, expected: &'static str) -> CliError {
    CliError::BadValue { name, expected }
}

fn parsed<T: std::str::FromStr>(
    name: &'static str,
    expected: &'static str,
    text: &str,
) -> Result<T, CliError> {
    text.parse().map_err(|_| bad(name, expected))
}

/// Parses a boolean in Go's spellings.
fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn level(number: i32) -> Level {
    match number {
        ..=3 => Level::ERROR,
        4 => Level::WARN,
        5 | 6 => Level::INFO,
        _ => Level::DEBUG,
    }
}

/// First and last four characters of a secret; empty for a short one.
#[must_use]
pub fn masked(secret: &str) -> String {
    let chars: Vec<char> = secret.chars().collect();
    if chars.len() <= 8 {
        return "****".to_owned();
    }
    let end: String = chars[chars.len() - 4..].iter().collect();
    let start: String = chars[..4].iter().collect();
    format!("{start}****{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str], token: Option<&str>) -> Result<Invocation, CliError> {
        parse(args.iter().map(OsString::from), |name| {
            (name == names::ACCESS_TOKEN)
                .then(|| token.map(str::to_owned))
                .flatten()
        })
    }

    fn config(args: &[&str], token: Option<&str>) -> Config {
        match read(args, token) {
            Ok(Invocation::Serve(config)) => config,
            other => panic!("{args:?}: {other:?}"),
        }
    }

    fn token(config: &Config) -> Option<&str> {
        config
            .access_token
            .as_ref()
            .map(ExposeSecret::expose_secret)
    }

    #[test]
    fn flags_take_precedence_over_variables() {
        for args in [
            ["--port=1", "--access-token=flag"].as_slice(),
            &["-port", "1", "-access-token", "flag"],
        ] {
            let config = config(args, Some("variable"));
            assert_eq!(config.port, 1);
            assert_eq!(token(&config), Some("flag"));
        }
        let plain = config(&[], Some("variable"));
        assert_eq!(token(&plain), Some("variable"));
        assert_eq!((plain.port, plain.entrypoint), (44772, None));
        assert_eq!(token(&config(&[], Some(""))), None);
    }

    #[test]
    fn several_mounts_can_be_expected() {
        let args = [
            "init",
            "--expect-mount=/a=1:2",
            "--expect-mount",
            "/b=c=3:4",
            "--",
            "true",
        ];
        let mounts = config(&args, None).expected_mounts;
        let want = ["/a=1:2", "/b=c=3:4"].map(|text| ExpectedMount::parse(text).unwrap());
        assert_eq!(mounts, want);
    }

    #[test]
    fn stray_arguments_are_ignored_and_entry_points_kept() {
        assert_eq!(config(&["tail", "-f", "/dev/null"], None).entrypoint, None);
        let argv = |config: Config| config.entrypoint.unwrap();
        let want = [OsString::from("sleep"), "--port".into()];
        assert_eq!(argv(config(&["init", "--", "sleep", "--port"], None)), want);
        assert_eq!(
            argv(config(
                &["--init", "--port", "0", "--", "sleep", "--port"],
                None
            )),
            want
        );
        assert_eq!(argv(config(&["init", "sleep", "--port"], None)), want);
        let commanded = argv(config(&["init", "--", "-c", "true"], None));
        assert_eq!(commanded, ["-c", "true"]);
        assert!(argv(config(&["init"], None)).is_empty());
    }

    #[test]
    fn flags_of_later_features_are_ignored() {
        let args = [
            "--jupyter-host=http://127.0.0.1:8888",
            "--jupyter-token",
            "secret",
            "-jupyter-idle-poll-interval=1s",
            "--isolation-config=/x",
            "--lifecycle-startup-status-file",
            "/y",
            "--init=false",
            "--port=1",
        ];
        let config = config(&args, None);
        assert_eq!((config.port, config.ignored.len()), (1, 3));
        assert_eq!(config.startup_status, Some(StatusFile::at("/y")));
        assert!(!config.ignored.concat().contains("secret"));
        assert_eq!(config.entrypoint, None);
    }

    #[test]
    fn the_runtime_init_flag_takes_precedence_over_its_variable() {
        let read = |args: &[&str], value: &str| {
            let args = args.iter().map(OsString::from);
            let read = parse(args, |name| {
                (name == names::RUNTIME_INIT).then(|| value.to_owned())
            });
            match read {
                Ok(Invocation::Serve(config)) => Ok(config.runtime_init),
                Ok(other) => panic!("{other:?}"),
                Err(error) => Err(error.to_string()),
            }
        };
        assert_eq!(read(&[], ""), Ok(false));
        assert_eq!(read(&[], "1"), Ok(true));
        assert_eq!(read(&["--runtime-init=false"], "true"), Ok(false));
        assert_eq!(read(&["--runtime-init"], "f"), Ok(true));
        let refused = read(&[], "perhaps").unwrap_err();
        assert!(refused.contains("EXECD_RUNTIME_INIT"), "{refused}");
        assert!(read(&["--runtime-init=perhaps"], "").is_err());
    }

    #[test]
    fn wrong_flags_are_refused() {
        for args in [
            ["--prot", "1"].as_slice(),
            &["--port"],
            &["--port=x"],
            &["--port=65536"],
            &["--graceful-shutdown-timeout=soon"],
            &["--expect-mount=/a"],
            &["--init=perhaps"],
            &["--jupyter-token"],
        ] {
            assert!(read(args, None).is_err(), "{args:?}");
        }
        assert!(matches!(read(&["-version"], None), Ok(Invocation::Version)));
        assert!(matches!(read(&["--help"], None), Ok(Invocation::Help)));
    }

    #[test]
    fn debug_output_hides_secrets() {
        assert_eq!(masked("12345678"), "****");
        assert_eq!(masked("1234abcd5678"), "1234****5678");
        let shown = format!("{:?}", config(&[], Some("1234abcd5678")));
        assert!(!shown.contains("abcd"), "{shown}");
    }
}
