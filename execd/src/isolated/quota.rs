//! Limit of what all sessions together write (contract: execd A6.6, A7). The kernel has no
//! directory quota that works everywhere, so the daemon measures, and stops the largest session
//! from writing when the total is above the limit.

use std::sync::Arc;

use tokio::{sync::Mutex, time::Instant};

use super::{Isolation, session::Session};
use crate::{
    blocking::thread,
    error::{ApiError, ApiResult},
    limits,
};

/// Measurements, one at a time: each walks through everything that sessions wrote. Concurrent
/// requests share a result.
#[derive(Debug, Default)]
pub(super) struct Measurement {
    /// Time when the last complete measurement began.
    last: Mutex<Option<Instant>>,
}

impl Measurement {
    /// Measures, unless a measurement began and ended since the call.
    async fn refresh(&self, measure: impl AsyncFnOnce()) {
        let asked = Instant::now();
        let mut last = self.last.lock().await;
        if last.is_some_and(|began| began >= asked) {
            return;
        }
        let began = Instant::now();
        measure().await;
        *last = Some(began);
    }
}

/// Measures while the daemon runs, less often the longer a measurement takes.
pub(super) async fn watch(isolation: Isolation) {
    loop {
        let began = Instant::now();
        if isolation.sessions.config().upper_max_bytes > 0 && measure(&isolation).await {
            let sessions = measured(&isolation).await;
            if let Some((session, _)) = sessions.into_iter().max_by_key(|(_, bytes)| *bytes)
                && let Some(link) = session.link().await
            {
                link.clear();
            }
        }
        let took = began.elapsed() * limits::ISOLATED_MEASURE_PART;
        tokio::time::sleep(took.max(limits::ISOLATED_MEASURE)).await;
    }
}

/// Rejects requests that would write above the limit.
///
/// # Errors
/// 500 with the numbers (contract: execd A4.2).
pub(super) async fn check(isolation: &Isolation) -> ApiResult<()> {
    if isolation.sessions.excess().is_some() {
        // The session may have deleted files since.
        measure(isolation).await;
    }
    isolation
        .sessions
        .excess()
        .map_or(Ok(()), |excess| Err(ApiError::runtime(excess)))
}

/// Measures now, and returns whether the total is above the limit.
pub(super) async fn measure(isolation: &Isolation) -> bool {
    let sessions = &isolation.sessions;
    let measure = async || {
        let max = sessions.config().upper_max_bytes;
        let total: u64 = measured(isolation)
            .await
            .iter()
            .map(|(_, bytes)| bytes)
            .sum();
        let excess = (max > 0 && total >= max)
            .then(|| format!("upper quota exceeded: sessions have written {total} of {max} bytes"));
        sessions.set_excess(excess);
    };
    sessions.measurement().refresh(measure).await;
    sessions.excess().is_some()
}

async fn measured(isolation: &Isolation) -> Vec<(Arc<Session>, u64)> {
    let sessions = isolation.sessions.list();
    if sessions.is_empty() {
        // An idle daemon should not start a thread for this.
        return Vec::new();
    }
    let thread = thread().await;
    let walked = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        let sized = |session: Arc<Session>| {
            let bytes = session.upper_bytes();
            (session, bytes)
        };
        sessions.into_iter().map(sized).collect()
    });
    walked.await.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::future::join_all;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_a_measurement_that_began_after_them() {
        let measurement = Measurement::default();
        let count = std::cell::Cell::new(0);
        let refresh = || {
            measurement.refresh(async || {
                tokio::time::sleep(Duration::from_secs(1)).await;
                count.set(count.get() + 1);
            })
        };
        let late = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            join_all((0..10).map(|_| refresh())).await;
        };
        tokio::join!(refresh(), late);
        assert_eq!(
            count.get(),
            2,
            "one is under way, and the others share the next"
        );
    }
}
