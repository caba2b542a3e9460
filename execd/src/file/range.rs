//! Parser of the `Range` header (contract: execd §10.11).

use std::ops::Range;

/// Result of a `Range` header for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestedRange {
    /// Bytes to send.
    Part(Range<u64>),
    /// Every range begins past the end.
    Unsatisfiable,
    /// The header is malformed.
    Malformed,
}

/// Parses a header for a file of `size` bytes. The first satisfiable range applies.
pub(super) fn parse_range(header: &str, size: u64) -> RequestedRange {
    let Some(ranges) = header.trim().strip_prefix("bytes=") else {
        return RequestedRange::Malformed;
    };
    let mut first = None;
    for range in ranges.split(',') {
        match one(range.trim(), size) {
            None => return RequestedRange::Malformed,
            Some(range) if !range.is_empty() => first = first.or(Some(range)),
            Some(_) => {}
        }
    }
    first.map_or(RequestedRange::Unsatisfiable, RequestedRange::Part)
}

/// Parses one range. `None` if malformed. An empty result lies past the end.
fn one(range: &str, size: u64) -> Option<Range<u64>> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        // A number that overflows is past every end.
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    match range.split_once('-')? {
        ("", suffix) => Some(size - number(suffix)?.min(size)..size),
        (start, "") => Some(number(start)?.min(size)..size),
        (start, end) => {
            let (start, end) = (number(start)?, number(end)?);
            (start <= end).then(|| start.min(size)..end.saturating_add(1).min(size))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_of_a_file_of_ten_bytes() {
        for (header, want) in [
            ("bytes=0-3", RequestedRange::Part(0..4)),
            ("bytes=3-", RequestedRange::Part(3..10)),
            ("bytes=-4", RequestedRange::Part(6..10)),
            ("bytes=-40", RequestedRange::Part(0..10)),
            ("bytes=8-99999999999999999999", RequestedRange::Part(8..10)),
            ("bytes=20-, 1-1", RequestedRange::Part(1..2)),
            ("bytes=10-", RequestedRange::Unsatisfiable),
            ("bytes=-0", RequestedRange::Unsatisfiable),
        ] {
            assert_eq!(parse_range(header, 10), want, "{header}");
        }
        for bad in [
            "",
            "bytes",
            "bytes=",
            "lines=0-1",
            "bytes=1",
            "bytes=2-1",
            "bytes=a-b",
            "bytes=-",
            "bytes=+1-2",
            "bytes=0-1,",
        ] {
            assert_eq!(parse_range(bad, 10), RequestedRange::Malformed, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn ranges_lie_inside_the_file(header in "bytes=[0-9,-]{0,12}", size in 0u64..40) {
            if let RequestedRange::Part(part) = parse_range(&header, size) {
                prop_assert!(part.start < part.end && part.end <= size);
            }
        }
    }
}
