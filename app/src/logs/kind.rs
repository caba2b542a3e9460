//! Which lines of a log are shown: by where they were written, and by how bad what they report is.

use crate::live::LogStream;

/// Where a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The entry point's standard output.
    Output,
    /// The entry point's standard error.
    Error,
    /// execd, which writes to the container's standard error as well.
    Daemon,
}

/// How bad what a line reports is, as far as its text says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// It is only informative, or does not say.
    #[default]
    Other,
    /// A warning.
    Warning,
    /// An error, or worse.
    Error,
}

impl Severity {
    /// Its name in the address, and for styles.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Other => "",
            Self::Warning => "warn",
            Self::Error => "error",
        }
    }

    pub(super) fn of_key(key: &str) -> Self {
        match key {
            "warn" => Self::Warning,
            "error" => Self::Error,
            _ => Self::Other,
        }
    }
}

/// What is known of a line beside its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) origin: Origin,
    pub(super) severity: Severity,
}

/// Bytes of a line in which its severity is looked for: loggers write it before the message.
const HEAD: usize = 160;
/// How the lines of execd begin (`crates/log`). A program can write such lines too.
const DAEMON: &str = "{\"level\":\"";
const DAEMON_TIME: &str = "\",\"ts\":\"";

impl Kind {
    /// The kind of a line, from its text without control sequences.
    pub(super) fn of(stream: LogStream, text: &str) -> Self {
        let origin = match stream {
            LogStream::Output => Origin::Output,
            LogStream::Error if is_daemon(text) => Origin::Daemon,
            LogStream::Error => Origin::Error,
        };
        Self {
            origin,
            severity: severity(text),
        }
    }
}

fn is_daemon(text: &str) -> bool {
    let rest = text.strip_prefix(DAEMON);
    rest.and_then(|rest| rest.find('"').and_then(|end| rest.get(end..)))
        .is_some_and(|rest| rest.starts_with(DAEMON_TIME))
}

/// The first word that names a severity decides.
fn severity(text: &str) -> Severity {
    let head = &text[..text.floor_char_boundary(HEAD)];
    let mut words = head.split(|it: char| !it.is_ascii_alphanumeric());
    words.find_map(of_word).unwrap_or_default()
}

fn of_word(word: &str) -> Option<Severity> {
    const ERRORS: [&str; 11] = [
        "error",
        "err",
        "fatal",
        "critical",
        "crit",
        "panic",
        "panicked",
        "severe",
        "emerg",
        "alert",
        "traceback",
    ];
    const WARNINGS: [&str; 2] = ["warn", "warning"];
    const OTHERS: [&str; 5] = ["info", "notice", "debug", "trace", "verbose"];
    let is_one_of = |names: &[&str]| names.iter().any(|name| name.eq_ignore_ascii_case(word));
    if is_one_of(&ERRORS) || is_exception(word) {
        Some(Severity::Error)
    } else if is_one_of(&WARNINGS) {
        Some(Severity::Warning)
    } else if is_one_of(&OTHERS) {
        Some(Severity::Other)
    } else {
        of_klog(word)
    }
}

/// `ValueError` and `IOException`, as many languages name what they throw.
fn is_exception(word: &str) -> bool {
    word.ends_with("Error") || word.ends_with("Exception")
}

/// `E1125`: severity, month and day, as Kubernetes' programs write them.
fn of_klog(word: &str) -> Option<Severity> {
    let (letter, day) = word.split_at_checked(1)?;
    if day.len() != 4 || !day.bytes().all(|it| it.is_ascii_digit()) {
        return None;
    }
    match letter {
        "E" | "F" => Some(Severity::Error),
        "W" => Some(Severity::Warning),
        "I" => Some(Severity::Other),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_severity_is_what_loggers_write_first() {
        for (text, expected) in [
            (
                "2026-01-02 03:04:05,678 ERROR app.db: gone",
                Severity::Error,
            ),
            ("[error] 12#12: *3 open() failed", Severity::Error),
            (
                "{\"level\":\"warn\",\"msg\":\"error rate\"}",
                Severity::Warning,
            ),
            ("level=info msg=\"no error\"", Severity::Other),
            ("W1125 10:00:00.1 1 main.go:3] slow", Severity::Warning),
            ("E1125 10:00:00.1 1 main.go:3] gone", Severity::Error),
            ("Traceback (most recent call last):", Severity::Error),
            ("ValueError: invalid literal", Severity::Error),
            (
                "thread 'main' panicked at src/main.rs:2:5:",
                Severity::Error,
            ),
            ("WARNING: pip is old", Severity::Warning),
            ("0 errors, 3 warnings", Severity::Other),
            ("Terror and terrors", Severity::Other),
            ("", Severity::Other),
        ] {
            assert_eq!(severity(text), expected, "{text}");
        }
        // What comes late in a line is its message.
        let long = format!("{} error", "ä ".repeat(HEAD));
        assert_eq!(severity(&long), Severity::Other);
    }

    #[test]
    fn lines_of_the_daemon_are_recognised() {
        let line = "{\"level\":\"info\",\"ts\":\"2026-01-02T03:04:05.678Z\",\"msg\":\"listening\"}";
        assert_eq!(Kind::of(LogStream::Error, line).origin, Origin::Daemon);
        assert_eq!(Kind::of(LogStream::Output, line).origin, Origin::Output);
        for text in ["{\"level\":\"info\",\"msg\":\"own\"}", "{\"level\":\"", "x"] {
            assert_eq!(
                Kind::of(LogStream::Error, text).origin,
                Origin::Error,
                "{text}"
            );
        }
    }

    #[test]
    fn severities_stand_in_the_address() {
        for severity in [Severity::Other, Severity::Warning, Severity::Error] {
            assert_eq!(Severity::of_key(severity.key()), severity);
        }
        assert_eq!(Severity::of_key("loud"), Severity::Other);
    }
}
