//! `GET /ports`, an addition to the contract.

use serde::{Deserialize, Serialize};

/// A TCP port on which a program of the sandbox listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListeningPort {
    /// The port.
    pub port: u16,
    /// The address that it listens on: `0.0.0.0` and `::` are all of the sandbox.
    pub address: String,
    /// The process that listens, where it may be known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Name of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

impl ListeningPort {
    /// Whether only programs in the sandbox reach it.
    #[must_use]
    pub fn is_inside_only(&self) -> bool {
        let address = self.address.parse::<std::net::IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    }
}
