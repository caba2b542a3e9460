//! Environment file (contract: execd A2.3): `KEY=text`, `KEY="…"`, `KEY='…'`, comments. Programs
//! append to it without locks, so invalid entries are skipped and never fatal.

use super::substitute;

/// Parsed environment file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    /// In the order of the file; the last entry of a name applies.
    pub(super) variables: Vec<(String, String)>,
    /// Line numbers of skipped entries.
    pub(super) skipped: Vec<usize>,
}

/// Parses a file. `lookup` returns the variables that values may refer to.
pub(super) fn parse(text: &str, lookup: impl Fn(&str) -> Option<String>) -> Parsed {
    let mut parsed = Parsed::default();
    let mut rest = text;
    let mut line = 1;
    while !rest.is_empty() {
        let entry = entry(rest);
        let consumed = match entry {
            Entry::Nothing(len) => len,
            Entry::Broken(len) => {
                parsed.skipped.push(line);
                len
            }
            Entry::Variable { name, value, len } => {
                let value = match value {
                    Value::Literal(value) => value,
                    Value::Expanded(value) => substitute(&value, &lookup),
                };
                parsed.variables.push((name, value));
                len
            }
        };
        line += rest[..consumed].matches('\n').count();
        rest = &rest[consumed..];
    }
    parsed
}

/// Entry and its length in bytes.
enum Entry {
    Nothing(usize),
    Broken(usize),
    Variable {
        name: String,
        value: Value,
        len: usize,
    },
}

enum Value {
    Literal(String),
    Expanded(String),
}

fn entry(text: &str) -> Entry {
    let end_of_line = |from: usize| {
        text[from..]
            .find('\n')
            .map_or(text.len(), |at| from + at + 1)
    };
    let first_end = end_of_line(0);
    let first = text[..first_end].trim();
    if first.is_empty() || first.starts_with('#') {
        return Entry::Nothing(first_end);
    }
    let Some(equals) = text[..first_end].find('=') else {
        return Entry::Broken(first_end);
    };
    let name = text[..equals].trim();
    if name.is_empty() || name.contains('\0') {
        return Entry::Broken(first_end);
    }
    let after = &text[equals + 1..];
    let blanks = after.len() - after.trim_start_matches([' ', '\t']).len();
    let start = equals + 1 + blanks;
    let quoted = match text[start..].chars().next() {
        Some('\'') => single(&text[start + 1..]),
        Some('"') => double(&text[start + 1..]),
        _ => {
            let value = text[start..first_end].trim().to_owned();
            return variable(name, Value::Expanded(value), first_end);
        }
    };
    let Some((value, len)) = quoted else {
        return Entry::Broken(first_end);
    };
    let close = start + 1 + len;
    let end = end_of_line(close);
    if !text[close..end].trim().is_empty() {
        return Entry::Broken(end);
    }
    variable(name, value, end)
}

fn variable(name: &str, value: Value, len: usize) -> Entry {
    match &value {
        Value::Literal(text) | Value::Expanded(text) if text.contains('\0') => Entry::Broken(len),
        _ => Entry::Variable {
            name: name.to_owned(),
            value,
            len,
        },
    }
}

/// Value in single quotes, and its length up to and including the closing one.
fn single(text: &str) -> Option<(Value, usize)> {
    let close = text.find('\'')?;
    Some((Value::Literal(text[..close].to_owned()), close + 1))
}

/// Value in double quotes.
fn double(text: &str) -> Option<(Value, usize)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((Value::Expanded(value), at + 1)),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                escaped @ ('\\' | '"') => value.push(escaped),
                other => value.extend(['\\', other]),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Parsed {
        parse(text, |name| (name == "HOME").then(|| "/root".to_owned()))
    }

    fn pairs(text: &str) -> Vec<(String, String)> {
        read(text).variables
    }

    fn pair(name: &str, value: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), value.to_owned())]
    }

    #[test]
    fn every_form_of_the_contract() {
        assert_eq!(
            pairs("A = some $HOME text \r\n"),
            pair("A", "some /root text")
        );
        assert_eq!(pairs("A="), pair("A", ""));
        assert_eq!(pairs("A=b=c"), pair("A", "b=c"));
        assert_eq!(pairs("A='  $HOME \\n '"), pair("A", "  $HOME \\n "));
        assert_eq!(pairs("A='two\nlines'\n"), pair("A", "two\nlines"));
        assert_eq!(
            pairs("A=\" ${HOME}\\n\\t\\\"\\\\\\x \nb\"\n"),
            pair("A", " /root\n\t\"\\\\x \nb")
        );
        assert_eq!(pairs("\n# A=1\n  \nB=2"), pair("B", "2"));
    }

    #[test]
    fn broken_entries_are_skipped_alone() {
        let parsed = read("no equals\n=x\nA='x' y\nB='open\nC=3\n");
        assert_eq!(parsed.variables, pair("C", "3"));
        assert_eq!(parsed.skipped, [1, 2, 3, 4]);
    }

    /// Entry as `commands.set_env` of the SDK writes it.
    fn written(value: &str) -> String {
        if value.contains('\'') {
            let escaped = value
                .replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
                .replace('\r', "\\r")
                .replace('\t', "\\t");
            format!("K=\"{escaped}\"\n")
        } else {
            format!("K='{value}'\n")
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text in "[A-B=\"'\\\\\n# $é]{0,40}") {
            read(&text);
        }

        #[test]
        fn files_of_the_sdk_are_parsed(value in "[^\0$]{0,40}") {
            prop_assert_eq!(pairs(&written(&value)), pair("K", &value));
        }
    }
}
