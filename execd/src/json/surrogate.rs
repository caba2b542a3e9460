//! Unpaired surrogates in JSON texts. JavaScript writes one for a string that was cut inside an
//! emoji; `serde_json` rejects it, other decoders read U+FFFD.

/// Replacement of an unpaired surrogate: of the same length, so that it fits in place.
const REPLACEMENT: &[u8; ESCAPE] = br"\uFFFD";
/// Length of `\uXXXX`.
const ESCAPE: usize = 6;

/// Parses a text. If that fails because of an unpaired surrogate, replaces it and parses again.
/// Valid texts are parsed once.
pub(super) fn repairing<T, E>(text: &[u8], parse: impl Fn(&[u8]) -> Result<T, E>) -> Result<T, E> {
    parse(text).or_else(|error| match repaired(text) {
        Some(text) => parse(&text),
        None => Err(error),
    })
}

/// Replaces every unpaired surrogate. `None` if there is none.
///
/// In valid JSON backslashes occur only inside strings, so strings need not be located.
pub(super) fn repaired(text: &[u8]) -> Option<Vec<u8>> {
    let mut repaired: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'\\', &text[at..]) {
        at += found;
        match (
            escaped(&text[at..]),
            escaped(&text[(at + ESCAPE).min(text.len())..]),
        ) {
            (Some(Unit::High), Some(Unit::Low)) => at += 2 * ESCAPE,
            (Some(Unit::High | Unit::Low), _) => {
                repaired.get_or_insert_with(|| text.to_vec())[at..at + ESCAPE]
                    .copy_from_slice(REPLACEMENT);
                at += ESCAPE;
            }
            (Some(Unit::Other), _) => at += ESCAPE,
            (None, _) => at = (at + 2).min(text.len()),
        }
    }
    repaired
}

/// Type of an escaped UTF-16 unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    High,
    Low,
    Other,
}

/// Unit at the start of a text; `None` without a `\uXXXX`.
fn escaped(text: &[u8]) -> Option<Unit> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    let unit = digits.iter().try_fold(0, |unit, digit| {
        Some(unit << 4 | char::from(*digit).to_digit(16)?)
    })?;
    Some(match unit {
        0xd800..=0xdbff => Unit::High,
        0xdc00..=0xdfff => Unit::Low,
        _ => Unit::Other,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<String> {
        repairing(text.as_bytes(), |text| serde_json::from_slice(text)).ok()
    }

    #[test]
    fn only_lone_surrogates_are_replaced() {
        for (text, want) in [
            (r#""\ud83d""#, "\u{fffd}"),
            (r#""\uDE00\ud83d""#, "\u{fffd}\u{fffd}"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
            (r#""\ud83d\n""#, "\u{fffd}\n"),
            (r#""\ud83d\u0041""#, "\u{fffd}A"),
            (r#""\\ud83d \ud83d""#, "\\ud83d \u{fffd}"),
        ] {
            assert_eq!(read(text).as_deref(), Some(want), "{text}");
        }
        for bad in [
            r#""\ud83""#,
            r#""\ud83d"#,
            r#""\x \ud83d""#,
            "\\",
            "\\u",
            "",
        ] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(repaired(br#"{"a":"\ud83d\ude00\\"}"#), None);
    }

    proptest! {
        #[test]
        fn every_escaped_text_is_parsed(units in proptest::collection::vec(any::<u16>(), 0..12)) {
            let escapes: String = units.iter().map(|unit| format!("\\u{unit:04x}")).collect();
            let text = read(&format!("\"{escapes}\""));
            prop_assert_eq!(text, Some(String::from_utf16_lossy(&units)));
        }

        #[test]
        fn no_input_panics(text in r#"[\\u"dD8eE0{}:]{0,40}"#) {
            repaired(text.as_bytes());
        }
    }
}
