//! Search below a folder, and replacing text in what was found.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use osb_app::files::{Asked, Replaced};
use osb_client::{ExecdClient, execd::Find};
use osb_protocol::execd::{
    code,
    file::{Found, Replacement},
};
use tokio::time::timeout;

use super::{ANSWER, Failure, check};

/// Most entries that a page shows.
const MOST: usize = 300;
/// Most files in which text is replaced at once.
const FILES: usize = 300;

/// What is below a folder.
pub(super) async fn find(execd: &ExecdClient, path: &str, asked: &Asked) -> Result<Found, Failure> {
    if asked.is_empty() {
        return Err(words("Search for a name or for a text."));
    }
    let wanted = Find {
        pattern: pattern(&asked.name),
        text: asked.text.clone(),
        ignore_case: !asked.case,
        limit: MOST,
    };
    match timeout(ANSWER, execd.find(path, &wanted)).await? {
        Ok(found) => Ok(found),
        Err(osb_client::Error::Api(refusal))
            if refusal.status == StatusCode::NOT_FOUND && refusal.code != code::FILE_NOT_FOUND =>
        {
            Err(words(
                "The execd of this sandbox is another one, which cannot search: create the sandbox anew.",
            ))
        }
        Err(error) => Err(error.into()),
    }
}

/// A name without wildcards is a part of the names that are found.
fn pattern(name: &str) -> String {
    if name.is_empty() || name.contains(['*', '?', '[', '{']) {
        return name.to_owned();
    }
    let mut pattern = "*".to_owned();
    for c in name.chars() {
        if matches!(c, '\\' | '}' | ']') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern + "*"
}

/// Replaces a text in files, one after the other: where it fails, the others go on.
pub(super) async fn replace(
    execd: &ExecdClient,
    paths: &[&str],
    old: &str,
    new: &str,
) -> Result<Replaced, Failure> {
    if old.is_empty() {
        return Err(words("There is no text to replace."));
    }
    if paths.len() > FILES {
        return Err(words("These are too many files at once."));
    }
    paths.iter().try_for_each(|path| check(path))?;
    let mut replaced = Replaced::default();
    for path in paths {
        let replacement = Replacement {
            old: old.to_owned(),
            new: new.to_owned(),
        };
        let one = BTreeMap::from([((*path).to_owned(), replacement)]);
        match timeout(ANSWER, execd.replace(&one)).await? {
            Ok(counts) => {
                let count: usize = counts.values().map(|it| it.count).sum();
                replaced.places += count;
                replaced.files += usize::from(count > 0);
            }
            Err(osb_client::Error::Api(refusal)) => {
                replaced.failed.push(format!("{path}: {}", refusal.message));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(replaced)
}

fn words(why: &str) -> Failure {
    Failure::Words(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_wildcards_are_parts_of_names() {
        for (name, expected) in [
            ("", ""),
            ("conf", "*conf*"),
            ("*.py", "*.py"),
            ("a?", "a?"),
            ("!(a)", "*!(a)*"),
            ("a\\b}]", "*a\\\\b\\}\\]*"),
        ] {
            assert_eq!(pattern(name), expected, "{name}");
        }
    }
}
