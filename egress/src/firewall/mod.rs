//! The packet filter in the sandbox's network namespace.
//!
//! One thread owns it. It applies policies and adds the addresses of allowed names, so that these
//! two never race: an address is only added under the policy that is in force at that moment.

mod elements;
mod expression;
mod learned;
mod listing;
mod netlink;
mod program;
mod ruleset;
#[cfg(test)]
mod tests;
mod thread;
mod transition;

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

pub use listing::Record;
pub use netlink::ElementsError;
pub use program::NftError;
pub use ruleset::{Surroundings, is_asked_directly};

use crate::{limits, policy::Effective};
use expression::Family;
use learned::Learned;
use listing::Listing;
use ruleset::sets;
use thread::Thread;

/// Requests that wait for the thread.
const QUEUE: usize = 1024;

/// Reason why the packet filter could not be changed. The old policy is in force then; addresses that
/// the new one refuses may be closed until they are resolved again.
#[derive(Debug, thiserror::Error)]
pub enum FirewallError {
    /// `nft` failed.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// Elements could not be written.
    #[error(transparent)]
    Elements(#[from] ElementsError),
    /// The thread has ended.
    #[error("the packet filter's thread has ended")]
    Ended,
    /// It took too long. A policy that still takes effect is taken back.
    #[error("the packet filter did not answer within {} s", .0.as_secs())]
    Late(Duration),
}

impl FirewallError {
    /// Whether rules may be in force that were not to be. A change of elements that was made in part
    /// has only closed addresses.
    fn is_unknown(&self) -> bool {
        matches!(self, Self::Nft(NftError::Late(_) | NftError::Run(_)))
    }
}

/// Reason why an answer's addresses are not let through.
#[derive(Debug, thiserror::Error)]
pub enum LearnError {
    /// The policy changed meanwhile and refuses the name.
    #[error("the policy refuses the name now")]
    Refused,
    /// The policy changed meanwhile and refuses an address. It still allows the name.
    #[error("the policy refuses an address now")]
    Filtered,
    /// Too much is remembered of the names that are open.
    #[error("too many names are open")]
    Full,
    /// The packet filter could not be changed.
    #[error(transparent)]
    Firewall(#[from] Arc<FirewallError>),
}

/// Addresses of an answer.
#[derive(Debug)]
pub struct Answer {
    /// Name that was asked for.
    pub name: Arc<str>,
    /// Names that it is an alias of.
    pub aliases: Arc<[Arc<str>]>,
    /// Addresses in the answer.
    pub addresses: Vec<IpAddr>,
    /// Lifetime that the client learns, in seconds.
    pub ttl: u32,
}

enum Request {
    Learn(Answer, oneshot::Sender<Result<(), LearnError>>),
    Apply(Arc<Effective>, oneshot::Sender<Result<(), FirewallError>>),
}

/// What both the thread and the DNS proxy use.
#[derive(Debug, Default)]
struct Shared {
    learned: RwLock<Learned>,
    /// `nft` lists and changes in one process at a time.
    program: Mutex<()>,
}

/// Handle of the packet filter. Clones share it.
#[derive(Clone, Debug)]
pub struct Firewall {
    requests: mpsc::Sender<Request>,
    shared: Arc<Shared>,
}

impl Firewall {
    /// Applies the rules of a policy and starts the thread. The caller blocks.
    ///
    /// # Errors
    /// See [`FirewallError`].
    pub fn start(around: Surroundings, policy: Arc<Effective>) -> Result<Self, FirewallError> {
        let shared = Arc::<Shared>::default();
        let (requests, queue) = mpsc::channel(QUEUE);
        let thread = Thread::start(around, policy, Arc::clone(&shared))?;
        std::thread::Builder::new()
            .name("firewall".to_owned())
            .spawn(move || thread.run(queue))
            .map_err(|_| FirewallError::Ended)?;
        Ok(Self { requests, shared })
    }

    /// A packet filter whose thread has ended: every change fails.
    #[cfg(test)]
    pub(crate) fn ended() -> Self {
        let (requests, _) = mpsc::channel(1);
        Self {
            requests,
            shared: Arc::default(),
        }
    }

    /// Redirects DNS queries to the sidecar's proxy and restricts nothing else. Rules of an earlier
    /// process with another mode go at the same moment. The caller blocks.
    ///
    /// # Errors
    /// See [`FirewallError`].
    pub fn redirect_only(around: &Surroundings) -> Result<(), FirewallError> {
        thread::apply(&ruleset::redirection(around))
    }

    /// Waits until the thread has ended, which it does only by a panic while handles exist.
    pub async fn ended_by_itself(&self) {
        self.requests.closed().await;
    }

    /// Whether the thread can still change the rules. They stand in any case.
    #[must_use]
    pub fn is_working(&self) -> bool {
        !self.requests.is_closed()
    }

    /// Enforces another policy. Connections and learned addresses that it still allows go on.
    ///
    /// # Errors
    /// See [`FirewallError`].
    pub async fn apply(&self, policy: Arc<Effective>) -> Result<(), FirewallError> {
        let (done, mut result) = oneshot::channel();
        let work = async {
            let request = Request::Apply(policy, done);
            self.requests
                .send(request)
                .await
                .map_err(|_| FirewallError::Ended)?;
            (&mut result).await.map_err(|_| FirewallError::Ended)?
        };
        match timeout(limits::FIREWALL, work).await {
            Ok(applied) => applied,
            Err(_) => {
                // From here on the thread takes the change back. It may have made it just before.
                result.close();
                let late = FirewallError::Late(limits::FIREWALL);
                result.try_recv().unwrap_or(Err(late))
            }
        }
    }

    /// Lets the addresses of an allowed answer through. Returns when the kernel does, and whether it
    /// had to be changed.
    ///
    /// # Errors
    /// See [`LearnError`].
    pub async fn learn(&self, answer: Answer) -> Result<bool, LearnError> {
        if self.shared.covers(&answer, Instant::now()) {
            return Ok(false);
        }
        let (done, result) = oneshot::channel();
        let failed = |error: FirewallError| LearnError::Firewall(error.into());
        let work = async {
            let request = Request::Learn(answer, done);
            let sent = self.requests.send(request).await;
            sent.map_err(|_| failed(FirewallError::Ended))?;
            let opened = result.await;
            opened.map_err(|_| failed(FirewallError::Ended))?
        };
        match timeout(limits::LEARN, work).await {
            Ok(opened) => opened.map(|()| true),
            Err(_) => Err(failed(FirewallError::Late(limits::LEARN))),
        }
    }

    /// Destinations that the packet filter saw, by its own records. Runs `nft`; the caller blocks.
    ///
    /// # Errors
    /// See [`FirewallError`].
    pub fn records(&self) -> Result<Vec<Record>, FirewallError> {
        let mut records = Vec::new();
        for name in [sets::REFUSED, sets::ADMITTED] {
            for family in Family::ALL {
                // Changes go between.
                let _one = self.shared.program();
                records.extend(Listing::of_set(&family.set(name))?.records());
            }
        }
        Ok(records)
    }

    /// Allowed names that led to addresses, in the order of the addresses.
    #[must_use]
    pub fn names(&self, addresses: impl Iterator<Item = IpAddr>) -> Vec<Vec<String>> {
        let learned = self.shared.learned();
        addresses.map(|address| learned.names(address)).collect()
    }
}

impl Shared {
    fn learned(&self) -> RwLockReadGuard<'_, Learned> {
        self.learned.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn learned_mut(&self) -> RwLockWriteGuard<'_, Learned> {
        self.learned.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn covers(&self, answer: &Answer, now: Instant) -> bool {
        let learned = self.learned();
        let mut addresses = answer.addresses.iter();
        addresses.all(|address| learned.covers(&answer.name, *address, answer.ttl, now))
    }

    fn program(&self) -> MutexGuard<'_, ()> {
        self.program.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
