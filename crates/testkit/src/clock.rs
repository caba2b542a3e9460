//! A clock that stands still until a test moves it.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use osb_protocol::WireTime;
use osb_server::webhooks::Clock;
use tokio::sync::watch;

/// A clock that stands still until a test moves it.
#[derive(Debug)]
pub struct ManualClock(watch::Sender<WireTime>);

impl ManualClock {
    /// Returns a clock that shows the present moment.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let now = WireTime::new(jiff::Timestamp::now());
        Arc::new(Self(watch::Sender::new(now)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.0.send_modify(|now| {
            let moved = now.unix_us().saturating_add(micros);
            *now = WireTime::from_unix_us(moved).unwrap_or(*now);
        });
    }

    /// Sets the clock back.
    pub fn set_back(&self, time: Duration) {
        let micros = i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        self.0.send_modify(|now| {
            let moved = now.unix_us().saturating_sub(micros);
            *now = WireTime::from_unix_us(moved).unwrap_or(*now);
        });
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> WireTime {
        *self.0.borrow()
    }

    async fn sleep_until(&self, at: WireTime) {
        // It ends only with the clock, and then there is nothing to wait for.
        let _ = self.0.subscribe().wait_for(|now| *now >= at).await;
    }
}
