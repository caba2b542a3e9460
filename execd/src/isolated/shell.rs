//! How a shell's state outlives the shell (contract: execd A4.4). Every run is a fresh shell that
//! first restores what the one before told, and at the end of its code tells what it has become:
//! variables, functions, aliases, options, traps, mask and directory, in its own words. Code that
//! does not come to its end (`exit`, a signal, a timeout) tells nothing, so the session keeps the
//! state it had.
//!
//! The text goes through nameless files that a keeper holds open for its shell, so that nothing
//! the user's code does to descriptors gets in the way. `sh` has no words for its functions: they
//! outlive a run only in `bash`.

use std::os::fd::RawFd;

/// Ends a state that is complete.
pub(super) const COMPLETE: &str = "\n# complete\n";

/// Signals whose traps are kept. That of EXIT belongs to the run that set it.
const TRAPS: &str = "HUP INT QUIT USR1 USR2 PIPE ALRM TERM ERR";

/// The files of one run, as descriptors of its keeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    pub(super) keeper: i32,
    /// The user's text.
    pub(super) code: RawFd,
    /// What is done before it.
    pub(super) before: RawFd,
    /// Declarations that hold again after it.
    pub(super) kept: RawFd,
    /// Options and traps that it leaves.
    pub(super) options: RawFd,
}

impl Files {
    fn path(&self, number: RawFd) -> String {
        format!("/proc/{}/fd/{number}", self.keeper)
    }

    /// Sets the variables of this run only, and notes what they were.
    pub(super) fn injected(&self, envs: &[(String, String)], bash: bool) -> String {
        let named = || envs.iter().filter(|(name, _)| is_name(name));
        if named().next().is_none() {
            return String::new();
        }
        let names: Vec<&str> = named().map(|(name, _)| name.as_str()).collect();
        let kept = self.path(self.kept);
        let mut text = String::new();
        text.push_str(&format!("{{ echo unset -v {}\n", names.join(" ")));
        for name in &names {
            if bash {
                text.push_str(&format!("builtin declare -p {name}\n"));
            } else {
                // What is unset stays unset.
                text.push_str(&format!(
                    "case ${{{name}+x}} in x) export -p | while IFS= read -r l; do case $l in \
                     \"export {name}=\"*) printf '%s\\n' \"$l\";; esac; done;; esac\n"
                ));
            }
        }
        text.push_str(&format!("}} >{kept} 2>/dev/null\n"));
        for (name, value) in named() {
            text.push_str(&format!("export {name}={}\n", quoted(value)));
        }
        text
    }
}

/// Whether shells take this as the name of a variable.
pub(super) fn is_name(name: &str) -> bool {
    let letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    name.as_bytes().first().is_some_and(letter)
        && name
            .bytes()
            .all(|byte| letter(&byte) || byte.is_ascii_digit())
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The text that the shell is started with. Options come into force together with the user's code,
/// so that they do not meet what is done before it.
pub(super) fn wrapper(files: &Files, state: Option<RawFd>, bash: bool) -> String {
    let (code, before, kept) = (
        files.path(files.code),
        files.path(files.before),
        files.path(files.kept),
    );
    if !bash {
        return of_sh(
            &code,
            &before,
            &kept,
            state.map(|state| files.path(state)).as_deref(),
        );
    }
    let options = files.path(files.options);
    let begin =
        format!("set --; . {before} 2>/dev/null; eval \"shift $#; ${{1:-:}}; $(<{code})\"\n");
    let Some(state) = state.map(|state| files.path(state)) else {
        return begin;
    };
    // Options and traps first, because what follows must not meet them; traps not in a
    // substitution, which has others, and as one line, so that the user's code keeps its numbers.
    format!(
        "{begin}{{ builtin set -- \"$?\"
builtin trap -p {TRAPS} >|{options}
builtin set -- \"$1\" \"$(<{options})\"
builtin printf 'builtin eval %q; ' \"$2\" >|{options}
builtin printf '%s ' set +o braceexpand +o hashall +o interactive-comments \
  ${{SHELLOPTS:+-o ${{SHELLOPTS//:/ -o }}}} >>{options}
builtin trap - ERR DEBUG RETURN
builtin set +efuvx
{{
builtin shopt -p
builtin umask -p
builtin printf 'builtin cd -- %q\\n' \"$PWD\"
builtin declare -p
builtin declare -f
builtin declare -Fx
builtin alias -p
builtin printf '%s\\n' \"$(<{kept})\"
builtin printf 'builtin set -- %q\\n' \"$(<{options})\"
builtin printf '\\n# complete\\n'
}} >|{state}
}} >/dev/null 2>&1
exit \"$1\""
    )
}

fn of_sh(code: &str, before: &str, kept: &str, state: Option<&str>) -> String {
    let begin = format!("set --\n. {before} 2>/dev/null\neval \"${{1-}}\"; set --\n. {code}\n");
    let Some(state) = state else {
        return begin;
    };
    format!(
        "{begin}{{ set -- \"$?\" \"$(set +o)\"; set +efuvx; {{
printf 'umask %s\\n' \"$(umask)\"
set
export -p
alias | while IFS= read -r l; do printf 'alias %s\\n' \"${{l#alias }}\"; done
printf '%s\\n' 'cd -- \"$PWD\"'
while IFS= read -r l; do printf '%s\\n' \"$l\"; done <{kept}
printf \"set -- '%s'\\n\" \"$2\"
printf '\\n# complete\\n'
}} >|{state}
}} >/dev/null 2>&1
exit \"$1\""
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_words_of_shells() {
        assert!(is_name("_a1") && is_name("A"));
        assert!(!is_name("") && !is_name("1a") && !is_name("a-b") && !is_name("a.b"));
        assert_eq!(quoted("a'b"), r"'a'\''b'");
    }
}
