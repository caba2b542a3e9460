//! Counts for operators: creates and ends since the start of the server.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use osb_protocol::WireTime;
use osb_store::Outcome;

use super::Service;
use crate::durations::{CREATE_MS, Durations};

/// Every way to end.
const OUTCOMES: [Outcome; 5] = [
    Outcome::Deleted,
    Outcome::Expired,
    Outcome::CreateFailed,
    Outcome::Abandoned,
    Outcome::Vanished,
];

/// What has happened since the start.
#[derive(Debug)]
pub(crate) struct Tally {
    /// Creates that succeeded, with the time from their acceptance.
    pub(crate) creates: Durations,
    ends: [AtomicU64; OUTCOMES.len()],
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            creates: Durations::new(&CREATE_MS),
            ends: Default::default(),
        }
    }
}

impl Tally {
    pub(super) fn created(&self, accepted: WireTime, ready: WireTime) {
        let micros = ready.unix_us().saturating_sub(accepted.unix_us());
        self.creates
            .add(Duration::from_micros(u64::try_from(micros).unwrap_or(0)));
    }

    pub(super) fn ended(&self, outcome: Outcome) {
        let index = OUTCOMES.iter().position(|known| *known == outcome);
        if let Some(index) = index {
            self.ends[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many ended in which way.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.ends.iter().map(|count| count.load(Ordering::Relaxed));
        OUTCOMES.iter().map(|outcome| outcome.as_str()).zip(counts)
    }
}

impl Service {
    /// Counts since the start.
    pub(crate) fn tally(&self) -> &Tally {
        &self.inner.tally
    }

    /// Sandboxes in each state; a state without any is left out.
    #[must_use]
    pub fn count_by_state(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for record in self.inner.registry.snapshot().0 {
            let state = record.sandbox.status.state.to_string();
            *counts.entry(state).or_default() += 1;
        }
        counts
    }
}
