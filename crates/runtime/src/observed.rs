//! A sandbox as its back end reports it.

use std::net::IpAddr;

use osb_protocol::{SandboxId, WireTime};

use crate::{Amendment, Origin, Role};

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
    /// What it was created with.
    pub origin: Origin,
    /// What it does now.
    pub status: Status,
}

/// What a sandbox does now.
#[derive(Clone, Debug)]
pub struct Status {
    /// State of its main container.
    pub phase: Phase,
    /// Since when, as exactly as the back end knows.
    pub since: WireTime,
    /// Whether the kernel killed one of its processes because the memory limit was reached, since
    /// it started and as far as the back end knows.
    pub out_of_memory: bool,
    /// How to reach it.
    pub address: Address,
    /// A container without which the sandbox must not run, and which has ended or is missing.
    pub lost: Option<Role>,
    /// Changes since create that the runtime itself stores.
    pub amendment: Amendment,
}

impl Status {
    /// A status without an address.
    #[must_use]
    pub fn new(phase: Phase, since: WireTime) -> Self {
        Self {
            phase,
            since,
            out_of_memory: false,
            address: Address::default(),
            lost: None,
            amendment: Amendment::default(),
        }
    }
}

/// A sandbox that another installation of the server made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Its name.
    pub id: SandboxId,
    /// Id of the installation.
    pub instance: String,
}
