//! Scripts in which a shell evaluates a client's text between commands of the daemon.
//!
//! `bash` reads everything from its standard input, as one compound command: the text is evaluated
//! inside and cannot redefine any of it. The exit statuses are those of a script file; `bash -c`
//! has others. Other shells take the text as an argument, or from a file if it is too long.

use std::{
    borrow::Cow,
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::fs::{MemfdFlags, memfd_create};

/// Arguments of a `bash` that reads its script from standard input.
pub(crate) const BASH_ARGUMENTS: [&str; 2] = ["--noprofile", "--norc"];

/// Maximum size of one argument or variable, with its terminating NUL (`MAX_ARG_STRLEN`).
pub(crate) const ARGUMENT: usize = 128 << 10;

/// Whether a text is passed in a file. The limit is well below that of one argument, because
/// arguments and variables share another one.
pub(crate) fn is_long(text: &str) -> bool {
    text.len() > ARGUMENT / 2
}

/// Text with a line end, as script files have one: without it a trailing backslash would be
/// literal.
pub(crate) fn with_line_end(text: &str) -> Cow<'_, str> {
    if text.ends_with('\n') {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("{text}\n"))
    }
}

/// Writes a text to a nameless file.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub(crate) fn in_file(text: &str) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create("execd", MemfdFlags::CLOEXEC)?);
    // The shell shares the file position, which stays at the beginning.
    file.write_all_at(text.as_bytes(), 0)?;
    Ok(file.into())
}

/// Script for `bash`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BashScript<'a> {
    /// Commands to run first, each with its terminator.
    pub(crate) before: &'a str,
    /// Expansion of a line to evaluate together with the text, so that its options and traps do not
    /// apply to the evaluation itself. The positional parameters are available to it, and then
    /// removed.
    pub(crate) preamble: Option<&'a str>,
    /// The client's text.
    pub(crate) text: &'a str,
    /// Commands to run when the text has been evaluated, with the status in `${PIPESTATUS[0]}`.
    /// They must leave it in `$1`, remove any `DEBUG` trap, and turn off tracing. The text's `EXIT`
    /// trap runs after them.
    pub(crate) after: Option<&'a str>,
}

impl BashScript<'_> {
    /// Contents of the shell's standard input.
    pub(crate) fn to_input(self) -> String {
        let before = self.before;
        let text = on_one_line(&with_line_end(self.text));
        // The preamble is a line of its own, so that syntax errors do not quote it. The shell
        // numbers evaluated lines from the current value of LINENO, so the text begins with line 1.
        let preamble = self
            .preamble
            .map(|line| format!(r#""\\builtin shift $(($# + (LINENO = 0))); {line}"$'\n'"#));
        let preamble = preamble.unwrap_or_default();
        match self.after {
            None => format!("{{ exec </dev/null; {before}builtin eval {preamble}{text}\n}}\n"),
            // Inverted, because with `set -e` a status other than 0 would end the shell here.
            Some(after) => format!(
                r#"{{ exec </dev/null; {before}! builtin eval {preamble}{text}
{after}
builtin eval "\\builtin set --; \\builtin exit $1"; }}
"#
            ),
        }
    }
}

/// Quotes a text as one `bash` word without line breaks, so that the shell reports the line numbers
/// of the text.
fn on_one_line(text: &str) -> String {
    let mut word = String::with_capacity(text.len() + text.len() / 16 + 3);
    word.push_str("$'");
    for char in text.chars() {
        match char {
            '\n' => word.push_str("\\n"),
            '\\' | '\'' => word.extend(['\\', char]),
            other => word.push(other),
        }
    }
    word.push('\'');
    word
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output, Stdio};

    use super::*;

    fn bash(script: &str, locale: &str) -> Output {
        Command::new("bash")
            .args(BASH_ARGUMENTS)
            .env("LC_ALL", locale)
            .stdin(Stdio::from(in_file(script).unwrap()))
            .output()
            .unwrap()
    }

    #[test]
    fn every_text_is_one_line_of_the_same_meaning() {
        let mut text: String = (1..=u8::MAX).map(char::from).collect();
        text.push_str("\u{2028}$(x) \\\\n '\\'' \u{10ffff}\n");
        let word = on_one_line(&text);
        assert!(!word.contains('\n'));
        for locale in ["C", "C.UTF-8"] {
            let output = bash(&format!("builtin printf %s {word}\n"), locale);
            let same = output.stdout == text.as_bytes();
            assert!(
                same,
                "{locale}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }

    /// Options and traps of the preamble apply to the text, whose first line is line 1, and to no
    /// command around it.
    #[test]
    fn a_preamble_applies_to_the_text_and_moves_no_line() {
        let script = BashScript {
            before: "builtin set -- \"trap 'echo E' ERR; set -ex\"; ",
            preamble: Some("$1"),
            text: "echo $LINENO $#\n[ -f /nonexistent ] && echo no",
            after: Some(
                r#"{ builtin set +x -- "${PIPESTATUS[0]}"; } 2>/dev/null; builtin echo after"#,
            ),
        };
        let output = bash(&script.to_input(), "C");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert_eq!(text(output.stdout), "1 0\nafter\n");
        assert_eq!(
            text(output.stderr),
            "++ echo 1 0\n++ '[' -f /nonexistent ']'\n"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}
