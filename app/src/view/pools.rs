//! Data of the pages about pools.

use std::collections::BTreeMap;

use osb_protocol::{WireTime, lifecycle::PoolCapacity};
use serde::{Deserialize, Serialize};

/// A pool in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRow {
    /// Its name.
    pub name: String,
    /// The image of its sandboxes.
    pub image: String,
    /// How many sandboxes it keeps.
    pub capacity: PoolCapacity,
    /// How many it has.
    pub numbers: PoolNumbers,
    /// Whether the latest start of a sandbox has failed.
    pub is_failing: bool,
    /// The latest start that has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<PoolFailure>,
    /// When it was added.
    pub created_at: WireTime,
}

/// The sandboxes of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolNumbers {
    /// Those that wait for a claim.
    pub ready: u32,
    /// Those that are being started.
    pub warming: u32,
    /// Those that are clients'.
    pub claimed: u32,
    /// Those that are being removed.
    pub draining: u32,
}

/// Why a sandbox of a pool could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFailure {
    /// When.
    pub at: WireTime,
    /// The reason in words.
    pub reason: String,
}

/// Everything that the page of one pool shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolDetail {
    /// What the list shows of it.
    pub row: PoolRow,
    /// What its sandboxes run, unless their claim says otherwise.
    pub entrypoint: Vec<String>,
    /// Resource limits of its sandboxes.
    pub resources: BTreeMap<String, String>,
    /// Names of the variables of its sandboxes.
    pub variables: Vec<String>,
    /// Names the template.
    pub revision: String,
    /// When it was last changed.
    pub changed_at: WireTime,
    /// Longest time, in seconds, that a create waits for a sandbox.
    pub wait_seconds: u64,
}

/// What a pool does, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolState {
    /// Its sandboxes cannot be started.
    Failing,
    /// Sandboxes are being started.
    Filling,
    /// Sandboxes wait, as many as are to.
    Ready,
    /// It has its most, and all are claimed.
    UsedUp,
    /// It is to keep none.
    Empty,
}

impl PoolState {
    /// The state in a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Failing => "Failing",
            Self::Filling => "Filling",
            Self::Ready => "Ready",
            Self::UsedUp => "Used up",
            Self::Empty => "Empty",
        }
    }

    /// The state as a sentence about a pool.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Failing => "Its sandboxes cannot be started. The server tries again.",
            Self::Filling => "Sandboxes are being started.",
            Self::Ready => "A create gets a sandbox at once.",
            Self::UsedUp => "It has as many sandboxes as it may have, and all are claimed.",
            Self::Empty => "It keeps no sandboxes ready.",
        }
    }
}

impl PoolRow {
    /// What it does.
    #[must_use]
    pub fn state(&self) -> PoolState {
        let PoolNumbers {
            ready,
            warming,
            claimed,
            ..
        } = self.numbers;
        let unclaimed = ready.saturating_add(warming);
        if self.is_failing {
            PoolState::Failing
        } else if warming > 0 || self.capacity.missing(unclaimed, claimed) > 0 {
            PoolState::Filling
        } else if ready > 0 {
            PoolState::Ready
        } else if claimed > 0 && claimed >= self.capacity.pool_max {
            PoolState::UsedUp
        } else {
            PoolState::Empty
        }
    }

    /// Why it is as it is: the reason of a failure that lasts, else its state as a sentence.
    #[must_use]
    pub fn why(&self) -> &str {
        let failure = self.failure.as_ref().filter(|_| self.is_failing);
        failure.map_or_else(|| self.state().sentence(), |it| it.reason.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(numbers: PoolNumbers) -> PoolRow {
        let at = WireTime::from_unix_ms(0).unwrap();
        PoolRow {
            name: "p".to_owned(),
            image: "debian:12".to_owned(),
            capacity: PoolCapacity {
                buffer_max: 2,
                buffer_min: 1,
                pool_max: 3,
                pool_min: 0,
            },
            numbers,
            is_failing: false,
            failure: Some(PoolFailure {
                at,
                reason: "no image".to_owned(),
            }),
            created_at: at,
        }
    }

    #[test]
    fn a_pool_says_what_it_does() {
        for (ready, warming, claimed, state) in [
            (0, 0, 0, PoolState::Filling),
            (1, 1, 0, PoolState::Filling),
            (1, 0, 2, PoolState::Ready),
            (2, 0, 0, PoolState::Ready),
            (0, 0, 3, PoolState::UsedUp),
        ] {
            let numbers = PoolNumbers {
                ready,
                warming,
                claimed,
                draining: 1,
            };
            let row = row(numbers);
            assert_eq!(row.state(), state, "{numbers:?}");
            assert_eq!(row.why(), state.sentence());
            let failing = PoolRow {
                is_failing: true,
                ..row
            };
            assert_eq!(failing.state(), PoolState::Failing);
            assert_eq!(failing.why(), "no image");
        }
        let mut none = row(PoolNumbers::default());
        none.capacity.buffer_min = 0;
        assert_eq!(none.state(), PoolState::Empty);
    }
}
