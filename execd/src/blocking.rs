//! Work that blocks: on files, and on whatever else of the kernel may hang.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Threads for work on files. Fewer than there are, so that work that hangs in a filesystem, which
/// nobody can end, leaves some for the output of commands.
static THREADS: Semaphore = Semaphore::const_new(limits::FILE_THREADS);

/// The right to a thread. The work takes it along: it may outlive the request.
pub(crate) async fn thread() -> SemaphorePermit<'static> {
    THREADS
        .acquire()
        .await
        .expect("the semaphore is never closed")
}

/// Runs work that blocks.
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

/// Runs work that may take long. What it is given is cancelled when nobody waits for it any more.
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
    async fn long_work_learns_that_nobody_waits() {
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
