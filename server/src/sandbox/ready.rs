//! Whether sandboxes can be made, and what an operator should look at (`/ready`).

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use osb_service::ErrorChain;
use osb_store::StoreError;
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use super::{Error, Service};

/// How long a result of the store's check is reused: clients may ask at any rate.
const FRESH: Duration = Duration::from_secs(1);

/// What was last seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    store: Mutex<Option<(Instant, Option<osb_store::Problem>)>>,
    foreign: AtomicUsize,
}

impl Service {
    /// Whether sandboxes can be made: the runtime answers, everything it has is known, and the store
    /// takes writes. The text is for operators; there is none when all is well.
    ///
    /// # Errors
    /// [`Error::RuntimeDown`] or [`Error::Store`], with the reason.
    pub async fn ready(&self) -> Result<Option<String>, Error> {
        self.available()?;
        self.store_works().await?;
        let detail = match self.inner.seen.foreign.load(Ordering::Relaxed) {
            0 => return Ok(None),
            1 => "1 sandbox of another instance runs on this engine".to_owned(),
            many => format!("{many} sandboxes of other instances run on this engine"),
        };
        Ok(Some(format!(
            "{detail}; if no other server made them, this one has lost its store"
        )))
    }

    pub(crate) async fn store_works(&self) -> Result<(), Error> {
        let mut seen = self.inner.seen.store.lock().await;
        let problem = match *seen {
            Some((at, problem)) if at.elapsed() < FRESH => problem,
            _ => {
                let problem = match self.inner.store.check().await {
                    Ok(()) => None,
                    Err(StoreError::Unavailable { problem, .. }) => Some(problem),
                    Err(other) => return Err(other.into()),
                };
                *seen = Some((Instant::now(), problem));
                problem
            }
        };
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::Store(StoreError::Unavailable {
                op: "take a write",
                problem,
                source: None,
            })),
        }
    }

    /// Looks for sandboxes that carry another instance's label. They are reported, never touched: a
    /// server that lost its store has a new id, and its own sandboxes look like another's.
    pub(super) async fn look_for_foreign(&self) {
        let foreign = match self.inner.runtime.foreign().await {
            Ok(foreign) => foreign,
            Err(error) => {
                return warn!(error = %ErrorChain(&error), "cannot look for sandboxes of other instances");
            }
        };
        let before = self
            .inner
            .seen
            .foreign
            .swap(foreign.len(), Ordering::Relaxed);
        if foreign.len() > before {
            let instances: std::collections::BTreeSet<_> =
                foreign.iter().map(|one| one.instance.as_str()).collect();
            warn!(
                sandboxes = foreign.len(),
                ?instances,
                "sandboxes of other instances run on this engine; they are left alone"
            );
        }
    }
}
