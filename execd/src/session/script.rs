//! Script of a run in a session: the user's command, followed by the report of the state that it
//! leaves.

use std::{
    ffi::{OsStr, OsString},
    io,
    os::fd::OwnedFd,
};

use crate::{
    env::report,
    script::{self, ARGUMENT, BASH_ARGUMENTS, BashScript},
};

/// Descriptor where a shell other than `bash` finds a command that is too long for an argument.
pub(super) const TEXT: i32 = 101;

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
    /// Combines the command and the one that reports the state.
    ///
    /// # Errors
    /// When the system is out of descriptors or memory.
    pub(super) fn new(shell: &OsStr, command: &str, report: &str) -> io::Result<Self> {
        if shell == "bash" {
            return Ok(Self {
                arguments: BASH_ARGUMENTS.map(OsString::from).into(),
                input: Some(script::in_file(&for_bash(command, report))?),
                text: None,
            });
        }
        let command = script::with_line_end(command);
        let is_long = script::is_long(&command);
        let text = is_long.then(|| script::in_file(&command)).transpose()?;
        let mut arguments = vec!["-c".into(), for_sh(is_long, report).into(), shell.into()];
        arguments.extend((!is_long).then(|| command.into_owned().into()));
        Ok(Self {
            arguments,
            input: None,
            text,
        })
    }
}

/// The report runs as a child, so that the command's own `EXIT` trap still runs at the end. `set
/// -x` and traps of the command do not apply to it.
fn for_bash(command: &str, report: &str) -> String {
    let less = with_less(report);
    let after = format!(
        r#"{{ builtin set +xv -- "${{PIPESTATUS[0]}}"; builtin trap - DEBUG; {report} || case $? in
(1) builtin set -- "$1" lost;;
(*) ({less}) || builtin set -- "$1" lost;;
esac; }} >/dev/null 2>&1
case ${{2+x}} in (x) builtin echo '{LOST}' >&2;; esac"#
    );
    let script = BashScript {
        before: "",
        preamble: None,
        text: command,
        after: Some(&after),
    };
    script.to_input()
}

/// One compound command, so that aliases of the command do not apply to it.
fn for_sh(is_long: bool, report: &str) -> String {
    let begin = if is_long {
        format!(". /proc/self/fd/{TEXT}")
    } else {
        r#"eval "shift; $1""#.to_owned()
    };
    let less = with_less(report);
    format!(
        r#"{{ {begin}
{{ set +x -- "$?"; {report} || case $? in
(1) set -- "$1" lost;;
(*) ({less}) || set -- "$1" lost;;
esac; }} >/dev/null 2>&1
case ${{2+x}} in (x) echo '{LOST}' >&2;; esac
exit "$1"; }}"#
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
    use std::process::Command;

    use super::*;

    #[test]
    fn aliases_do_not_apply_to_the_commands_around_a_script() {
        let command = "alias set='echo no' case='echo no' exit='echo no'\nsh -c 'exit 3'\n";
        let output = Command::new("/bin/sh")
            .args(["-c", &for_sh(false, "true"), "sh", command])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert_eq!((output.status.code(), &*text), (Some(3), ""), "{output:?}");
    }
}
