//! The server functions of the tab. What the sidecar refuses is a result, not an error: browsers would
//! log an error.

use leptos::prelude::*;
use osb_protocol::{SandboxId, lifecycle::NetworkPolicyProposal};

use super::NetworkView;
#[cfg(feature = "ssr")]
use super::PolicyChange;
use crate::error::ConsoleError;

/// What a server function answers.
pub(super) type Answer<T> = Result<Result<T, String>, ConsoleError>;

/// The policy of a sandbox and what was decided by it; of names only what changed after `since`.
#[server(prefix = "/console/fn", endpoint = "network/read")]
pub async fn read_network(id: SandboxId, since: u64) -> Answer<NetworkView> {
    answer(super::backend::backend()?.read(&id, since).await)
}

/// The smallest policy for what was asked for.
#[server(prefix = "/console/fn", endpoint = "network/propose")]
pub async fn propose(id: SandboxId, with_denied: bool) -> Answer<NetworkPolicyProposal> {
    answer(super::backend::backend()?.propose(&id, with_denied).await)
}

/// Puts a rule in front.
#[server(prefix = "/console/fn", endpoint = "network/add")]
pub async fn add_rule(id: SandboxId, action: String, target: String) -> Answer<()> {
    let rule = osb_protocol::lifecycle::NetworkRule { action, target };
    let change = PolicyChange::Add(rule);
    answer(super::backend::backend()?.change(&id, change).await)
}

/// Removes the rule with this target.
#[server(prefix = "/console/fn", endpoint = "network/remove")]
pub async fn remove_rule(id: SandboxId, target: String) -> Answer<()> {
    let change = PolicyChange::Remove(target);
    answer(super::backend::backend()?.change(&id, change).await)
}

/// Moves a rule by one place, sets the default, takes another policy or takes one back: `change` is JSON of one of
/// these, because forms cannot have empty lists.
#[server(prefix = "/console/fn", endpoint = "network/replace")]
pub async fn replace_policy(id: SandboxId, change: String) -> Answer<()> {
    let backend = super::backend::backend()?;
    let change = match serde_json::from_str(&change) {
        Ok(
            change @ (PolicyChange::Move { .. }
            | PolicyChange::Default(_)
            | PolicyChange::Replace(_)
            | PolicyChange::Restore { .. }),
        ) => change,
        // Only a client that is not the page. These have functions and actions of their own.
        Ok(PolicyChange::Add(_) | PolicyChange::Remove(_)) => {
            let message = "change: must not add or remove a rule".to_owned();
            return Err(ConsoleError::Unreadable { message });
        }
        Err(error) => {
            let message = format!("change: {error}");
            return Err(ConsoleError::Unreadable { message });
        }
    };
    answer(backend.change(&id, change).await)
}

#[cfg(feature = "ssr")]
fn answer<T>(result: Result<T, ConsoleError>) -> Answer<T> {
    match result {
        Ok(done) => Ok(Ok(done)),
        Err(why @ (ConsoleError::Refused { .. } | ConsoleError::NotFound)) => {
            Ok(Err(why.to_string()))
        }
        Err(error) => Err(error),
    }
}
