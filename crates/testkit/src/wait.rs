//! Polling for conditions that no event announces.

use std::{fmt::Debug, future::Future, time::Duration};

use tokio::time::{Instant, sleep};

/// Generous deadline: a test that needs this long is broken, not slow.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);

/// Polls until `right` accepts the value, and returns the value.
///
/// # Panics
/// After a minute, with the last value.
pub async fn wait_until<T, F>(
    what: &str,
    mut look: impl FnMut() -> F,
    right: impl Fn(&T) -> bool,
) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let deadline = Instant::now() + LIMIT;
    loop {
        let seen = look().await;
        if right(&seen) {
            return seen;
        }
        assert!(
            Instant::now() < deadline,
            "waited for {what}, last saw {seen:?}"
        );
        sleep(PAUSE).await;
    }
}
