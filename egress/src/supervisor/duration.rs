//! Durations in Go's format, which the flags and the event log use.

use std::time::Duration;

/// Longest duration that Go can express. Timers accept it, too.
const LONGEST: Duration = Duration::from_nanos(i64::MAX.cast_unsigned());

/// Parses `1h2m3.5s`, `300ms` or `0`. Negative ones are refused.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = None;
    while !rest.is_empty() {
        let end_of_number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end_of_number);
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let number: f64 = number.parse().ok()?;
        *seconds.get_or_insert(0.0) += number * unit_in_seconds(unit)?;
        rest = after;
    }
    let duration = Duration::try_from_secs_f64(seconds?).ok()?;
    (duration <= LONGEST).then_some(duration)
}

fn unit_in_seconds(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" => 1e-9,
        "us" | "µs" | "μs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    })
}

/// Formats as Go does, to the millisecond: `5m0s`, `1.5s`, `20ms`, `0s`.
pub(super) fn format(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let milliseconds = duration.subsec_millis();
    if seconds == 0 && milliseconds > 0 {
        return format!("{milliseconds}ms");
    }
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    let fraction = match milliseconds {
        0 => String::new(),
        _ => format!(".{milliseconds:03}")
            .trim_end_matches('0')
            .to_owned(),
    };
    let rest = format!("{}{fraction}s", seconds % 60);
    match (hours, minutes) {
        (0, 0) => rest,
        (0, _) => format!("{minutes}m{rest}"),
        _ => format!("{hours}h{minutes}m{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_those_of_go() {
        assert_eq!(parse("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(parse("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse("+1.5h"), Some(Duration::from_secs(5400)));
        assert_eq!(parse(".5s"), Some(Duration::from_millis(500)));
        assert_eq!(parse("1s1µs"), Some(Duration::from_micros(1_000_001)));
        assert_eq!(parse("0"), Some(Duration::ZERO));
        for bad in [
            "", "+", "1", "s", "-1s", "1 s", "1d", "..s", "1e3s", "2562048h",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn formatted_durations_are_those_of_go() {
        for text in [
            "0s", "20ms", "1s", "1.5s", "1.005s", "5m0s", "1m30.25s", "1h0m0s", "36h1m2s",
        ] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }
}
