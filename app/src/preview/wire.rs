//! What travels between server and browser about ports.

use osb_protocol::execd::port::ListeningPort;
use serde::{Deserialize, Serialize};

use crate::view::PortAddress;

/// Ports of a sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// Those on which a program listens.
    pub listening: Vec<ListeningPort>,
    /// Path on this server that reaches the port that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// Where the listening ports are reached.
    #[serde(default)]
    pub addresses: Vec<PortAddress>,
}
