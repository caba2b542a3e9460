//! Data of the overview.

use osb_protocol::{SandboxId, WireTime};
use serde::{Deserialize, Serialize};

use super::StateCounts;

/// Sandboxes that expire within this time count as expiring soon, in seconds.
pub const EXPIRING_SECONDS: i64 = 900;

/// What the overview shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// The numbers that change all the time.
    pub pulse: Pulse,
    /// Sandboxes that are gone, as far as they are counted.
    pub ended: Option<usize>,
    /// What has happened lately, or why it is not known.
    pub activity: Result<Activity, String>,
    /// What the host has; `None` if it is not known, or the caller may not know it.
    pub host: Option<Host>,
}

/// Numbers that change all the time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pulse {
    /// Grows with every change of a sandbox, also one that leaves the numbers as they were.
    pub seq: u64,
    /// Sandboxes by state. Those that ended are not counted.
    pub counts: StateCounts,
    /// Sandboxes that expire soon.
    pub expiring: usize,
    /// Whether sandboxes can be created.
    pub readiness: Readiness,
    /// Hundredths of cores that sandboxes use; `None` if it is not recorded.
    pub centicores: Option<i64>,
    /// Memory that sandboxes use, in bytes; `None` if it is not recorded.
    pub memory_bytes: Option<i64>,
    /// Hundredths of cores that sandboxes may use.
    pub centicores_limit: i64,
    /// Memory that sandboxes may use, in bytes.
    pub memory_limit: i64,
    /// Sandboxes without a limit of cores.
    pub without_cpu_limit: usize,
    /// Sandboxes without a limit of memory.
    pub without_memory_limit: usize,
}

/// Whether sandboxes can be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readiness {
    /// They can; with what an operator should know all the same.
    Ready(Option<String>),
    /// They cannot, for this reason.
    NotReady(String),
}

/// What has happened lately.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Creates and failures of each hour, oldest first; of the first hour only what falls into the day.
    pub hours: Vec<HourCount>,
    /// Sandboxes that were created within a day.
    pub created: Split,
    /// Sandboxes that failed within a day.
    pub failed: Split,
    /// Creates whose time is known.
    pub timed: usize,
    /// Time that half of the creates took at most, in milliseconds.
    pub median_ms: Option<i64>,
    /// Time that 99 of 100 creates took at most, in milliseconds.
    pub p99_ms: Option<i64>,
    /// Failures by reason, the most frequent first.
    pub failures: Vec<FailureGroup>,
    /// Whether more ended than was looked at.
    pub is_cut: bool,
}

/// A number of sandboxes, parted as the lists of sandboxes are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// Those that exist.
    pub present: usize,
    /// Those that ended.
    pub ended: usize,
}

impl Split {
    /// Counts one.
    pub fn add(&mut self, has_ended: bool) {
        match has_ended {
            true => self.ended += 1,
            false => self.present += 1,
        }
    }

    /// All of them.
    #[must_use]
    pub fn total(self) -> usize {
        self.present + self.ended
    }
}

/// What happened in an hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HourCount {
    /// Its beginning.
    pub start: WireTime,
    /// Sandboxes that were asked for.
    pub creates: u32,
    /// Sandboxes that failed.
    pub failures: u32,
}

/// Sandboxes that failed for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// The reason, as a code.
    pub reason: String,
    /// How many.
    pub count: Split,
    /// The last one.
    pub newest: SandboxId,
    /// Its label `name`, or its short id.
    pub title: String,
    /// When it failed.
    pub at: WireTime,
    /// Why the last one failed, in words.
    pub message: String,
    /// How many failed with other words: numbers and ids in them do not count.
    #[serde(default)]
    pub others: usize,
}

/// What the host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its engine with the version.
    pub engine: String,
    /// Processors.
    pub processors: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Memory that programs can still take, in bytes.
    pub available_bytes: Option<u64>,
}

/// A sandbox that tests the installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSandbox {
    /// The sandbox.
    pub id: SandboxId,
    /// Its image.
    pub image: String,
}
