//! The state of a sandbox, as its back end reports it.

use std::net::IpAddr;

use osb_protocol::{SandboxId, WireTime};

use crate::{Amendment, Origin, Role};

/// State of a sandbox's main container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Created, not started.
    Created,
    /// The command runs.
    Running,
    /// Frozen.
    Paused,
    /// The engine is restarting it.
    Restarting,
    /// The command exited with this status.
    Exited(i64),
    /// Any other state, such as being removed, or a state that the engine cannot report.
    Unknown,
}

/// Host ports on which ports of a sandbox are published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    /// Host port of execd.
    pub execd: Option<u16>,
    /// Host port of port 8080.
    pub http: Option<u16>,
}

/// Network address of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// Whether it shares the host's network, so that its ports are the host's.
    pub host_network: bool,
    /// IP address of its own, reachable from the engine's host.
    pub ip: Option<IpAddr>,
    /// Published ports.
    pub ports: Ports,
}

/// A sandbox, as its back end reports it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What is fixed since its creation.
    pub origin: Origin,
    /// Current status.
    pub status: Status,
}

/// Current status of a sandbox.
#[derive(Clone, Debug)]
pub struct Status {
    /// State of its main container.
    pub phase: Phase,
    /// When the phase began, as far as the back end knows.
    pub since: WireTime,
    /// Whether the kernel has killed one of its processes since its start because the memory limit
    /// was reached, as far as the back end knows.
    pub out_of_memory: bool,
    /// Network address.
    pub address: Address,
    /// Role of a required container that has exited or is missing.
    pub lost: Option<Role>,
    /// Changes since its creation that the runtime itself stores.
    pub amendment: Amendment,
}

impl Status {
    /// Creates a status without an address.
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

/// A sandbox that another installation of the server created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Identifier of the sandbox.
    pub id: SandboxId,
    /// Id of the installation.
    pub instance: String,
}
