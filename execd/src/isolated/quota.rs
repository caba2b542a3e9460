//! Limit of what all sessions together write (contract: execd A6.6, A7). The kernel has no
//! directory quota that works everywhere, so the daemon measures, and stops the largest session
//! from writing when the total is above the limit.

use std::sync::Arc;

use super::{Isolation, session::Session};
use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Measures while the daemon runs, less often the longer a measurement takes.
pub(super) async fn watch(isolation: Isolation) {
    loop {
        let began = tokio::time::Instant::now();
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
    let max = isolation.sessions.config().upper_max_bytes;
    let total: u64 = measured(isolation)
        .await
        .iter()
        .map(|(_, bytes)| bytes)
        .sum();
    let excess = (max > 0 && total >= max)
        .then(|| format!("upper quota exceeded: sessions have written {total} of {max} bytes"));
    let over = excess.is_some();
    isolation.sessions.set_excess(excess);
    over
}

async fn measured(isolation: &Isolation) -> Vec<(Arc<Session>, u64)> {
    let sessions = isolation.sessions.list();
    if sessions.is_empty() {
        // An idle daemon should not start a thread for this.
        return Vec::new();
    }
    let walked = tokio::task::spawn_blocking(move || {
        let sized = |session: Arc<Session>| {
            let bytes = session.upper_bytes();
            (session, bytes)
        };
        sessions.into_iter().map(sized).collect()
    });
    walked.await.unwrap_or_default()
}
