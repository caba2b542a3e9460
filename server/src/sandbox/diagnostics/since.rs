//! The `since` of the plain log (contract: lifecycle §11).

/// Seconds of a text that is no duration.
const DEFAULT: i64 = 600;

/// Reads a duration such as `30s`, `10m`, `1 h` or `2d`, in seconds. Any other text means ten
/// minutes, as on other servers; a blank one means no limit.
#[must_use]
pub fn parse(text: &str) -> Option<i64> {
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    Some(seconds(text).unwrap_or(DEFAULT))
}

fn seconds(text: &str) -> Option<i64> {
    let unit = text.chars().last()?.to_ascii_lowercase();
    let factor = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return None,
    };
    let digits = text[..text.len() - 1].trim_end();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: i64 = is_number.then(|| digits.parse().ok())??;
    number.checked_mul(factor)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn any_other_text_means_ten_minutes() {
        for (text, seconds) in [
            ("30s", Some(30)),
            ("10m", Some(600)),
            ("1 h", Some(3600)),
            (" 2D ", Some(172_800)),
            ("", None),
            ("yesterday", Some(600)),
            ("-5m", Some(600)),
            ("5", Some(600)),
            ("m", Some(600)),
            ("5µ", Some(600)),
            ("99999999999999999999d", Some(600)),
        ] {
            assert_eq!(parse(text), seconds, "{text:?}");
        }
    }
}
