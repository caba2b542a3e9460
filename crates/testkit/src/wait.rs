//! Polling for conditions that no event announces, and how long tests wait.

use std::{fmt::Debug, future::Future, sync::OnceLock, time::Duration};

use jiff::Timestamp;
use tokio::time::{Instant, sleep};

/// Variable with the factor by which a busy machine is slower than a quiet one. `cargo xtask test`
/// sets it; without it, it is 1.
const FACTOR: &str = "OSB_TEST_PATIENCE";
/// Generous deadline on a quiet machine.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(10);
/// Time until [`soon`] on a quiet machine.
const SOON: Duration = Duration::from_secs(2);

/// Lengthens a time that a busy machine may exceed.
///
/// # Panics
/// When `OSB_TEST_PATIENCE` is no factor from 1 to 100.
#[must_use]
pub fn scaled(time: Duration) -> Duration {
    static SCALE: OnceLock<f64> = OnceLock::new();
    let scale = SCALE.get_or_init(|| {
        let Some(text) = std::env::var_os(FACTOR) else {
            return 1.0;
        };
        let factor = text.to_str().and_then(|text| text.parse().ok());
        factor
            .filter(|factor| (1.0..=100.0).contains(factor))
            .unwrap_or_else(|| panic!("{FACTOR} is no factor from 1 to 100: {text:?}"))
    });
    time.mul_f64(*scale)
}

/// Deadline of whatever a test waits for: a test that needs this long is broken, not slow.
#[must_use]
pub fn patience() -> Duration {
    scaled(LIMIT)
}

/// A moment that comes soon, yet after the server has taken a request that names it.
#[must_use]
pub fn soon() -> Timestamp {
    Timestamp::now() + scaled(SOON)
}

/// Polls until `right` accepts the value, and returns the value.
///
/// # Panics
/// After [`patience`], with the last value.
pub async fn wait_until<T, F>(
    what: &str,
    mut look: impl FnMut() -> F,
    right: impl Fn(&T) -> bool,
) -> T
where
    T: Debug,
    F: Future<Output = T>,
{
    let deadline = Instant::now() + patience();
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
