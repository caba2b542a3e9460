//! The time by which messages are due. Tests bring one that they move.

use std::time::Duration;

use async_trait::async_trait;
use osb_protocol::WireTime;

/// Longest sleep: the clock of the host may be set meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(60);

/// What time it is.
#[async_trait]
pub trait Clock: std::fmt::Debug + Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> WireTime;

    /// Waits until a moment, or less; the caller looks at the clock again.
    async fn sleep_until(&self, at: WireTime);
}

/// The clock of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> WireTime {
        WireTime::new(jiff::Timestamp::now())
    }

    async fn sleep_until(&self, at: WireTime) {
        let left = at.unix_us().saturating_sub(self.now().unix_us());
        let left = Duration::from_micros(u64::try_from(left).unwrap_or(0));
        tokio::time::sleep(left.min(LONGEST_SLEEP)).await;
    }
}
