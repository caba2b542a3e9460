//! A sandbox as its back end reports it.

use std::{collections::BTreeMap, net::IpAddr};

use osb_protocol::{SandboxId, WireTime, lifecycle::Platform};
use secrecy::SecretString;

/// What the container does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Made, not started.
    Created,
    /// Its command runs.
    Running,
    /// Frozen.
    Paused,
    /// The engine starts it again.
    Restarting,
    /// Its command ended with this status.
    Exited(i64),
    /// Anything else, such as being removed.
    Unknown,
}

/// When a sandbox shall be removed, as far as its back end knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// At this time.
    At(WireTime),
    /// Never: a client deletes it.
    Manual,
    /// It says neither, or something unreadable: kept, and told to the operator.
    Unknown,
}

/// Host ports that lead into the sandbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// To execd.
    pub execd: Option<u16>,
    /// To port 8080.
    pub http: Option<u16>,
}

/// How to reach a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Shares the host's network: every port is the host's.
    pub host_network: bool,
    /// Its own address, reachable from this host.
    pub ip: Option<IpAddr>,
    /// Published ports.
    pub ports: Ports,
}

/// A sandbox as its back end reports it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its name.
    pub id: SandboxId,
    /// What it does.
    pub phase: Phase,
    /// Since when, as exactly as the back end knows.
    pub since: WireTime,
    /// Whether the kernel killed a process of it for want of memory since it started, as far as
    /// the back end knows.
    pub out_of_memory: bool,
    /// When it was accepted.
    pub created_at: WireTime,
    /// Requested image.
    pub image: String,
    /// Snapshot it was made from.
    pub snapshot_id: Option<String>,
    /// Command it lives as long as.
    pub entrypoint: Vec<String>,
    /// Requested platform.
    pub platform: Option<Platform>,
    /// User labels as given at create.
    pub metadata: BTreeMap<String, String>,
    /// Extensions to echo.
    pub extensions: BTreeMap<String, String>,
    /// Limits as requested.
    pub resources: BTreeMap<String, String>,
    /// Expiry as given at create.
    pub expiry: Expiry,
    /// How to reach it.
    pub address: Address,
    /// Token of its execd.
    pub token: Option<SecretString>,
}
