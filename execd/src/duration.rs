//! Durations as flags and hooks spell them.

use std::time::Duration;

/// Parses a duration in Go's format: `1h2m3.5s`, `300ms`, `0`.
pub(crate) fn parse(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(unit.len());
        total += number
            * match &unit[..end] {
                "ns" => 1e-9,
                "us" | "µs" | "μs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                _ => return None,
            };
        rest = &unit[end..];
    }
    (!text.is_empty())
        .then(|| Duration::try_from_secs_f64(total).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        assert_eq!(parse("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(parse("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(parse("1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("0"), Some(Duration::ZERO));
        for bad in ["", "1", "s", "-1s", "1 s", "1d", "..s"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
