//! What another sandbox like this one would be created with, for the form of a copy.

use std::time::Duration;

use osb_app::view::{Original, OriginalPolicy};
use osb_protocol::{SandboxId, lifecycle::NetworkPolicy};
use tokio::time::timeout;

use super::daemons::Daemons;
use crate::sandbox::{Error, Service};

/// Longest wait for a sidecar, after which the form shows the policy of the create.
const ANSWER: Duration = Duration::from_secs(5);

/// Reads what a sandbox was created with, and its network policy as it is now. `daemons` lead to the
/// sidecar that knows it.
pub(super) async fn read(
    service: &Service,
    daemons: Option<&Daemons>,
    id: &SandboxId,
) -> Result<Original, Error> {
    let original = service.original(id).await?;
    let in_force = match daemons {
        Some(daemons) if original.has_network_policy => in_force(daemons, id).await,
        _ => None,
    };
    let network_policy = match original.has_network_policy {
        true => shown(in_force, original.network_policy, |policy| {
            service.is_default_policy(policy)
        }),
        false => OriginalPolicy::Usual,
    };
    Ok(Original {
        image: original.image,
        snapshot: original.snapshot,
        template: original.template,
        entrypoint: original.entrypoint,
        resources: original.resources,
        metadata: original.metadata,
        extensions: original.extensions,
        volumes: original.volumes,
        secure_access: original.secure_access,
        network_policy,
        timeout: original.timeout,
        variables: original.variables,
    })
}

/// The network policy in force; `None` if the sidecar does not tell it, as that of a paused sandbox.
async fn in_force(daemons: &Daemons, id: &SandboxId) -> Option<NetworkPolicy> {
    let sidecar = daemons.sidecar(id).ok()?;
    let status = timeout(ANSWER, sidecar.policy()).await.ok()?.ok()?;
    status.policy
}

/// The policy that the form shows for an original that has one.
fn shown(
    in_force: Option<NetworkPolicy>,
    of_create: Option<NetworkPolicy>,
    is_default: impl Fn(&NetworkPolicy) -> bool,
) -> OriginalPolicy {
    let known = in_force.map(OriginalPolicy::InForce);
    let known = known.or_else(|| of_create.map(OriginalPolicy::OfCreate));
    match known.unwrap_or(OriginalPolicy::Unknown) {
        OriginalPolicy::InForce(policy) | OriginalPolicy::OfCreate(policy)
            if is_default(&policy) =>
        {
            OriginalPolicy::Usual
        }
        known => known,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(action: &str) -> NetworkPolicy {
        NetworkPolicy {
            default_action: Some(action.to_owned()),
            egress: Vec::new(),
        }
    }

    #[test]
    fn the_policy_in_force_comes_before_that_of_the_create() {
        let (allow, deny) = (policy("allow"), policy("deny"));
        let never = |_: &NetworkPolicy| false;
        let seen = shown(Some(deny.clone()), Some(allow.clone()), never);
        assert_eq!(seen, OriginalPolicy::InForce(deny.clone()));
        let seen = shown(None, Some(allow.clone()), never);
        assert_eq!(seen, OriginalPolicy::OfCreate(allow));
        assert_eq!(shown(None, None, never), OriginalPolicy::Unknown);
    }

    #[test]
    fn the_default_of_the_server_is_no_policy_of_the_copy() {
        let (allow, deny) = (policy("allow"), policy("deny"));
        let is_default = |policy: &NetworkPolicy| *policy == allow;
        let seen = shown(Some(allow.clone()), None, is_default);
        assert_eq!(seen, OriginalPolicy::Usual);
        // It was changed since.
        let seen = shown(Some(deny.clone()), Some(allow.clone()), is_default);
        assert_eq!(seen, OriginalPolicy::InForce(deny));
        assert_eq!(shown(None, None, is_default), OriginalPolicy::Unknown);
    }
}
