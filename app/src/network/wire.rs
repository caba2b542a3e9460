//! What travels between server and browser about the network of a sandbox.

use osb_protocol::lifecycle::{NetworkDecisions, NetworkPolicy};
use serde::{Deserialize, Serialize};

/// What is known of the network of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkView {
    /// A sidecar enforces a policy.
    Policy(Box<Network>),
    /// The sandbox was created without a policy, so it has no sidecar.
    NoSidecar,
}

/// The network of a sandbox with a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The policy in force, without the operator's rules around it.
    pub policy: NetworkPolicy,
    /// What is enforced: `dns` for names, `dns+nft` for names and addresses.
    pub enforcement: String,
    /// Whether it is the policy of sandboxes that were created without one.
    pub is_default: bool,
    /// What was decided; `None` if the sidecar keeps no decisions.
    pub decisions: Option<NetworkDecisions>,
}

impl Network {
    /// Whether rules for addresses have an effect.
    pub(super) fn enforces_addresses(&self) -> bool {
        self.enforcement != "dns"
    }
}
