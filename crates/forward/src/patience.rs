//! How long a silent exchange is waited for.

use std::time::Duration;

use tokio::time::Instant;

use crate::{Lease, lease::Silence};

/// Returns when to look again at an exchange in which bytes moved last at `last`, or `None` if it has
/// been silent for longer than `limit`.
pub(crate) fn next_look(
    last: Option<Instant>,
    limit: Duration,
    lease: Option<&Lease>,
) -> Option<Instant> {
    let now = Instant::now();
    let silence = lease.map_or(Silence::Counts, Lease::silence);
    let counts_from = match silence {
        Silence::Counts => last,
        Silence::CountsFrom(at) => Some(last.map_or(at, |last| last.max(at))),
        Silence::Excused => Some(now),
    };
    counts_from.map(|at| at + limit).filter(|next| *next > now)
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::lease::CountSilence;

    const LIMIT: Duration = Duration::from_secs(180);

    struct Fixed(Silence);

    impl CountSilence for Fixed {
        fn silence(&self) -> Silence {
            self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_silence_of_a_backend_that_can_answer_counts() {
        let begin = Instant::now();
        advance(LIMIT * 2).await;
        let now = Instant::now();
        let look = |silence| {
            let lease = Lease::with_silence(Fixed(silence));
            next_look(Some(begin), LIMIT, Some(&lease))
        };
        assert_eq!(next_look(Some(begin), LIMIT, None), None);
        assert_eq!(next_look(Some(now), LIMIT, None), Some(now + LIMIT));
        assert_eq!(look(Silence::Counts), None);
        assert_eq!(look(Silence::Excused), Some(now + LIMIT));
        let resumed = now - LIMIT / 2;
        assert_eq!(look(Silence::CountsFrom(resumed)), Some(resumed + LIMIT));
        assert_eq!(look(Silence::CountsFrom(begin)), None);
    }
}
