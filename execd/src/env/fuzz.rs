//! Fuzz targets: paths with variables, environment files.

use super::{expand, file};

fn lookup(name: &str) -> Option<String> {
    name.starts_with('A').then(|| name.repeat(2))
}

/// Expands a path, and checks that the result contains no undefined variable.
pub fn expansion(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let _expanded = expand(&text, lookup, Some("/home"));
    // Texts without references stay unchanged.
    if !text.contains(['$', '~']) {
        assert_eq!(expand(&text, lookup, None).ok().as_deref(), Some(&*text));
    }
}

/// Parses an environment file, and checks its names and line numbers.
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
