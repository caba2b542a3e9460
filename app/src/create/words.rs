//! Parsers of form input: commands, `NAME=value` lines, durations.

use std::collections::BTreeMap;

/// Splits a command the way a shell would, without expanding anything: blanks separate, single and
/// double quotes group, a backslash takes the next character as it is.
///
/// # Errors
/// When a quote is not closed or the text ends in a backslash.
pub(crate) fn split(command: &str) -> Result<Vec<String>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('\''), c) => word.get_or_insert_default().push(c),
            (_, '\\') => {
                let next = chars.next().ok_or("ends in a backslash")?;
                word.get_or_insert_default().push(next);
            }
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                // An empty pair of quotes is an empty word.
                word.get_or_insert_default();
                quote = Some(c);
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("has a quote that is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// Writes words as [`split`] reads them.
pub(super) fn join(words: &[String]) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    let quoted = words.iter().map(|word| match word.chars().all(is_plain) {
        true if !word.is_empty() => word.clone(),
        _ => format!("'{}'", word.replace('\'', r"'\''")),
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// Reads `NAME=value` lines; blank lines and lines that begin with `#` do not count. Of two lines
/// with the same name the later one holds.
///
/// # Errors
/// The number (from 1) of the first line without a name or without `=`.
pub(crate) fn pairs(text: &str) -> Result<BTreeMap<String, String>, usize> {
    let mut pairs = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        match line.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                pairs.insert(
                    name.trim().to_owned(),
                    value.trim_end_matches('\r').to_owned(),
                );
            }
            _ => return Err(number + 1),
        }
    }
    Ok(pairs)
}

/// Reads a duration: seconds, or a number with `s`, `m`, `h` or `d`. `None` when it is neither.
pub(super) fn seconds(text: &str) -> Option<i64> {
    let text = text.trim().to_ascii_lowercase();
    let (number, unit) = match text.char_indices().next_back() {
        Some((end, unit)) if unit.is_ascii_alphabetic() => (text[..end].trim_end(), unit),
        _ => (text.as_str(), 's'),
    };
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    number.parse::<i64>().ok()?.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_split_like_in_a_shell() {
        let cases: [(&str, &[&str]); 7] = [
            ("", &[]),
            ("  tail   -f /dev/null ", &["tail", "-f", "/dev/null"]),
            ("sh -c 'a b; c'", &["sh", "-c", "a b; c"]),
            (r#"x "a \" b" 'c\d'"#, &["x", "a \" b", r"c\d"]),
            (r"a\ b", &["a b"]),
            ("x ''", &["x", ""]),
            ("a'b'\"c\"", &["abc"]),
        ];
        for (command, words) in cases {
            assert_eq!(split(command).unwrap(), words, "{command}");
        }
        for wrong in ["'", "a \"b", "a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn words_are_written_as_they_are_read() {
        for words in [
            vec!["tail", "-f", "/dev/null"],
            vec!["sh", "-c", "echo \"it's\" > 'x' \\ $HOME"],
            vec!["", " ", "\n", "ä"],
            vec![],
        ] {
            let words: Vec<_> = words.into_iter().map(str::to_owned).collect();
            let line = join(&words);
            assert_eq!(split(&line).unwrap(), words, "{line}");
        }
        let plain = ["tail", "-f", "/dev/null"].map(str::to_owned);
        assert_eq!(join(&plain), "tail -f /dev/null");
    }

    #[test]
    fn pairs_keep_values_as_they_are() {
        let read = pairs("A=1\n\n# no\n B = x=y \r\nA=2").unwrap();
        let want = [("A", "2"), ("B", " x=y ")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(read, BTreeMap::from(want));
        assert_eq!(pairs("A=1\nB"), Err(2));
        assert_eq!(pairs("=1"), Err(1));
    }

    #[test]
    fn durations_have_units() {
        for (text, want) in [
            ("90", Some(90)),
            ("30m", Some(1_800)),
            (" 2 H ", Some(7_200)),
            ("1d", Some(86_400)),
            ("0", Some(0)),
            ("-5m", Some(-300)),
            ("", None),
            ("m", None),
            ("2w", None),
            ("1.5h", None),
            ("9223372036854775807d", None),
        ] {
            assert_eq!(seconds(text), want, "{text}");
        }
    }
}
