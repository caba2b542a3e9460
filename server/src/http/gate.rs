//! A bounded number of exchanges of one kind, and of one client or sandbox among them.

use std::{
    collections::HashMap,
    hash::Hash,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::StatusCode;
use osb_protocol::{SandboxId, error::code};

use super::{connections::Busy, error::ApiError};

/// Most exchanges at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// In all.
    pub(super) total: usize,
    /// Of one client.
    pub(super) per_client: usize,
    /// With one sandbox.
    pub(super) per_sandbox: usize,
}

impl Bounds {
    /// A bound on the total alone.
    pub(super) const fn total(total: usize) -> Self {
        Self {
            total,
            per_client: usize::MAX,
            per_sandbox: usize::MAX,
        }
    }
}

/// Lets in as many exchanges as its bounds allow. Clones share the count.
#[derive(Clone, Debug)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    bounds: Bounds,
    inside: Mutex<Inside>,
    shed: AtomicU64,
    shed_in_all: AtomicU64,
}

#[derive(Debug, Default)]
struct Inside {
    total: usize,
    clients: HashMap<IpAddr, usize>,
    sandboxes: HashMap<SandboxId, usize>,
}

/// Who wants in. Absent members are not counted.
#[derive(Debug, Default)]
pub(super) struct Visitor {
    /// Group of addresses, see [`super::client::Client::group`].
    pub(super) client: Option<IpAddr>,
    /// Sandbox that is asked for; it has to exist, so that the table stays small.
    pub(super) sandbox: Option<SandboxId>,
    /// Connection that must not be closed to make room while the exchange lasts.
    pub(super) connection: Option<Busy>,
}

/// Room for one exchange, until it is dropped.
#[derive(Debug)]
pub(super) struct Permit {
    gate: Gate,
    client: Option<IpAddr>,
    sandbox: Option<SandboxId>,
    _connection: Option<Busy>,
}

/// Which bound is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitReached {
    Total,
    Client,
    Sandbox,
}

impl Gate {
    pub(super) fn new(name: &'static str, bounds: Bounds) -> Self {
        Self(Arc::new(Inner {
            name,
            bounds,
            inside: Mutex::default(),
            shed: AtomicU64::new(0),
            shed_in_all: AtomicU64::new(0),
        }))
    }

    /// Lets an exchange in, or counts it as shed.
    pub(super) fn enter(&self, visitor: Visitor) -> Result<Permit, LimitReached> {
        let bounds = self.0.bounds;
        let mut inside = self.inside();
        let held = |full| {
            self.0.shed.fetch_add(1, Ordering::Relaxed);
            self.0.shed_in_all.fetch_add(1, Ordering::Relaxed);
            Err(full)
        };
        if count(&inside.clients, visitor.client.as_ref()) >= bounds.per_client {
            return held(LimitReached::Client);
        }
        if count(&inside.sandboxes, visitor.sandbox.as_ref()) >= bounds.per_sandbox {
            return held(LimitReached::Sandbox);
        }
        if inside.total >= bounds.total {
            return held(LimitReached::Total);
        }
        inside.total += 1;
        if let Some(client) = visitor.client {
            *inside.clients.entry(client).or_default() += 1;
        }
        if let Some(sandbox) = &visitor.sandbox {
            match inside.sandboxes.get_mut(sandbox) {
                Some(count) => *count += 1,
                None => {
                    inside.sandboxes.insert(sandbox.clone(), 1);
                }
            }
        }
        drop(inside);
        Ok(Permit {
            gate: self.clone(),
            client: visitor.client,
            sandbox: visitor.sandbox,
            _connection: visitor.connection,
        })
    }

    /// Name for the log.
    pub(super) fn name(&self) -> &'static str {
        self.0.name
    }

    /// How many were shed since the last call.
    pub(super) fn take_shed(&self) -> u64 {
        self.0.shed.swap(0, Ordering::Relaxed)
    }

    /// How many are inside, and how many were ever shed.
    pub(super) fn counts(&self) -> (usize, u64) {
        let shed = self.0.shed_in_all.load(Ordering::Relaxed);
        (self.inside().total, shed)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        // The counts are whole after every operation, so a panic elsewhere does not spoil them.
        self.0.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// The sandbox that the exchange is with.
    pub(super) fn sandbox(&self) -> Option<&SandboxId> {
        self.sandbox.as_ref()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut inside = self.gate.inside();
        inside.total -= 1;
        leave(&mut inside.clients, self.client.as_ref());
        leave(&mut inside.sandboxes, self.sandbox.as_ref());
    }
}

fn count<K: Hash + Eq>(counts: &HashMap<K, usize>, key: Option<&K>) -> usize {
    key.and_then(|key| counts.get(key)).copied().unwrap_or(0)
}

fn leave<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: Option<&K>) {
    let Some((key, count)) = key.and_then(|key| Some((key, counts.get_mut(key)?))) else {
        return;
    };
    *count -= 1;
    if *count == 0 {
        counts.remove(key);
    }
}

impl From<LimitReached> for ApiError {
    fn from(full: LimitReached) -> Self {
        let (status, code, message) = match full {
            LimitReached::Total => (
                StatusCode::SERVICE_UNAVAILABLE,
                code::OVERLOADED,
                "the server has reached server.limit_concurrency; try again shortly",
            ),
            LimitReached::Client => (
                StatusCode::TOO_MANY_REQUESTS,
                code::TOO_MANY_REQUESTS,
                "too many requests without an API key from this address at once; end some first",
            ),
            LimitReached::Sandbox => (
                StatusCode::SERVICE_UNAVAILABLE,
                code::OVERLOADED,
                "this sandbox has reached proxy.limit_per_sandbox; try again shortly",
            ),
        };
        Self::new(status, code, message).unlogged()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visitor(client: u8, sandbox: &str) -> Visitor {
        Visitor {
            client: Some(IpAddr::from([10, 0, 0, client])),
            sandbox: Some(SandboxId::from(sandbox)),
            connection: None,
        }
    }

    #[test]
    fn each_bound_holds_by_itself_and_room_comes_back() {
        let bounds = Bounds {
            total: 3,
            per_client: 2,
            per_sandbox: 2,
        };
        let gate = Gate::new("test", bounds);
        let enter = |client, sandbox| gate.enter(visitor(client, sandbox));
        let first = enter(1, "a").unwrap();
        let second = enter(1, "b").unwrap();
        assert_eq!(enter(1, "c").unwrap_err(), LimitReached::Client);
        let third = enter(2, "a").unwrap();
        assert_eq!(enter(3, "a").unwrap_err(), LimitReached::Sandbox);
        assert_eq!(enter(3, "c").unwrap_err(), LimitReached::Total);
        assert_eq!((gate.take_shed(), gate.take_shed()), (3, 0));
        drop(first);
        drop(enter(1, "a").unwrap());
        drop((second, third));
        let inside = gate.inside();
        assert_eq!(inside.total, 0);
        assert!(inside.clients.is_empty() && inside.sandboxes.is_empty());
    }
}
