//! Expansion of `$NAME`, `${NAME}` and `~` (contract: execd §2.4, A2.3).

use std::collections::BTreeSet;

/// Error for undefined variables in a path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("path references undefined environment variables: {0}")]
pub struct Undefined(String);

/// Expands a path: variables first, then a leading `~`. A `$` without a name stays.
///
/// # Errors
/// When a variable is not defined.
pub fn expand(
    text: &str,
    lookup: impl Fn(&str) -> Option<String>,
    home: Option<&str>,
) -> Result<String, Undefined> {
    let mut undefined = BTreeSet::new();
    let expanded = walk(text, |name| {
        lookup(name).unwrap_or_else(|| {
            undefined.insert(name.to_owned());
            String::new()
        })
    });
    if !undefined.is_empty() {
        let names: Vec<String> = undefined.into_iter().collect();
        return Err(Undefined(names.join(",")));
    }
    let Some(home) = home else {
        return Ok(expanded);
    };
    Ok(match expanded.strip_prefix('~') {
        Some("") => home.to_owned(),
        Some(rest) if rest.starts_with(['/', '\\']) => {
            format!("{}/{}", home.trim_end_matches('/'), &rest[1..])
        }
        _ => expanded,
    })
}

/// Expands variables in a value; undefined ones become empty.
pub fn substitute(text: &str, lookup: impl Fn(&str) -> Option<String>) -> String {
    walk(text, |name| lookup(name).unwrap_or_default())
}

fn walk(text: &str, mut value: impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match reference(rest) {
            Some((name, len)) => {
                out.push_str(&value(name));
                rest = &rest[len..];
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

/// Name in a reference at the start of a text, and the length of the reference.
fn reference(text: &str) -> Option<(&str, usize)> {
    let braced = text.starts_with("${");
    let start = if braced { 2 } else { 1 };
    let name = &text[start..];
    let len = name
        .bytes()
        .position(|byte| byte != b'_' && !byte.is_ascii_alphanumeric())
        .unwrap_or(name.len());
    let name = &name[..len];
    if name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let end = start + len;
    if braced {
        return text[end..].starts_with('}').then_some((name, end + 1));
    }
    Some((name, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "A" => Some("a".into()),
            "_LONG1" => Some("/long".into()),
            _ => None,
        }
    }

    #[test]
    fn paths() {
        let expand = |text| expand(text, lookup, Some("/root"));
        for (text, want) in [
            ("", ""),
            ("~", "/root"),
            ("~/x", "/root/x"),
            ("~user/x", "~user/x"),
            ("/x/~", "/x/~"),
            ("/x/$A/y", "/x/a/y"),
            ("${_LONG1}2", "/long2"),
            ("$1 $ $$ ${ ${} $", "$1 $ $$ ${ ${} $"),
        ] {
            assert_eq!(expand(text).as_deref(), Ok(want), "{text}");
        }
        let error = expand("$Z/$B/$A/$B").unwrap_err();
        assert_eq!(
            error.to_string(),
            "path references undefined environment variables: B,Z"
        );
    }

    #[test]
    fn undefined_variables_expand_to_nothing() {
        assert_eq!(substitute("<$A$B${A}>", lookup), "<aa>");
    }
}
