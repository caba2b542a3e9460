//! Resources that a caller holds during an exchange.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Something that is held for as long as an exchange lasts: put into the extensions of a request, it
/// is dropped with the body of the response or, after an upgrade, with the tunnel. Clones hold the
/// same thing.
#[derive(Clone)]
pub struct Lease {
    held: Arc<dyn Hold>,
    withdrawn: Option<CancellationToken>,
}

impl Lease {
    /// Holds this.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self {
            held: Arc::new(Plain { _held: held }),
            withdrawn: None,
        }
    }

    /// Holds this, and asks it whether silence of the backend counts.
    pub fn with_silence(held: impl CountSilence + 'static) -> Self {
        Self {
            held: Arc::new(Asked(held)),
            withdrawn: None,
        }
    }

    /// Ends the exchange when this is cancelled, wherever it stands.
    #[must_use]
    pub fn until(mut self, withdrawn: CancellationToken) -> Self {
        self.withdrawn = Some(withdrawn);
        self
    }

    pub(crate) fn silence(&self) -> Silence {
        self.held.silence()
    }

    /// What ends the exchange, if anything does.
    pub(crate) fn withdrawn(&self) -> Option<&CancellationToken> {
        self.withdrawn.as_ref()
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Lease")
    }
}

/// Whether a backend that is silent could have answered. Asked only when the limit on silence is
/// reached.
pub trait CountSilence: Send + Sync {
    /// What holds now.
    fn silence(&self) -> Silence;
}

/// Which part of a silence counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// All of it.
    Counts,
    /// What came after this time: until then the backend could not answer.
    CountsFrom(Instant),
    /// None: the backend cannot answer.
    Excused,
}

trait Hold: Send + Sync {
    fn silence(&self) -> Silence;
}

struct Plain<T> {
    _held: T,
}

impl<T: Send + Sync> Hold for Plain<T> {
    fn silence(&self) -> Silence {
        Silence::Counts
    }
}

struct Asked<T>(T);

impl<T: CountSilence> Hold for Asked<T> {
    fn silence(&self) -> Silence {
        self.0.silence()
    }
}

/// Returns when the exchange has to end; never without a lease that can be withdrawn.
pub(crate) async fn withdrawn(lease: Option<&Lease>) {
    match lease.and_then(Lease::withdrawn) {
        Some(withdrawn) => withdrawn.cancelled().await,
        None => std::future::pending().await,
    }
}
