//! A kill of the server between any two of its steps: its calls of the store and of the runtime.

use std::{
    future::{Future, pending},
    sync::atomic::{AtomicUsize, Ordering::SeqCst},
};

use tokio::sync::watch;

/// What the step of the kill still does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Nothing.
    Before,
    /// Its effect remains, its answer is lost.
    After,
}

/// Counts steps, and stops all work for ever at one of them.
#[derive(Debug)]
pub(crate) struct Fuse {
    /// Steps until the kill.
    left: AtomicUsize,
    side: Side,
    armed: watch::Sender<bool>,
    burnt: watch::Sender<bool>,
}

impl Fuse {
    pub(crate) fn new(steps: usize, side: Side) -> Self {
        Self {
            left: AtomicUsize::new(steps),
            side,
            armed: watch::Sender::new(false),
            burnt: watch::Sender::new(false),
        }
    }

    /// Begins to count.
    pub(crate) fn arm(&self) {
        self.armed.send_replace(true);
    }

    /// Whether the server was killed.
    pub(crate) fn is_burnt(&self) -> bool {
        *self.burnt.borrow()
    }

    /// Waits for the kill.
    pub(crate) async fn burn(&self) {
        let mut burnt = self.burnt.subscribe();
        let _closed = burnt.wait_for(|burnt| *burnt).await;
    }

    fn is_last(&self) -> bool {
        let less = |left: usize| left.checked_sub(1);
        *self.armed.borrow() && self.left.fetch_update(SeqCst, SeqCst, less).is_err()
    }

    /// Does one step, unless the server is killed before or during it.
    pub(crate) async fn step<T>(&self, work: impl Future<Output = T>) -> T {
        if *self.burnt.borrow() {
            return pending().await;
        }
        if self.is_last() {
            if self.side == Side::After {
                work.await;
            }
            self.burnt.send_replace(true);
            return pending().await;
        }
        self.unless_burnt(work).await
    }

    /// Counts a step within a call that is under way.
    pub(crate) fn pass(&self) {
        if self.is_last() {
            self.burnt.send_replace(true);
        }
    }

    /// Does work until the kill.
    pub(crate) async fn unless_burnt<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.burn() => pending().await,
            done = work => done,
        }
    }
}
