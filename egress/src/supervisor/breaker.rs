//! Breaker: notices a worker that is launched again and again.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::Options;

/// Last launches. It is tripped while all of them lie in the window.
#[derive(Debug)]
pub(super) struct Breaker {
    window: Duration,
    max: usize,
    launches: VecDeque<Instant>,
}

impl Breaker {
    pub(super) fn new(options: &Options) -> Self {
        Self {
            window: options.burst_window,
            max: options.burst_max.max(1),
            launches: VecDeque::new(),
        }
    }

    /// Counts a launch.
    pub(super) fn launched(&mut self, now: Instant) {
        self.launches.push_back(now);
        if self.launches.len() > self.max {
            self.launches.pop_front();
        }
    }

    /// Number of launches, if they are too many.
    pub(super) fn tripped(&self, now: Instant) -> Option<usize> {
        let oldest = *self.launches.front()?;
        let is_full = self.launches.len() == self.max;
        (is_full && now.duration_since(oldest) <= self.window).then_some(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_trips_while_the_last_launches_lie_in_the_window() {
        let mut breaker = Breaker::new(&Options {
            burst_max: 3,
            burst_window: Duration::from_secs(60),
            ..Options::new("w")
        });
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        assert_eq!(breaker.tripped(at(0)), None);
        let mut launch = |second| {
            breaker.launched(at(second));
            breaker.tripped(at(second))
        };
        assert_eq!([0, 10, 61].map(&mut launch), [None, None, None]);
        assert_eq!(launch(70), Some(3));
        assert_eq!(launch(75), Some(3));
        assert_eq!(breaker.tripped(at(121)), Some(3));
        assert_eq!(breaker.tripped(at(122)), None);
        assert_eq!(breaker.launches.len(), 3);
    }
}
