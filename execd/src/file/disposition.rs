//! Parser and writer of header parameters: `form-data; name="a"; filename*=UTF-8''b`.

use std::fmt::Write;

/// Parses the parameters of a header value, with lower-case names. Values may be bare or quoted; in
/// quotes a backslash escapes the next character (contract: execd A1.7).
pub(super) fn parameters(value: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = after_semicolon(value);
    while let Some(text) = rest {
        let Some((before, after)) = text.split_once('=') else {
            break;
        };
        // Parameters without a value may precede the name.
        let name = before.rsplit(';').next().unwrap_or_default();
        let after = after.trim_start();
        let (value, remaining) = match after.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        found.push((name.trim().to_ascii_lowercase(), value));
        rest = after_semicolon(remaining);
    }
    found
}

fn after_semicolon(text: &str) -> Option<&str> {
    text.split_once(';').map(|(_, rest)| rest)
}

/// Splits at the closing quote: the unescaped text, and what follows it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// `Content-Disposition` header of a download (contract: execd §10.11).
pub(super) fn attachment(name: &str) -> String {
    let encoded = percent_encoded(name);
    if encoded == name {
        format!("attachment; filename=\"{name}\"")
    } else if name.is_ascii() && !name.contains(|char: char| char.is_ascii_control()) {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        format!("attachment; filename=\"{escaped}\"")
    } else {
        format!("attachment; filename=\"{encoded}\"; filename*=UTF-8''{encoded}")
    }
}

fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to memory succeeds");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_in_every_spelling() {
        let read = |value| {
            let pairs = parameters(value);
            pairs
                .iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            read(r#"form-data; name="metadata"; filename="a\"b\\c;d""#),
            ["name=metadata", r#"filename=a"b\c;d"#]
        );
        assert_eq!(
            read("form-data; Name = file ;filename*=UTF-8''x"),
            ["name=file", "filename*=UTF-8''x"]
        );
        assert_eq!(read("form-data; odd; name=x; odd"), ["name=x"]);
        let many = format!("form-data{}; name=x", "; odd".repeat(80_000));
        assert_eq!(read(&many), ["name=x"]);
        assert_eq!(read("form-data"), [""; 0]);
        assert_eq!(read(r#"form-data; name="open"#), ["name=open"]);
    }

    #[test]
    fn names_of_downloads() {
        assert_eq!(attachment("a b.txt"), "attachment; filename=\"a b.txt\"");
        assert_eq!(attachment("a\"b"), "attachment; filename=\"a\\\"b\"");
        assert_eq!(
            attachment("report-报告.pdf"),
            "attachment; filename=\"report-%E6%8A%A5%E5%91%8A.pdf\"; filename*=UTF-8''report-%E6%8A%A5%E5%91%8A.pdf"
        );
        assert!(!attachment("a\nb").contains('\n'));
    }
}
