//! When a message is sent again.

use std::time::Duration;

use osb_protocol::WireTime;
use rand::RngExt;

/// Longest time that a receiver may ask to be left alone.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
/// How much of a pause chance adds or takes away, so that receivers are not asked in step.
const JITTER: f64 = 0.1;
/// Longest pause that the configuration or a receiver can lead to.
const PAUSE_MAX: Duration = Duration::from_secs(30 * 3600);

/// Pauses between attempts, and the end of them.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// Pause after each failed attempt. The attempt after the last pause is the last one.
    pub pauses: Vec<Duration>,
    /// Age of an event at which no further attempt is begun.
    pub give_up_after: Duration,
}

impl Default for Schedule {
    fn default() -> Self {
        let seconds = [5, 30, 120, 600, 1800, 7200, 21_600, 43_200];
        Self {
            pauses: seconds.map(Duration::from_secs).to_vec(),
            give_up_after: Duration::from_secs(24 * 3600),
        }
    }
}

impl Schedule {
    /// Whether a message with so many attempts may be sent at `now`. One that was never tried is always
    /// due, and none waits longer than the longest pause: the clock was set back if it seems so.
    pub(super) fn is_due(attempts: u32, due_at: WireTime, now: WireTime) -> bool {
        let latest = after(now, PAUSE_MAX);
        attempts == 0 || due_at <= now || latest.is_some_and(|latest| latest < due_at)
    }

    /// When to send again a message whose attempt, the `attempts`-th, failed at `now`; `None` for never.
    pub(super) fn next(
        &self,
        attempts: u32,
        announced_at: WireTime,
        now: WireTime,
        retry_after: Option<Duration>,
    ) -> Option<WireTime> {
        let index = usize::try_from(attempts).unwrap_or(usize::MAX).max(1) - 1;
        let pause = *self.pauses.get(index)?;
        if after(announced_at, self.give_up_after)? <= now {
            return None;
        }
        let factor = 1.0 + rand::rng().random_range(-JITTER..=JITTER);
        let pause = pause.mul_f64(factor);
        let asked = retry_after.unwrap_or_default().min(RETRY_AFTER_MAX);
        after(now, pause.max(asked))
    }
}

/// The moment that lies so long after another.
fn after(at: WireTime, pause: Duration) -> Option<WireTime> {
    let pause = i64::try_from(pause.as_micros()).ok()?;
    WireTime::from_unix_us(at.unix_us().checked_add(pause)?)
}

/// The pause that a `Retry-After` asks for, in seconds or as a date.
pub(super) fn retry_after(value: &str, now: WireTime) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(value);
    let date = WireTime::new(date.ok()?);
    let micros = date.unix_us().saturating_sub(now.unix_us());
    Some(Duration::from_micros(u64::try_from(micros).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> WireTime {
        WireTime::from_unix_us(seconds * 1_000_000).unwrap()
    }

    fn pause(attempts: u32, age: i64, asked: Option<u64>) -> Option<f64> {
        let now = at(1_000_000);
        let announced = at(1_000_000 - age);
        let asked = asked.map(Duration::from_secs);
        let next = Schedule::default().next(attempts, announced, now, asked)?;
        Some((next.unix_us() - now.unix_us()) as f64 / 1e6)
    }

    #[test]
    fn pauses_grow_and_end() {
        for (attempts, seconds) in [(1, 5.0), (2, 30.0), (3, 120.0), (8, 43_200.0)] {
            for _ in 0..50 {
                let pause = pause(attempts, 0, None).unwrap();
                let range = seconds * 0.89..seconds * 1.11;
                assert!(range.contains(&pause), "{attempts}: {pause}");
            }
        }
        assert_eq!(pause(9, 0, None), None);
        assert_eq!(pause(1, 24 * 3600, None), None, "too old");
        let all: Duration = Schedule::default().pauses.iter().sum();
        assert!(all.mul_f64(1.0 + JITTER) < Schedule::default().give_up_after);
    }

    #[test]
    fn a_clock_that_was_set_back_delays_no_message_for_long() {
        let is_due = |attempts, due| Schedule::is_due(attempts, at(due), at(1_000_000));
        assert!(is_due(0, 1_000_000) && is_due(1, 1_000_000) && !is_due(1, 1_000_001));
        assert!(is_due(0, 1_000_001), "it was announced by the clock before");
        let day = 24 * 3600;
        assert!(!is_due(1, 1_000_000 + day) && is_due(1, 1_000_000 + 2 * day));
        let longest = RETRY_AFTER_MAX.mul_f64(1.0 + JITTER);
        assert!(longest < PAUSE_MAX, "{longest:?}");
    }

    #[test]
    fn a_receiver_may_ask_for_a_longer_pause() {
        assert_eq!(pause(1, 0, Some(600)), Some(600.0));
        assert!(
            pause(2, 0, Some(1)).unwrap() > 20.0,
            "not for a shorter one"
        );
        assert_eq!(pause(1, 0, Some(u64::MAX)), Some(86_400.0));
        let now = at(784_111_777);
        let seconds = |value| retry_after(value, now).map(|it| it.as_secs());
        assert_eq!(seconds(" 120 "), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:00:00 GMT"), Some(0));
        assert_eq!(seconds("soon"), None);
    }
}
