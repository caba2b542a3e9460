//! Flags of the supervisor (contract: egress §8.1).

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tracing::Level;

use super::duration;

/// Printed for a wrong flag.
pub const USAGE: &str = "\
usage: supervise [flags] -- command [argument...]
flags (one or two dashes, --flag=value or --flag value; durations as 500ms or 1m30s):
  --pre-start PROGRAM          run before each launch, without a shell; repeatable
  --post-exit PROGRAM          run after each exit, without a shell; repeatable
  --pre-start-timeout DUR      time for each of them (default 30s)
  --post-exit-timeout DUR      time for each of them (default 30s)
  --event-log FILE             write events there, a JSON object per line (default standard error)
  --backoff-min DUR            first wait before a restart (default 1s)
  --backoff-max DUR            longest wait before a restart (default 30s)
  --backoff-jitter FRACTION    random part of a wait, from 0 to 1 (default 0.1)
  --stable-after DUR           uptime after which the waits begin anew (default 60s)
  --burst-window DUR           time in which launches are counted (default 5m)
  --burst-max N                launches in that time that are too many (default 10)
  --on-burst-exit[=BOOL]       exit with status 1 after too many launches (default true)
  --grace-period DUR           time between SIGTERM and SIGKILL (default 10s)
  --hold-sockets[=BOOL]        hold the sidecar's ports while there is no worker (default false)
  --name NAME                  name in the events (default the command's file name)
  --log-level LEVEL            debug, info, warn or error (default info)
";

/// Launches that a breaker can count.
const MOST_LAUNCHES: usize = 10_000;

/// What to keep running, and how.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Program of the worker.
    pub program: OsString,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Name in the events.
    pub name: String,
    /// Programs that run before each launch. If one fails, the launch has failed.
    pub pre_start: Vec<PathBuf>,
    /// Programs that run after each exit.
    pub post_exit: Vec<PathBuf>,
    /// Time for each program before a launch.
    pub pre_start_timeout: Duration,
    /// Time for each program after an exit.
    pub post_exit_timeout: Duration,
    /// File for events; standard error if there is none.
    pub event_log: Option<PathBuf>,
    /// First wait before a restart.
    pub backoff_min: Duration,
    /// Longest wait before a restart.
    pub backoff_max: Duration,
    /// Fraction by which a wait may be longer or shorter, from 0 to 1.
    pub backoff_jitter: f64,
    /// Uptime after which the waits begin anew.
    pub stable_after: Duration,
    /// Time in which the breaker counts launches.
    pub burst_window: Duration,
    /// Launches in that time that trip the breaker.
    pub burst_max: usize,
    /// Whether a tripped breaker ends the supervisor.
    pub on_burst_exit: bool,
    /// Time between SIGTERM and SIGKILL.
    pub grace_period: Duration,
    /// Whether the supervisor holds the sidecar's sockets and lends them to each worker. The caller
    /// opens them.
    pub hold_sockets: bool,
    /// Minimum severity of what the supervisor logs. The caller sets up the log.
    pub log_level: Level,
}

/// Reason to reject the flags.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// The usage was asked for.
    #[error("help requested")]
    Help,
    /// Unknown flag.
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    /// Flag without its value.
    #[error("flag needs an argument: -{0}")]
    NoValue(String),
    /// Invalid value.
    #[error("invalid value for --{name}: expected {expected}")]
    BadValue {
        /// Flag.
        name: String,
        /// Expected format.
        expected: &'static str,
    },
    /// Argument that belongs to no flag.
    #[error("unexpected argument {0:?}: the command follows --")]
    Stray(String),
    /// No command.
    #[error("no command after --")]
    NoCommand,
}

impl Options {
    /// The defaults, for a program without arguments.
    #[must_use]
    pub fn new(program: impl Into<OsString>) -> Self {
        let program = program.into();
        let name = Path::new(&program).file_name().unwrap_or(&program);
        Self {
            name: name.to_string_lossy().into_owned(),
            program,
            arguments: Vec::new(),
            pre_start: Vec::new(),
            post_exit: Vec::new(),
            pre_start_timeout: Duration::from_secs(30),
            post_exit_timeout: Duration::from_secs(30),
            event_log: None,
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(30),
            backoff_jitter: 0.1,
            stable_after: Duration::from_secs(60),
            burst_window: Duration::from_secs(300),
            burst_max: 10,
            on_burst_exit: true,
            grace_period: Duration::from_secs(10),
            hold_sockets: false,
            log_level: Level::INFO,
        }
    }
}

/// Parses the arguments, without the program's own name.
///
/// # Errors
/// See [`UsageError`].
pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Options, UsageError> {
    let flags: Vec<OsString> = args.by_ref().take_while(|arg| arg != "--").collect();
    let program = args.next().filter(|program| !program.is_empty());
    let mut options = Options::new(program.clone().unwrap_or_default());
    options.arguments = args.collect();
    let mut flags = flags.into_iter();
    while let Some(arg) = flags.next() {
        let Some((name, value)) = split(&arg) else {
            return Err(UsageError::Stray(arg.to_string_lossy().into_owned()));
        };
        set(&mut options, &name, value, &mut flags)?;
    }
    if options.backoff_min > options.backoff_max {
        return Err(bad("backoff-min", "at most --backoff-max"));
    }
    program.map(|_| options).ok_or(UsageError::NoCommand)
}

/// Sets the option of one flag. Its value is the next argument unless it came with the flag.
fn set(
    options: &mut Options,
    name: &str,
    value: Option<OsString>,
    rest: &mut impl Iterator<Item = OsString>,
) -> Result<(), UsageError> {
    let mut value = Value { name, value, rest };
    match name {
        "pre-start" => options.pre_start.push(value.program()?),
        "post-exit" => options.post_exit.push(value.program()?),
        "pre-start-timeout" => options.pre_start_timeout = value.duration()?,
        "post-exit-timeout" => options.post_exit_timeout = value.duration()?,
        "event-log" => {
            let path = Some(value.take()?).filter(|path| !path.is_empty());
            options.event_log = path.map(PathBuf::from);
        }
        "backoff-min" => options.backoff_min = value.duration()?,
        "backoff-max" => options.backoff_max = value.duration()?,
        "backoff-jitter" => options.backoff_jitter = value.fraction()?,
        "stable-after" => options.stable_after = value.duration()?,
        "burst-window" => options.burst_window = value.duration()?,
        "burst-max" => options.burst_max = value.launches()?,
        "on-burst-exit" => options.on_burst_exit = value.switch()?,
        "grace-period" => options.grace_period = value.duration()?,
        "hold-sockets" => options.hold_sockets = value.switch()?,
        "name" => {
            let name = value.text()?;
            if !name.is_empty() {
                options.name = name;
            }
        }
        "log-level" => options.log_level = value.level()?,
        "help" | "h" => return Err(UsageError::Help),
        _ => return Err(UsageError::Unknown(name.to_owned())),
    }
    Ok(())
}

/// Value of a flag, not taken yet.
struct Value<'a, I> {
    name: &'a str,
    /// Value that came with the flag.
    value: Option<OsString>,
    rest: &'a mut I,
}

impl<I: Iterator<Item = OsString>> Value<'_, I> {
    fn take(&mut self) -> Result<OsString, UsageError> {
        let value = self.value.take().or_else(|| self.rest.next());
        value.ok_or_else(|| UsageError::NoValue(self.name.to_owned()))
    }

    fn text(&mut self) -> Result<String, UsageError> {
        Ok(self.take()?.to_string_lossy().into_owned())
    }

    fn program(&mut self) -> Result<PathBuf, UsageError> {
        let program = Some(self.take()?).filter(|program| !program.is_empty());
        let program = program.ok_or_else(|| bad(self.name, "the path of a program"))?;
        Ok(program.into())
    }

    fn duration(&mut self) -> Result<Duration, UsageError> {
        let duration = duration::parse(&self.text()?);
        duration.ok_or_else(|| bad(self.name, "a duration such as 500ms or 1m30s"))
    }

    fn fraction(&mut self) -> Result<f64, UsageError> {
        let fraction = self.text()?.parse().ok();
        let fraction = fraction.filter(|fraction| (0.0..=1.0).contains(fraction));
        fraction.ok_or_else(|| bad(self.name, "a fraction from 0 to 1"))
    }

    fn launches(&mut self) -> Result<usize, UsageError> {
        let number = self.text()?.parse().ok();
        let number = number.filter(|number| (1..=MOST_LAUNCHES).contains(number));
        number.ok_or_else(|| bad(self.name, "a number from 1 to 10000"))
    }

    /// As in Go's flag package, a boolean does not take the next argument.
    fn switch(&mut self) -> Result<bool, UsageError> {
        let Some(text) = self.value.take() else {
            return Ok(true);
        };
        match &*text.to_string_lossy() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
            _ => Err(bad(self.name, "true or false")),
        }
    }

    fn level(&mut self) -> Result<Level, UsageError> {
        match self.text()?.to_ascii_lowercase().as_str() {
            "debug" => Ok(Level::DEBUG),
            "info" => Ok(Level::INFO),
            "warn" => Ok(Level::WARN),
            "error" => Ok(Level::ERROR),
            _ => Err(bad(self.name, "debug, info, warn or error")),
        }
    }
}

/// Splits a flag into its name and the value that came with it. `None` if it is no flag.
fn split(arg: &OsStr) -> Option<(String, Option<OsString>)> {
    let arg = arg.as_bytes();
    let flag = arg.strip_prefix(b"--").or_else(|| arg.strip_prefix(b"-"))?;
    let mut parts = flag.splitn(2, |byte| *byte == b'=');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let value = parts
        .next()
        .map(|value| OsStr::from_bytes(value).to_owned());
    Some((String::from_utf8_lossy(name).into_owned(), value))
}

fn bad(name: &str, expected: &'static str) -> UsageError {
    let name = name.to_owned();
    UsageError::BadValue { name, expected }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn read(args: &[&str]) -> Result<Options, UsageError> {
        parse(args.iter().map(OsString::from))
    }

    #[test]
    fn defaults_are_those_of_the_contract() {
        let options = read(&["--", "/opt/egress", "-x", "--", "y"]).unwrap();
        assert_eq!(options.arguments, ["-x", "--", "y"]);
        assert_eq!(options.name, "egress");
        let without_arguments = Options {
            arguments: Vec::new(),
            ..options
        };
        assert_eq!(without_arguments, Options::new("/opt/egress"));
        let seconds = [
            without_arguments.pre_start_timeout,
            without_arguments.post_exit_timeout,
            without_arguments.backoff_min,
            without_arguments.backoff_max,
            without_arguments.stable_after,
            without_arguments.burst_window,
            without_arguments.grace_period,
        ];
        assert_eq!(seconds.map(|it| it.as_secs()), [30, 30, 1, 30, 60, 300, 10]);
        assert_eq!(
            (without_arguments.burst_max, without_arguments.on_burst_exit),
            (10, true)
        );
        assert_eq!(without_arguments.backoff_jitter, 0.1);
    }

    #[test]
    fn flags_come_before_the_dashes_in_any_form() {
        let want = Options {
            arguments: vec!["--name".into(), "worker".into()],
            name: "n".into(),
            pre_start: vec!["/a".into(), "/b=c".into()],
            post_exit: vec!["/d".into()],
            pre_start_timeout: Duration::from_secs(1),
            post_exit_timeout: Duration::from_secs(2),
            event_log: Some("/var/log/x".into()),
            backoff_min: Duration::from_millis(500),
            backoff_max: Duration::from_secs(5400),
            backoff_jitter: 0.0,
            stable_after: Duration::from_secs(3),
            burst_window: Duration::from_secs(60),
            burst_max: 3,
            on_burst_exit: false,
            grace_period: Duration::from_secs(20),
            hold_sockets: true,
            log_level: Level::WARN,
            ..Options::new("w")
        };
        let joined = [
            "--pre-start=/a",
            "-pre-start=/b=c",
            "--post-exit=/d",
            "--pre-start-timeout=1s",
            "--post-exit-timeout=2s",
            "--event-log=/var/log/x",
            "--backoff-min=500ms",
            "--backoff-max=1h30m",
            "--backoff-jitter=0",
            "--stable-after=3s",
            "--burst-window=1m",
            "--burst-max=3",
            "--on-burst-exit=false",
            "-grace-period=20s",
            "--hold-sockets",
            "--name=n",
            "--log-level=WARN",
            "--",
            "w",
            "--name",
            "worker",
        ];
        assert_eq!(read(&joined), Ok(want.clone()));
        let mut apart = Vec::new();
        for arg in joined {
            match arg.split_once('=') {
                Some((name, value)) if name != "--on-burst-exit" => apart.extend([name, value]),
                _ => apart.push(arg),
            }
        }
        assert_eq!(read(&apart), Ok(want));
    }

    #[test]
    fn paths_need_not_be_text() {
        let args = [
            b"--pre-start=/\xff".as_slice(),
            b"--event-log",
            b"/\xfe",
            b"--",
            b"\xfd",
        ];
        let options = parse(args.iter().map(|arg| OsString::from_vec(arg.to_vec()))).unwrap();
        assert_eq!(options.pre_start[0].as_os_str().as_bytes(), b"/\xff");
        assert_eq!(options.event_log.unwrap().as_os_str().as_bytes(), b"/\xfe");
        assert_eq!(options.program.as_bytes(), b"\xfd");
    }

    #[test]
    fn empty_texts_are_the_defaults() {
        let options = read(&[
            "--event-log=",
            "--name",
            "",
            "--on-burst-exit",
            "--",
            "/a/b",
        ])
        .unwrap();
        assert_eq!(options, Options::new("/a/b"));
    }

    #[test]
    fn a_command_is_required() {
        for args in [
            [].as_slice(),
            &["--"],
            &["--", ""],
            &["--name=x"],
            &["--name", "x", "--"],
        ] {
            assert_eq!(read(args), Err(UsageError::NoCommand), "{args:?}");
        }
        let stray = read(&["--name", "x", "worker"]);
        assert_eq!(stray, Err(UsageError::Stray("worker".into())));
        assert_eq!(read(&["-", "--", "w"]), Err(UsageError::Stray("-".into())));
    }

    #[test]
    fn wrong_flags_are_refused() {
        assert_eq!(
            read(&["--nam=x", "--", "w"]),
            Err(UsageError::Unknown("nam".into()))
        );
        assert_eq!(
            read(&["--name", "--", "w"]),
            Err(UsageError::NoValue("name".into()))
        );
        assert_eq!(read(&["-h"]), Err(UsageError::Help));
        for flag in [
            "--pre-start=",
            "--grace-period=soon",
            "--grace-period=-1s",
            "--grace-period=10",
            "--backoff-jitter=1.5",
            "--backoff-jitter=NaN",
            "--backoff-jitter=-0.1",
            "--burst-max=0",
            "--burst-max=10001",
            "--burst-max=x",
            "--on-burst-exit=perhaps",
            "--log-level=loud",
            "--backoff-min=31s",
        ] {
            let error = read(&[flag, "--", "w"]).unwrap_err();
            let name = flag.split('=').next().unwrap();
            assert!(
                error
                    .to_string()
                    .starts_with(&format!("invalid value for {name}: ")),
                "{error}"
            );
        }
    }

    #[test]
    fn the_usage_names_every_flag() {
        for line in USAGE.lines().filter(|line| line.starts_with("  --")) {
            let name = line.trim_start().split([' ', '[']).next().unwrap();
            let known = read(&[&format!("{name}=?"), "--", "w"]);
            assert!(!matches!(known, Err(UsageError::Unknown(_))), "{known:?}");
        }
        assert_eq!(
            USAGE
                .lines()
                .filter(|line| line.starts_with("  --"))
                .count(),
            16
        );
    }
}
