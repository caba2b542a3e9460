//! Polls of parts of one task that wake each other.
//!
//! The sender, the driver and the body of a connection are connected by channels, and one task polls
//! them all. A wake from one to another in the middle of such a poll would schedule the running task a
//! second time, and the runtime would wake another worker thread for it. A [`Turn`] polls again instead.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures::task::AtomicWaker;

/// Polls in one turn. More often wakes itself only what wants other tasks to run in between.
const MOST_POLLS: usize = 8;

/// The waker of some parts, and which task has them.
pub(crate) struct Turn {
    shared: Arc<Shared>,
    waker: Waker,
}

#[derive(Default)]
struct Shared {
    task: AtomicWaker,
    is_polling: AtomicBool,
    is_woken: AtomicBool,
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either the end of the turn sees this, or this sees the end of the turn.
        self.is_woken.store(true, Ordering::SeqCst);
        if !self.is_polling.load(Ordering::SeqCst) {
            self.task.wake();
        }
    }
}

impl Turn {
    pub(crate) fn new() -> Self {
        let shared = Arc::new(Shared::default());
        let waker = Waker::from(Arc::clone(&shared));
        Self { shared, waker }
    }

    /// Calls what wakes a part that [`Self::poll`] polls right afterwards.
    pub(crate) fn before_poll<T>(&self, call: impl FnOnce() -> T) -> T {
        self.shared.is_polling.store(true, Ordering::SeqCst);
        let done = call();
        self.shared.is_polling.store(false, Ordering::SeqCst);
        done
    }

    /// Polls the parts, again for as long as they wake each other.
    pub(crate) fn poll<T>(
        &self,
        cx: &mut Context<'_>,
        mut parts: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Shared {
            task,
            is_polling,
            is_woken,
        } = &*self.shared;
        task.register(cx.waker());
        for _ in 0..MOST_POLLS {
            is_polling.store(true, Ordering::SeqCst);
            is_woken.store(false, Ordering::SeqCst);
            let polled = parts(&mut Context::from_waker(&self.waker));
            is_polling.store(false, Ordering::SeqCst);
            if polled.is_ready() || !is_woken.load(Ordering::SeqCst) {
                return polled;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The result of a turn, how often its parts were polled, and how often the task was woken.
    fn turn<T>(
        turn: &Turn,
        mut parts: impl FnMut(usize, &mut Context<'_>) -> Poll<T>,
    ) -> (Poll<T>, usize, Arc<Wakes>) {
        let wakes = Arc::new(Wakes::default());
        let waker = Waker::from(Arc::clone(&wakes));
        let mut polls = 0;
        let polled = turn.poll(&mut Context::from_waker(&waker), |cx| {
            polls += 1;
            parts(polls, cx)
        });
        (polled, polls, wakes)
    }

    fn count(wakes: &Wakes) -> usize {
        wakes.0.load(Ordering::SeqCst)
    }

    #[test]
    fn parts_that_wake_each_other_are_polled_again_at_once() {
        let (polled, polls, wakes) = turn(&Turn::new(), |polls, cx| {
            cx.waker().wake_by_ref();
            if polls == 3 {
                Poll::Ready(7)
            } else {
                Poll::Pending
            }
        });
        assert_eq!((polled, polls, count(&wakes)), (Poll::Ready(7), 3, 0));
    }

    #[test]
    fn a_wake_between_turns_reaches_the_task() {
        let parts = Turn::new();
        let mut kept = None;
        let (polled, polls, wakes) = turn(&parts, |_, cx| {
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        assert_eq!((polled, polls, count(&wakes)), (Poll::Pending, 1, 0));
        let kept = kept.unwrap();
        kept.wake_by_ref();
        assert_eq!(count(&wakes), 1);

        // Another task polls the parts now.
        let (_, polls, other) = turn(&parts, |_, _| Poll::<()>::Pending);
        kept.wake();
        assert_eq!((polls, count(&wakes), count(&other)), (1, 1, 1));
    }

    #[test]
    fn parts_that_never_rest_let_other_tasks_run() {
        let (polled, polls, wakes) = turn(&Turn::new(), |_, cx| {
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(
            (polled, polls, count(&wakes)),
            (Poll::Pending, MOST_POLLS, 1)
        );
    }

    #[test]
    fn a_call_before_the_poll_wakes_no_task() {
        let parts = Turn::new();
        let mut kept = None;
        let (.., wakes) = turn(&parts, |_, cx| {
            kept = Some(cx.waker().clone());
            Poll::<()>::Pending
        });
        parts.before_poll(|| kept.take().unwrap().wake());
        assert_eq!(count(&wakes), 0);
    }
}
