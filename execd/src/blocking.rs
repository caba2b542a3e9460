//! Blocking work: file operations, and other system calls that may hang.

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, SemaphorePermit},
};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Threads for file operations. Fewer than all blocking threads: work that hangs in a file system
/// cannot be cancelled, and the output of commands still needs threads.
static THREADS: Semaphore = Semaphore::const_new(limits::FILE_THREADS);

/// Waits for a permit to use a thread. The work owns the permit, since it may outlive the request.
pub(crate) async fn thread() -> SemaphorePermit<'static> {
    THREADS
        .acquire()
        .await
        .expect("the semaphore is never closed")
}

/// Runs blocking work.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let thread = thread().await;
    let ended = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    ended
        .await
        .unwrap_or_else(|_| Err(ApiError::runtime("internal error")))
}

/// Runs work that rarely blocks, such as the start of a process, on the current thread. Should it
/// hang in a file system, another thread serves the other requests.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Runs work that may take long. Cancels its token when the caller no longer waits.
pub(crate) async fn blocking_while_wanted<T: Send + 'static>(
    work: impl FnOnce(&CancellationToken) -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let unwanted = CancellationToken::new();
    let _cancelled_with_this = unwanted.clone().drop_guard();
    blocking(move || work(&unwanted)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abandoned_work_is_cancelled() {
        let (started, waits) = tokio::sync::oneshot::channel();
        let (ended, learnt) = std::sync::mpsc::channel();
        let work = blocking_while_wanted(move |unwanted| {
            started.send(()).unwrap();
            futures::executor::block_on(unwanted.cancelled());
            ended.send(()).unwrap();
            Ok(())
        });
        tokio::select! {
            _ = work => panic!("it waits to be unwanted"),
            _ = waits => {}
        }
        learnt.recv().unwrap();
    }
}
