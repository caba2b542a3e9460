//! The log of one test among others.

use tracing::{
    Dispatch, Subscriber,
    subscriber::{DefaultGuard, NoSubscriber},
};

/// Sends what the tasks of this thread log to a subscriber.
pub fn collect_with(subscriber: impl Subscriber + Send + Sync + 'static) -> DefaultGuard {
    // With one dispatcher only, the thread that logs a line first decides for all threads whether it
    // is of interest, and that may be one of another test.
    std::mem::forget(Dispatch::new(NoSubscriber::default()));
    tracing::subscriber::set_default(subscriber)
}
