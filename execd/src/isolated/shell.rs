//! Persistence of shell state between runs (contract: execd A4.4). Every run is a fresh shell that
//! first restores the state from the previous run. After its code the shell prints its new state:
//! variables, functions, aliases, options, traps, umask and directory, as shell code. Code that
//! does not complete (`exit`, a signal, a timeout) prints nothing, so the session keeps its
//! previous state.
//!
//! The state goes through nameless files that a keeper holds open for its shell, so that
//! descriptors in the user's code cannot interfere. `sh` cannot print its functions, so they
//! persist only in `bash`.

use std::os::fd::RawFd;

/// Marker at the end of a complete state.
pub(super) const COMPLETE: &str = "\n# complete\n";

/// Signals whose traps persist. The EXIT trap belongs to the run that set it.
const TRAPS: &str = "HUP INT QUIT USR1 USR2 PIPE ALRM TERM ERR";

/// Files of one run, as descriptors of its keeper.
#[derive(Clone, Copy, Debug)]
pub(super) struct Files {
    pub(super) keeper: i32,
    /// The user's code.
    pub(super) code: RawFd,
    /// Commands to run before it.
    pub(super) before: RawFd,
    /// Declarations to restore after it.
    pub(super) kept: RawFd,
    /// Options and traps that it leaves.
    pub(super) options: RawFd,
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
        let mut text = String::new();
        text.push_str(&format!("{{ echo unset -v {}\n", names.join(" ")));
        for name in &names {
            if bash {
                text.push_str(&format!("builtin declare -p {name}\n"));
            } else {
                // Variables that were unset are unset again.
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

/// Code that the shell starts with. Options take effect together with the user's code, so that they
/// do not affect the commands before it.
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
    // Options and traps come first, so that they do not affect later commands. Traps are not
    // printed in a substitution, which has its own. All is on one line, so that the user's code
    // keeps its line numbers.
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
