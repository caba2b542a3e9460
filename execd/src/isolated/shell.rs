//! Persistence of shell state between runs (contract: execd A4.4). Every run is a fresh shell that
//! first restores the state from the previous run. After its code the shell prints its new state:
//! variables, functions, aliases, options, traps, umask and directory, as shell code. Code that
//! does not complete (`exit`, a signal, a timeout) prints nothing, so the session keeps its
//! previous state.
//!
//! The state goes through nameless files that a keeper holds open for its shell, so that
//! descriptors in the user's code cannot interfere. `sh` cannot print its functions, so they
//! persist only in `bash`.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use crate::script::{self, BASH_ARGUMENTS, BashScript};

/// Marker at the end of a complete state.
pub(super) const COMPLETE: &str = "\n# complete\n";

/// Signals whose traps persist. The EXIT trap belongs to the run that set it.
const TRAPS: &str = "HUP INT QUIT USR1 USR2 PIPE ALRM TERM ERR";

/// Files of one run, as descriptors of its keeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    pub(super) keeper: i32,
    /// Commands to run before the user's code, if any.
    pub(super) before: Option<RawFd>,
    /// Declarations to restore after it.
    pub(super) kept: RawFd,
    /// Traps that it leaves.
    pub(super) traps: RawFd,
    /// File for the new state, if it is kept.
    pub(super) state: Option<RawFd>,
}

/// Shell command line and its standard input.
#[derive(Debug)]
pub(super) struct Invocation {
    pub(super) arguments: Vec<String>,
    /// Standard input, unless it is empty.
    pub(super) input: Option<OwnedFd>,
    /// Code that is too long for an argument; the shell opens it through the keeper.
    pub(super) code: Option<OwnedFd>,
}

impl Files {
    fn path(&self, number: RawFd) -> String {
        format!("/proc/{}/fd/{number}", self.keeper)
    }

    /// Sets the variables of this run and saves their previous values.
    pub(super) fn injected(&self, envs: &[(String, String)], bash: bool) -> String {
        let named = || envs.iter().filter(|(name, _)| is_name(name));
        if named().next().is_none() {
            return String::new();
        }
        let names: Vec<&str> = named().map(|(name, _)| name.as_str()).collect();
        let kept = self.path(self.kept);
        // Functions and aliases of the user have been restored. Other shells keep no functions.
        let builtin = if bash { r"\builtin " } else { "" };
        let mut text = String::new();
        let names_in_line = names.join(" ");
        text.push_str(&format!(
            "{{ {builtin}echo '{builtin}unset -v {names_in_line}'\n"
        ));
        for name in &names {
            if bash {
                text.push_str(&format!("{builtin}declare -p {name}\n"));
            } else {
                text.push_str(&saved_by_sh(name));
            }
        }
        text.push_str(&format!("}} >{kept} 2>/dev/null\n"));
        for (name, value) in named() {
            text.push_str(&format!("{builtin}export {name}={}\n", quoted(value)));
        }
        text
    }
}

/// Commands by which a shell without `declare` prints a variable as a command. They print nothing
/// for a variable that is unset.
fn saved_by_sh(name: &str) -> String {
    format!(
        r#"case ${{{name}+x}} in x) (
r=${name} q=\'
case "$(export -p)" in *"export {name}="*) printf 'export ';; esac
printf '%s=%s' {name} "$q"
while case $r in *$q*) ;; *) false;; esac; do
printf '%s%s' "${{r%%$q*}}" "$q\\$q$q"
r=${{r#*$q}}
done
printf '%s%s\n' "$r" "$q"
);; esac
"#
    )
}

/// Whether shells accept this as the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.as_bytes().first().is_some_and(letter)
        && name
            .bytes()
            .all(|byte| letter(&byte) || byte.is_ascii_digit())
}

/// Quotes a text as one shell word.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Command line that evaluates the user's code between the commands of `before` and the report of
/// the new state.
///
/// # Errors
/// When the system is out of descriptors or memory.
pub(super) fn invocation(files: &Files, code: &str, bash: bool) -> io::Result<Invocation> {
    if bash {
        let input = script::in_file(&for_bash(files, code))?;
        return Ok(Invocation {
            arguments: BASH_ARGUMENTS.map(str::to_owned).into(),
            input: Some(input),
            code: None,
        });
    }
    let code = script::with_line_end(code);
    let long = script::is_long(&code)
        .then(|| script::in_file(&code))
        .transpose()?;
    let path = long.as_ref().map(|file| files.path(file.as_raw_fd()));
    let script = for_sh(files, path.as_deref());
    let mut arguments = vec!["-c".to_owned(), script, "sh".to_owned()];
    if long.is_none() {
        arguments.push(code.into_owned());
    }
    Ok(Invocation {
        arguments,
        input: None,
        code: long,
    })
}

/// Input of `bash`. The last command of `before` leaves options and traps in `$1`, and in `$2` the
/// directory if it cannot be entered; entering it again then shows why.
///
/// A subshell reports the state, because a `DEBUG` trap of the user runs before each command of its
/// own shell. Aliases apply to text that is parsed after the user's code, so the names of builtins
/// are quoted there. Files that are mostly empty are read by a substitution only if they are not.
fn for_bash(files: &Files, code: &str) -> String {
    let before = files.before.map(|before| files.path(before));
    // Not with `source`: messages about restored functions would show the path.
    let before = before.map(|path| {
        let lost = "builtin cd -- \"$2\" || builtin cd -P .";
        format!("builtin eval \"$(<{path})\" 2>/dev/null; case ${{2-}} in (?*) {lost};; esac; ")
    });
    let after = files.state.map(|state| {
        let [state, kept, traps] = [state, files.kept, files.traps].map(|file| files.path(file));
        format!(
            r#"{{ ! ( builtin set +euvx -- "${{PIPESTATUS[0]}}" "${{SHELLOPTS:+-o ${{SHELLOPTS//:/ -o }}}}"
builtin trap -p {TRAPS} >|{traps}
builtin trap - ERR DEBUG RETURN
BASH_SUBSHELL=0
{{
builtin shopt -p
builtin umask -p
builtin printf 'builtin cd -- %q || builtin set -- "" %q\n' "$PWD" "$PWD"
builtin declare -p
builtin declare -f
builtin declare -Fx
builtin alias -p
builtin test -s {kept} && builtin printf '%s\n' "$(<{kept})"
builtin set -- "$1" "\\builtin set +o braceexpand +o hashall +o interactive-comments $2"
builtin test -s {traps} &&
builtin set -- "$1" "\\builtin eval $(\builtin printf %q "$(<{traps})"); $2"
builtin printf '\\builtin set -- %q "${{2-}}"\n' "$2"
builtin printf '\n# complete\n'
}} >|{state}
builtin exit "$1" )
builtin set +xv -- "${{PIPESTATUS[0]}}"; builtin trap - DEBUG; }} >/dev/null 2>&1"#
        )
    });
    let script = BashScript {
        before: before.as_deref().unwrap_or_default(),
        preamble: before.as_deref().map(|_| "${1-}"),
        text: code,
        after: after.as_deref(),
    };
    script.to_input()
}

/// Command of another shell, as one compound command, so that aliases of the user do not apply to
/// it. Its first argument is the code, unless a path names it. The last command of `before` leaves
/// options in `$2`, as one command, so that none of them shows in a trace, and in `$3` the directory
/// if it cannot be entered.
fn for_sh(files: &Files, long: Option<&str>) -> String {
    let before = files.before.map(|before| files.path(before));
    let before = before.map(|path| {
        let lost = "cd -- \"$3\" || cd -P .";
        format!("set -- \"${{1-}}\"; . {path} 2>/dev/null\ncase ${{3-}} in (?*) {lost};; esac\n")
    });
    let before = before.unwrap_or_default();
    let code = long.map_or_else(|| "$1".to_owned(), |path| format!(". {path}"));
    let begin = format!(r#"{{ {before}eval "shift $#; ${{2-}} {code}""#);
    let Some(state) = files.state else {
        return format!("{begin}\n}}");
    };
    let [state, kept] = [state, files.kept].map(|file| files.path(file));
    format!(
        r#"{begin}
{{ set -- "$?" "set$(set +o | while IFS= read -r l; do printf ' %s' "${{l#set }}"; done);"
set +efuvx; {{
printf 'umask %s\n' "$(umask)"
set
export -p
alias | while IFS= read -r l; do printf 'alias %s\n' "${{l#alias }}"; done
printf '%s\n' 'cd -- "$PWD" || set -- "$1" "" "$PWD"'
while IFS= read -r l; do printf '%s\n' "$l"; done <{kept}
printf "set -- \"\$1\" '%s' \"\${{3-}}\"\n" "$2"
printf '\n# complete\n'
}} >|{state}
}} >/dev/null 2>&1
exit "$1"; }}"#
    )
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::Write,
        os::unix::{fs::FileExt, process::CommandExt},
        path::{Path, PathBuf},
        process::{Command, Stdio},
    };

    use rustix::process::getpid;

    use super::*;
    use crate::{isolated::wire, process::find};

    #[test]
    fn names_and_words_of_shells() {
        assert!(is_name("_a1") && is_name("A"));
        assert!(!is_name("") && !is_name("1a") && !is_name("a-b") && !is_name("a.b"));
        assert_eq!(quoted("a'b"), r"'a'\''b'");
    }

    /// Programs that serve as `sh` in images without `bash`, as far as this machine has them.
    fn shells() -> Vec<PathBuf> {
        let find = |name: &str| {
            let found = find(name.as_ref(), std::env::var_os("PATH").as_deref(), None);
            found.inspect_err(|error| eprintln!("SKIPPED: {name}: {error}"))
        };
        ["dash", "busybox"].into_iter().flat_map(find).collect()
    }

    /// Runs code in a shell as a keeper does; a complete report replaces the state.
    fn run_in(
        shell: &Path,
        state: &mut Vec<u8>,
        envs: &[(&str, &str)],
        code: &str,
    ) -> (i32, String, String) {
        let envs: Vec<_> = envs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let [mut before, kept, traps, after] = [(); 4].map(|()| wire::memory().unwrap());
        let files = Files {
            keeper: getpid().as_raw_nonzero().get(),
            before: Some(before.as_raw_fd()),
            kept: kept.as_raw_fd(),
            traps: traps.as_raw_fd(),
            state: Some(after.as_raw_fd()),
        };
        before.write_all(state).unwrap();
        before
            .write_all(files.injected(&envs, false).as_bytes())
            .unwrap();
        let invocation = invocation(&files, code, false).unwrap();
        let output = Command::new(shell)
            .arg0("sh")
            .args(invocation.arguments)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let new = contents(&after);
        if new.ends_with(COMPLETE.as_bytes()) {
            *state = new;
        }
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code().unwrap(),
            text(output.stdout),
            text(output.stderr),
        )
    }

    fn contents(file: &File) -> Vec<u8> {
        let len = file.metadata().unwrap().len();
        let mut bytes = vec![0; len.try_into().unwrap()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn code_in_another_shell_ends_and_prints_as_from_a_file() {
        let long = format!("a={}\necho ${{#a}}; (exit 6)", "x".repeat(1 << 20));
        let all = [
            ("echo 'abc", 2, ""),
            ("if then", 2, ""),
            ("set -u; echo ${NONE}; echo no", 2, ""),
            ("echo a \\", 0, "a\n"),
            ("set -e; false; echo no", 1, ""),
            ("exit 3", 3, ""),
            ("(exit 4)", 4, ""),
            ("trap 'echo X $?' EXIT; (exit 5)", 5, "X 5\n"),
            ("echo \"$0 $# ${1-none}\"", 0, "sh 0 none\n"),
            ("alias set='echo no' exit='echo no'\n:", 0, ""),
            (long.as_str(), 6, "1048576\n"),
        ];
        for shell in shells() {
            for (first, (code, status, stdout)) in
                all.iter().flat_map(|one| [(None, one), (Some("A=1"), one)])
            {
                let mut state = Vec::new();
                if let Some(first) = first {
                    assert_eq!(run_in(&shell, &mut state, &[], first).0, 0);
                }
                let ran = run_in(&shell, &mut state, &[], code);
                let code: String = code.chars().take(200).collect();
                let what = format!("{}: {code}: {ran:?}", shell.display());
                assert_eq!((ran.0, ran.1.as_str()), (*status, *stdout), "{what}");
                for hidden in ["shift", "set --", "/proc/", "eval \""] {
                    assert!(!ran.2.contains(hidden), "{what}");
                }
            }
        }
    }

    #[test]
    fn a_lost_directory_is_named_once_and_the_rest_of_the_state_kept() {
        for shell in shells() {
            let place = tempfile::tempdir().unwrap();
            let lost = place.path().join("it's lost");
            std::fs::create_dir(&lost).unwrap();
            let mut state = Vec::new();
            let mut run = |envs: &[_], code| run_in(&shell, &mut state, envs, code);
            let enter = format!("cd \"{}\"; A=1; set -f", lost.display());
            assert_eq!(run(&[], &enter).0, 0);
            std::fs::remove_dir(&lost).unwrap();
            let here = std::env::current_dir().unwrap();
            let here = here.display();
            let ran = run(&[("B", "2")], "echo \"$PWD|$(pwd)|$A$B\" *; echo $#");
            let what = format!("{}: {ran:?}", shell.display());
            assert_eq!(
                (ran.0, ran.1),
                (0, format!("{here}|{here}|12 *\n0\n")),
                "{what}"
            );
            let complaint = ran.2.trim_end();
            assert!(complaint.contains(lost.to_str().unwrap()), "{what}");
            assert_eq!(complaint.lines().count(), 1, "{what}");
            assert_eq!(run(&[], "echo $A"), (0, "1\n".to_owned(), String::new()));
        }
    }

    #[test]
    fn options_of_another_shell_persist_and_show_in_the_code_only() {
        for shell in shells() {
            let mut state = Vec::new();
            let mut run = |envs: &[_], code| run_in(&shell, &mut state, envs, code);
            let set = "cd /usr; A='a b'; export B=2 D=\"it's\nit\"; umask 027; set -fx";
            assert_eq!(run(&[], set).0, 0);
            let ran = run(&[("A", "once"), ("C", "c"), ("D", "d")], "echo \"$A$C$D\"");
            let trace = "+ echo oncecd\n".to_owned();
            assert_eq!(
                ran,
                (0, "oncecd\n".to_owned(), trace),
                "{}",
                shell.display()
            );
            let ran = run(&[], "set +x; echo \"$A $B ${C-none}\" * $PWD; umask");
            let trace = "+ set +x\n".to_owned();
            assert_eq!(ran, (0, "a b 2 none * /usr\n0027\n".to_owned(), trace));
            let ran = run(&[], "echo \"$D\"; env | grep '^[AD]='");
            assert_eq!(ran, (0, "it's\nit\nD=it's\n".to_owned(), String::new()));
        }
    }
}
