//! Names as policies compare them.

use hickory_server::proto::rr::Name;

/// A name in lower case and ASCII, without the final dot; the root is empty. A dot within a label is
/// its number, so that a dot always ends a label.
pub(crate) fn plain(name: &Name) -> String {
    const DOT: &str = r"\046";
    let mut text = name.to_ascii();
    text.make_ascii_lowercase();
    if text.contains('\\') {
        let mut escaped = String::with_capacity(text.len() + DOT.len());
        let mut letters = text.chars();
        while let Some(letter) = letters.next() {
            match (letter, letters.as_str().chars().next()) {
                ('\\', Some('.')) => escaped.push_str(DOT),
                // Also a second backslash, which escapes nothing.
                ('\\', Some(next)) => escaped.extend([letter, next]),
                _ => {
                    escaped.push(letter);
                    continue;
                }
            }
            letters.next();
        }
        text = escaped;
    }
    if text.ends_with('.') {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{NameIndex, Target};

    #[test]
    fn names_are_plain() {
        for (name, text) in [
            (Name::root(), ""),
            (
                Name::from_ascii("WWW.Example.ORG.").unwrap(),
                "www.example.org",
            ),
            (
                Name::from_ascii("www.example.org").unwrap(),
                "www.example.org",
            ),
            (
                Name::from_ascii("xn--bcher-kva.example.").unwrap(),
                "xn--bcher-kva.example",
            ),
        ] {
            assert_eq!(plain(&name), text);
        }
        let dot: &[u8] = b"evil.example";
        let (last, backslash): (&[u8], &[u8]) = (b"example.", b"a\\");
        for (labels, text) in [
            ([dot, b"org"], r"evil\046example.org"),
            ([b"a", last], r"a.example\046"),
            ([backslash, b"org"], r"a\\.org"),
        ] {
            assert_eq!(plain(&Name::from_labels(labels).unwrap()), text);
        }
    }

    #[test]
    fn a_dot_within_a_label_ends_none_for_a_wildcard() {
        let targets = [Target::parse("*.example.org").unwrap()];
        let index = NameIndex::new(&targets);
        let covered = |labels: &[&[u8]]| {
            let name = Name::from_labels(labels.iter().copied()).unwrap();
            index.first(&plain(&name)).is_some()
        };
        assert!(covered(&[b"good", b"example", b"org"]));
        assert!(covered(&[b"a.b", b"example", b"org"]));
        assert!(!covered(&[b"evil.example", b"org"]));
        assert!(!covered(&[b"evil", b"example.org"]));
    }
}
