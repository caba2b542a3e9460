//! Readable durations.

use std::time::Duration;

/// Formats a duration in seconds, or in minutes and seconds.
pub(crate) fn readable(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..60 => format!("{seconds}.{} s", time.subsec_millis() / 100),
        seconds => format!("{} min {} s", seconds / 60, seconds % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_readable() {
        assert_eq!(readable(Duration::from_millis(2_345)), "2.3 s");
        assert_eq!(readable(Duration::from_secs(1_180)), "19 min 40 s");
    }
}
