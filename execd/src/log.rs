//! Outputs of execd's log (contract: execd §1.2, §1.4).
//!
//! The default is standard error; variables may name a file or a list of outputs. Standard output
//! belongs to the user's entry point.

use osb_log::{ENV_OUTPUTS, Log, Stream};

/// Variable that names a log file. It takes precedence over [`ENV_OUTPUTS`].
const ENV_FILE: &str = "EXECD_LOG_FILE";

/// Opens the outputs that the environment names. Also returns the errors of outputs that were left
/// out.
pub fn open(variable: impl Fn(&str) -> Option<String>) -> (Log, Vec<String>) {
    Log::open(names(variable), Stream::Stderr)
}

fn names(variable: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let set = |name| variable(name).filter(|value| !value.trim().is_empty());
    match (set(ENV_FILE), set(ENV_OUTPUTS)) {
        (Some(file), _) => vec![file],
        (None, Some(list)) => osb_log::names(&list),
        (None, None) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(file: Option<&str>, outputs: Option<&str>) -> Vec<String> {
        names(|name| {
            let value = match name {
                ENV_FILE => file,
                _ => outputs,
            };
            value.map(str::to_owned)
        })
    }

    #[test]
    fn the_file_wins_over_the_list() {
        assert_eq!(named(Some("/a,b"), Some("stdout")), ["/a,b"]);
        for nothing in [None, Some(""), Some(" ")] {
            assert_eq!(named(nothing, Some("stdout, /x")), ["stdout", "/x"]);
            assert_eq!(named(nothing, nothing), [""; 0]);
        }
        assert!(open(|_| None).0.is_on_stderr());
    }
}
