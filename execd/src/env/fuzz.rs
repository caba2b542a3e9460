//! What the fuzzer feeds: paths with variables, environment files.

use super::{expand, file};

fn lookup(name: &str) -> Option<String> {
    name.starts_with('A').then(|| name.repeat(2))
}

/// A path: what is expanded names no undefined variable.
pub fn expansion(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _expanded = expand(&text, lookup, Some("/home"));
    // Texts without anything to expand stay as they are.
    if !text.contains(['$', '~']) {
        assert_eq!(expand(&text, lookup, None).ok().as_deref(), Some(&*text));
    }
}

/// An environment file: names are names, and lines are lines of it.
pub fn env_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parsed = file::parse(&text, lookup);
    let lines = text.matches('\n').count() + 1;
    assert!(parsed.skipped.iter().all(|line| (1..=lines).contains(line)));
    assert!(parsed.variables.iter().all(|(name, _)| !name.is_empty()));
}

#[cfg(test)]
mod tests {
    use crate::fuzz::short_run;

    #[test]
    fn paths() {
        short_run("expansion", super::expansion);
    }

    #[test]
    fn files() {
        short_run("env_file", super::env_file);
    }
}
