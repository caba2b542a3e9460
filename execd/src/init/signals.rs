//! Signals to the daemon.

use std::{future::poll_fn, io, task::Poll};

use rustix::process::Signal;
use tokio::signal::unix::{self, SignalKind, signal};

/// The signals the daemon listens to.
#[derive(Debug)]
pub struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// What init passes on to the entry point.
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

    /// What ends the daemon when it runs alone.
    ///
    /// # Errors
    /// When the handlers cannot be installed.
    pub fn stopping() -> io::Result<Self> {
        Self::of(&[Signal::TERM, Signal::INT])
    }

    fn of(wanted: &[Signal]) -> io::Result<Self> {
        let listen = |wanted: &Signal| {
            let stream = signal(SignalKind::from_raw(wanted.as_raw()))?;
            Ok((*wanted, stream))
        };
        Ok(Self(wanted.iter().map(listen).collect::<io::Result<_>>()?))
    }

    /// The next signal. Safe to cancel.
    pub async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }
}
