//! Clients of the console that have no session yet, while the server waits for them.
//!
//! The newest displaces the oldest where there is no room for both. A browser sends its form at once,
//! so it gets through however many others leave theirs unfinished, from its own address or from
//! elsewhere: an attacker who shares the operator's address cannot keep the operator out.

use std::{
    collections::VecDeque,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::StatusCode;
use osb_protocol::error::code;
use tokio_util::sync::CancellationToken;

use super::{connections::Busy, error::ApiError};

/// Waits of one client at once; a form of some hundred bytes takes milliseconds.
const PER_CLIENT: usize = 8;

/// Waits that go on. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct SignIns(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    most: usize,
    waiting: Mutex<VecDeque<Waiting>>,
    next: AtomicU64,
    shed: AtomicU64,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    client: IpAddr,
    displaced: CancellationToken,
}

/// One wait, until it is dropped.
#[derive(Debug)]
pub(super) struct SignIn {
    all: SignIns,
    number: u64,
    displaced: CancellationToken,
    _connection: Option<Busy>,
}

impl SignIns {
    /// Room for so many.
    pub(super) fn new(most: usize) -> Self {
        Self(Arc::new(Inner {
            most,
            waiting: Mutex::default(),
            next: AtomicU64::new(0),
            shed: AtomicU64::new(0),
        }))
    }

    /// Begins a wait. Where it displaces another, the answer is `true`.
    pub(super) fn begin(&self, client: IpAddr, connection: Option<Busy>) -> (SignIn, bool) {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let displaced = CancellationToken::new();
        let mut waiting = self.waiting();
        let of_client = waiting.iter().filter(|it| it.client == client).count();
        let oldest = if of_client >= PER_CLIENT {
            waiting.iter().position(|it| it.client == client)
        } else {
            (waiting.len() >= self.0.most).then_some(0)
        };
        if let Some(oldest) = oldest.and_then(|index| waiting.remove(index)) {
            oldest.displaced.cancel();
            self.0.shed.fetch_add(1, Ordering::Relaxed);
        }
        waiting.push_back(Waiting {
            number,
            client,
            displaced: displaced.clone(),
        });
        drop(waiting);
        let sign_in = SignIn {
            all: self.clone(),
            number,
            displaced,
            _connection: connection,
        };
        (sign_in, oldest.is_some())
    }

    /// How many were displaced since the last call.
    pub(super) fn take_shed(&self) -> u64 {
        self.0.shed.swap(0, Ordering::Relaxed)
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        // The queue is whole after every operation, so a panic elsewhere does not spoil it.
        self.0
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl SignIn {
    /// Waits for this, unless a newer client needs the place.
    ///
    /// # Errors
    /// 503 for the client that was displaced.
    pub(super) async fn wait<T>(&self, done: impl Future<Output = T>) -> Result<T, ApiError> {
        tokio::select! {
            biased;
            done = done => Ok(done),
            () = self.displaced.cancelled() => {
                let message = "too many clients sign in at once; try again";
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Err(ApiError::new(status, code::OVERLOADED, message).unlogged())
            }
        }
    }
}

impl Drop for SignIn {
    fn drop(&mut self) {
        let mut waiting = self.all.waiting();
        if let Some(index) = waiting.iter().position(|it| it.number == self.number) {
            waiting.remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    #[test]
    fn the_newest_displaces_the_oldest_of_its_client_then_of_all() {
        let all = SignIns::new(PER_CLIENT + 2);
        let other = all.begin(client(2), None).0;
        let mut own: Vec<SignIn> = Vec::new();
        for _ in 0..PER_CLIENT {
            let (sign_in, displaces) = all.begin(client(1), None);
            assert!(!displaces);
            own.push(sign_in);
        }
        let displaced = |sign_in: &SignIn| sign_in.displaced.is_cancelled();
        let (_ninth, displaces) = all.begin(client(1), None);
        assert!(displaces && displaced(&own[0]) && !displaced(&own[1]) && !displaced(&other));
        let (_another, displaces) = all.begin(client(3), None);
        assert!(!displaces);
        let (_last, displaces) = all.begin(client(4), None);
        assert!(displaces && displaced(&other), "the oldest of all");
        assert_eq!((all.take_shed(), all.take_shed()), (2, 0));
        drop((own, other));
        assert_eq!(all.waiting().len(), 3);
    }

    #[tokio::test]
    async fn what_is_there_already_is_taken_even_when_displaced() {
        let all = SignIns::new(1);
        let (first, _) = all.begin(client(1), None);
        let (_second, _) = all.begin(client(2), None);
        assert_eq!(first.wait(async { 7 }).await.unwrap(), 7);
        let waits = first.wait(std::future::pending::<()>());
        assert!(waits.await.is_err());
    }
}
