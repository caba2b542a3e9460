//! Script of a run in a session: the user's command, followed by the report of the state that it
//! leaves.
//!
//! `bash` reads everything as a script from its standard input, as one compound command: the user's
//! text is evaluated inside and cannot redefine any of it. The exit statuses are those of a script
//! file; `bash -c` has others. Other shells take the script as an argument.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io,
    os::{fd::OwnedFd, unix::fs::FileExt},
};

use rustix::fs::{MemfdFlags, memfd_create};

use crate::env::report::{self, Channel};

/// Descriptor where a shell other than `bash` finds a command that is too long for an argument.
pub(super) const TEXT: i32 = 101;

/// Maximum size of one argument or variable, with its terminating NUL (`MAX_ARG_STRLEN`).
pub(super) const ARGUMENT: usize = 128 << 10;

/// Notice in the output of a run whose state was lost.
const LOST: &str = "[execd: what this run exported and its directory are not kept: it closed or \
                    replaced the descriptor that reports them]";

/// Command in the form that its shell reads.
#[derive(Debug)]
pub(super) struct Script {
    pub(super) arguments: Vec<OsString>,
    /// Standard input of the shell, unless it is empty.
    pub(super) input: Option<OwnedFd>,
    /// Contents of the descriptor [`TEXT`].
    pub(super) text: Option<OwnedFd>,
}

impl Script {
    /// Combines the command and a report to the channel.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub(super) fn new(shell: &OsStr, command: &str, channel: &Channel) -> io::Result<Self> {
        // A script file ends with a line end; without it a trailing backslash would be literal.
        let end = if command.ends_with('\n') { "" } else { "\n" };
        let command = format!("{command}{end}");
        let report = channel.command()?;
        if shell == "bash" {
            let text = for_bash(&command, &report);
            return Ok(Self {
                arguments: ["--noprofile", "--norc"].map(OsString::from).into(),
                input: Some(in_file(&text)?),
                text: None,
            });
        }
        // Well below the limit, because arguments and variables share another one.
        let is_long = command.len() > ARGUMENT / 2;
        let text = is_long.then(|| in_file(&command)).transpose()?;
        let mut arguments = vec!["-c".into(), for_sh(is_long, &report).into(), shell.into()];
        arguments.extend((!is_long).then(|| command.into()));
        Ok(Self {
            arguments,
            input: None,
            text,
        })
    }
}

/// Writes a text to a nameless file.
fn in_file(text: &str) -> io::Result<OwnedFd> {
    let file = File::from(memfd_create("execd", MemfdFlags::CLOEXEC)?);
    // The shell shares the file position, which stays at the beginning.
    file.write_all_at(text.as_bytes(), 0)?;
    Ok(file.into())
}

/// The report runs as a child, so that the command's own `EXIT` trap still runs at the end. `set
/// -x` and traps of the command do not apply to it.
fn for_bash(command: &str, report: &str) -> String {
    let command = on_one_line(command);
    let less = with_less(report);
    format!(
        r#"{{ exec </dev/null; builtin eval {command}
{{ builtin set +x -- "$?"; builtin trap - DEBUG; {report} || case $? in
(1) builtin set -- "$1" lost;;
(*) ({less}) || builtin set -- "$1" lost;;
esac; }} >/dev/null 2>&1
case ${{2+x}} in (x) builtin echo '{LOST}' >&2;; esac
builtin exit "$1"; }}
"#
    )
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

fn for_sh(is_long: bool, report: &str) -> String {
    let begin = if is_long {
        format!(". /proc/self/fd/{TEXT}")
    } else {
        r#"eval "shift; $1""#.to_owned()
    };
    let less = with_less(report);
    format!(
        r#"{begin}
{{ set +x -- "$?"; {report} || case $? in
(1) set -- "$1" lost;;
(*) ({less}) || set -- "$1" lost;;
esac; }} >/dev/null 2>&1
case ${{2+x}} in (x) echo '{LOST}' >&2;; esac
exit "$1""#
    )
}

/// Reports without the longest variables, using shell builtins only: the kernel rejects a variable
/// of [`ARGUMENT`] bytes, and too many bytes in total. Words that a value injects into the list of
/// exported names are harmless: at most they name another variable that is too long.
fn with_less(report: &str) -> String {
    let left_out = report::LEFT_OUT;
    let [most, less, little, least] = [1, 4, 16, 64].map(|part| ARGUMENT / part);
    format!(
        r#"set +aeu
for __execd_most in {most} {less} {little} {least}; do (
{left_out}=$(LC_ALL=C; export -p | while IFS= read -r __execd_line; do
case $__execd_line in (export\ *|declare\ -*) ;; (*) continue;; esac
__execd_name=${{__execd_line%%=*}}
__execd_name=${{__execd_name##* }}
case $__execd_name in (''|[0-9]*|*[!A-Za-z0-9_]*) continue;; esac
eval "__execd_length=\$((\${{#$__execd_name}} + ${{#__execd_name}} + 2))"
[ "$__execd_length" -gt $__execd_most ] && printf '%s ' "$__execd_name"
done)
__execd_rest=${left_out}
while [ "$__execd_rest" ]; do
__execd_name=${{__execd_rest%% *}}
__execd_rest=${{__execd_rest#* }}
case ${{BASH_VERSION+x}} in (x) export -n "$__execd_name";; (*) unset "$__execd_name";; esac
done
export {left_out}
exec {report}
) && break; done"#
    )
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn every_text_is_one_line_of_the_same_meaning() {
        let mut text: String = (1..=u8::MAX).map(char::from).collect();
        text.push_str("\u{2028}$(x) \\\\n '\\'' \u{10ffff}\n");
        let word = on_one_line(&text);
        assert!(!word.contains('\n'));
        for locale in ["C", "C.UTF-8"] {
            let script = in_file(&format!("builtin printf %s {word}\n")).unwrap();
            let output = Command::new("bash")
                .args(["--noprofile", "--norc"])
                .env("LC_ALL", locale)
                .stdin(Stdio::from(script))
                .output()
                .unwrap();
            let same = output.stdout == text.as_bytes();
            assert!(
                same,
                "{locale}: {}",
                String::from_utf8_lossy(&output.stdout)
            );
        }
    }
}
