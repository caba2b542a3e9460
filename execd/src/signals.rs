//! Signals to the daemon, and forwarding them to a process.

use std::{future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind, signal},
    time::{Instant, sleep_until},
};
use tracing::warn;

use crate::{
    limits,
    process::{Exit, Process},
};

/// Signals that the daemon handles.
#[derive(Debug)]
pub struct Signals {
    streams: Vec<(Signal, unix::Signal)>,
    /// Time of the first SIGTERM: the container engine's grace period begins with it.
    stop_requested_at: Option<Instant>,
}

impl Signals {
    /// Signals that init forwards to the entry point.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn forwarded() -> io::Result<Self> {
        Self::of(&[
            Signal::HUP,
            Signal::USR1,
            Signal::USR2,
            Signal::WINCH,
            Signal::INT,
            Signal::TERM,
            Signal::QUIT,
        ])
    }

    /// Signals that stop the daemon when it runs without an entry point.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn stopping() -> io::Result<Self> {
        Self::of(&[Signal::TERM, Signal::INT])
    }

    fn of(handled: &[Signal]) -> io::Result<Self> {
        let listen = |handled: &Signal| {
            let stream = signal(SignalKind::from_raw(handled.as_raw()))?;
            Ok((*handled, stream))
        };
        Ok(Self {
            streams: handled.iter().map(listen).collect::<io::Result<_>>()?,
            stop_requested_at: None,
        })
    }

    /// Time of the first SIGTERM, if any.
    #[must_use]
    pub fn stop_requested_at(&self) -> Option<Instant> {
        self.stop_requested_at
    }

    /// Next signal. Cancellation-safe.
    pub async fn next(&mut self) -> Signal {
        let next = poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        });
        let signal = next.await;
        if signal == Signal::TERM {
            self.stop_requested_at.get_or_insert_with(Instant::now);
        }
        signal
    }
}

/// Result of supervising a process.
pub(crate) struct Supervised {
    pub(crate) exit: Exit,
    /// Whether the daemon received SIGTERM meanwhile.
    pub(crate) stop_requested: bool,
}

/// Forwards signals to a process until it ends. SIGTERM starts a countdown to SIGKILL.
pub(crate) async fn supervise(process: &Process, signals: &mut Signals) -> Supervised {
    let mut deadline: Option<Instant> = None;
    loop {
        let countdown = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            exit = process.exited() => {
                let stop_requested = deadline.is_some();
                return Supervised { exit, stop_requested };
            }
            signal = signals.next() => {
                process.signal(signal);
                if signal == Signal::TERM && deadline.is_none() {
                    deadline = Some(Instant::now() + limits::ENTRYPOINT_GRACE);
                }
            }
            () = countdown => {
                warn!("entry point did not end in time");
                process.kill_tree();
                let exit = process.exited().await;
                let stop_requested = true;
                return Supervised { exit, stop_requested };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn the_first_sigterm_sets_the_time_of_the_stop_request() {
        let mut signals = Signals::of(&[Signal::USR2, Signal::TERM]).unwrap();
        let mut receive = async |signal| {
            kill_process(getpid(), signal).unwrap();
            assert_eq!(signals.next().await, signal);
            signals.stop_requested_at()
        };
        assert_eq!(receive(Signal::USR2).await, None);
        let first = receive(Signal::TERM).await;
        assert!(first.is_some());
        assert_eq!(receive(Signal::TERM).await, first);
    }
}
