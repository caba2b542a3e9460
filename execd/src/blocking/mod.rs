//! Blocking work: file operations, and other system calls that may hang.

mod watch;

use std::sync::{Arc, OnceLock};

use tokio::{
    runtime::{Handle, RuntimeFlavor},
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use self::watch::Watch;
use crate::{
    error::{ApiError, ApiResult},
    limits,
};

/// Threads for file operations. Fewer than all blocking threads: work that hangs in a file system
/// cannot be cancelled, and the output of commands still needs threads.
static THREADS: Semaphore = Semaphore::const_new(limits::FILE_THREADS);

/// Waits for a permit to use a thread, as long as the client of a transfer in progress waits. The
/// work owns the permit, since it may outlive the request.
pub(crate) async fn thread() -> SemaphorePermit<'static> {
    THREADS
        .acquire()
        .await
        .expect("the semaphore is never closed")
}

/// Waits for a permit as a new request does.
///
/// # Errors
/// 503 with `Retry-After` when none becomes free within [`limits::FILE_THREAD_WAIT`]: the work of
/// other requests may hang for ever.
async fn thread_for_request(threads: &Semaphore) -> ApiResult<SemaphorePermit<'_>> {
    match timeout(limits::FILE_THREAD_WAIT, threads.acquire()).await {
        Ok(thread) => Ok(thread.expect("the semaphore is never closed")),
        Err(_) => Err(ApiError::Busy(format!(
            "all {} threads for files were busy for {} s; retry later",
            limits::FILE_THREADS,
            limits::FILE_THREAD_WAIT.as_secs()
        ))),
    }
}

/// Places for starts of processes. Those that hang in a file system must not take the threads that
/// serve everything else.
static STARTS: Semaphore = Semaphore::const_new(limits::STARTS);

/// Waits for a place to start a process.
///
/// # Errors
/// 503 with `Retry-After` when none becomes free within [`limits::START_WAIT`].
async fn place_for_start(starts: &Semaphore) -> ApiResult<SemaphorePermit<'_>> {
    match timeout(limits::START_WAIT, starts.acquire()).await {
        Ok(place) => Ok(place.expect("the semaphore is never closed")),
        Err(_) => Err(ApiError::Busy(format!(
            "{} starts of processes have not ended for {} s, perhaps because a file system does not \
             answer; retry later",
            limits::STARTS,
            limits::START_WAIT.as_secs()
        ))),
    }
}

/// Runs the start of a process, or a look at a directory for one, as [`in_place`] does.
///
/// # Errors
/// 503 when too many starts hang.
pub(crate) async fn start_in_place<T>(work: impl FnOnce() -> T) -> ApiResult<T> {
    let _place = place_for_start(&STARTS).await?;
    Ok(in_place(work))
}

/// Runs blocking work.
///
/// # Errors
/// The error of the work, or 503 when no thread is free for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> ApiResult<T> + Send + 'static,
) -> ApiResult<T> {
    let thread = thread_for_request(&THREADS).await?;
    let ended = tokio::task::spawn_blocking(move || {
        let _thread = thread;
        work()
    });
    ended
        .await
        .unwrap_or_else(|_| Err(ApiError::runtime("internal error")))
}

/// Runs work that rarely blocks on the current thread. Should it hang in a file system, another thread
/// serves the other requests. How often that may happen at once must be limited.
pub(crate) fn in_place<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) if !watch::is_watched() => tokio::task::block_in_place(work),
        _ => work(),
    }
}

/// Workers that may block in the start of commands. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Starts {
    watch: Arc<OnceLock<Option<Watch>>>,
}

impl Starts {
    /// Runs work as [`start_in_place`] does, but usually without waking another thread for it.
    ///
    /// # Errors
    /// 503 when too many starts hang.
    pub(crate) async fn run<T>(&self, work: impl FnOnce() -> T) -> ApiResult<T> {
        let _place = place_for_start(&STARTS).await?;
        // A worker keeps the task that was woken last to itself. After this that is the current
        // one; what else waits for this worker is done by others.
        tokio::task::yield_now().await;
        Ok(match self.watch() {
            Some(watch) => watch.run(work).unwrap_or_else(in_place),
            None => in_place(work),
        })
    }

    fn watch(&self) -> Option<&Watch> {
        let start = || {
            let runtime = Handle::current();
            let others_serve = runtime.metrics().num_workers() > 1;
            others_serve.then(|| Watch::start(runtime))?.ok()
        };
        self.watch.get_or_init(start).as_ref()
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
    use tokio::time::Instant;

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

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_a_thread_but_not_for_ever() {
        let threads = Semaphore::new(1);
        let thread = thread_for_request(&threads).await.unwrap();
        let began = Instant::now();
        let error = thread_for_request(&threads).await.unwrap_err();
        assert_eq!(began.elapsed(), limits::FILE_THREAD_WAIT);
        let message = "all 24 threads for files were busy for 10 s; retry later";
        assert_eq!(error, ApiError::Busy(message.to_owned()));
        let (next, ()) = tokio::join!(thread_for_request(&threads), async { drop(thread) });
        assert!(next.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_a_place_but_not_for_ever() {
        let starts = Semaphore::new(1);
        let place = place_for_start(&starts).await.unwrap();
        let began = Instant::now();
        let error = place_for_start(&starts).await.unwrap_err();
        assert_eq!(began.elapsed(), limits::START_WAIT);
        let message = "16 starts of processes have not ended for 10 s, perhaps because a file system \
                       does not answer; retry later";
        assert_eq!(error, ApiError::Busy(message.to_owned()));
        let (next, ()) = tokio::join!(place_for_start(&starts), async { drop(place) });
        assert!(next.is_ok());
    }
}
