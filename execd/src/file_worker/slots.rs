//! Limit of concurrent file workers.

use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Slots for file workers. A worker occupies its slot until its request ends.
#[derive(Debug)]
pub(crate) struct WorkerSlots {
    free: Semaphore,
    total: usize,
}

impl WorkerSlots {
    pub(crate) const fn new(total: usize) -> Self {
        let free = Semaphore::const_new(total);
        Self { free, total }
    }

    /// Waits for a free slot.
    ///
    /// # Errors
    /// 503 with `Retry-After` when none becomes free within [`limits::FILE_WORKER_WAIT`]. Clients
    /// may keep a slot as long as they like, for example by reading a download slowly.
    pub(crate) async fn acquire(&self) -> ApiResult<SemaphorePermit<'_>> {
        match timeout(limits::FILE_WORKER_WAIT, self.free.acquire()).await {
            Ok(slot) => Ok(slot.expect("the semaphore is never closed")),
            Err(_) => Err(ApiError::Busy(format!(
                "all {} file workers were busy for {} s; retry later",
                self.total,
                limits::FILE_WORKER_WAIT.as_secs()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_slot_but_not_for_ever() {
        static SLOTS: WorkerSlots = WorkerSlots::new(1);
        let slot = SLOTS.acquire().await.unwrap();
        let began = Instant::now();
        let error = SLOTS.acquire().await.unwrap_err();
        assert_eq!(began.elapsed(), limits::FILE_WORKER_WAIT);
        let message = "all 1 file workers were busy for 10 s; retry later";
        assert_eq!(error, ApiError::Busy(message.to_owned()));
        let (next, ()) = tokio::join!(SLOTS.acquire(), async { drop(slot) });
        assert!(next.is_ok());
    }
}
