//! The network policies of sandboxes, for pages of the console: over the sidecars that enforce them.

use std::time::Duration;

use async_trait::async_trait;
use axum::http::StatusCode;
use osb_app::{
    error::ConsoleError,
    network::{Network, NetworkView, PolicyChange, backend::NetworkBackend},
};
use osb_protocol::{
    SandboxId,
    lifecycle::{NetworkDecisions, NetworkPolicy, NetworkPolicyProposal},
    network_policy::propose,
};
use tokio::time::timeout;

use super::{
    super::audited::Noted,
    ConsoleState,
    daemons::{DaemonFailure, Daemons},
    execd::ExecdError,
    for_request::ForRequest,
    memory::Memory,
    session::Admitted,
};
use crate::sandbox::{self, Service};

/// Longest time that a sidecar may take for one answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Longest time for a change: the rules in the kernel may take half a minute.
const CHANGE: Duration = Duration::from_secs(35);

/// [`NetworkBackend`] over sidecars.
pub(super) struct Networks {
    service: Service,
    daemons: Daemons,
    /// What the request has read.
    memory: Memory,
}

/// What a sidecar refuses, or why it cannot be asked, in words.
fn explained(error: ExecdError) -> String {
    match error {
        ExecdError::Domain(sandbox::Error::Paused(_)) => {
            "The sandbox is paused. Its policy stays in force, and can be read and changed after a resume."
                .to_owned()
        }
        ExecdError::Domain(error) => error.explained(),
        ExecdError::Refused(refusal) => format!("The sidecar refuses this: {}", refusal.message),
        ExecdError::Unreachable(_) => {
            "The sidecar that enforces the policy cannot be reached.".to_owned()
        }
        ExecdError::TooLong(_) => "The sidecar's answer is too long to be read.".to_owned(),
        ExecdError::Timeout(_) => {
            "The sidecar that enforces the policy does not answer.".to_owned()
        }
    }
}

fn shown(failure: DaemonFailure) -> ConsoleError {
    failure.shown(explained)
}

impl ForRequest for Networks {
    fn for_request(state: &ConsoleState, admitted: &Admitted, noted: Noted) -> Self {
        Self {
            service: state.domains.service(&admitted.principal().scope),
            daemons: Daemons::for_request(state, admitted, noted),
            memory: Memory::of_request(),
        }
    }
}

impl Networks {
    /// Notes in the act that its request has no change that could be read.
    pub(super) fn refuse_unreadable(&self) {
        let unreadable = DaemonFailure::Words("unreadable".to_owned());
        self.daemons.settle::<()>(&Err(unreadable));
    }

    async fn view(&self, id: &SandboxId, since: u64) -> Result<NetworkView, DaemonFailure> {
        let sidecar = match self.daemons.sidecar(id) {
            Err(ExecdError::Domain(sandbox::Error::NoNetworkPolicy(_))) => {
                return Ok(NetworkView::NoSidecar);
            }
            sidecar => sidecar?,
        };
        let (status, decisions) = tokio::join!(
            timeout(ANSWER, sidecar.policy()),
            timeout(ANSWER, sidecar.decisions(since)),
        );
        let (status, decisions) = (status??, known(decisions?)?);
        let policy = status.policy.unwrap_or_default();
        Ok(NetworkView::Policy(Box::new(Network {
            is_default: self.service.is_default_policy(&policy),
            policy,
            enforcement: status.enforcement_mode.unwrap_or_default(),
            decisions,
        })))
    }

    async fn changed(&self, id: &SandboxId, change: &PolicyChange) -> Result<(), DaemonFailure> {
        self.daemons.set_object(id);
        let sidecar = self.daemons.sidecar(id)?;
        match change {
            PolicyChange::Add(rule) => {
                // Checks the rule; the sidecar merges it, whatever the policy is by now.
                let rules = change.apply(&NetworkPolicy::default());
                let rules = rules.map_err(DaemonFailure::Words)?.egress;
                self.daemons.note("action", rule.action.as_str());
                self.daemons.note("target", rule.target.as_str());
                timeout(CHANGE, sidecar.merge(&rules)).await??;
            }
            PolicyChange::Remove(target) => {
                self.daemons.note("target", target.as_str());
                let answer = timeout(CHANGE, sidecar.remove(&[target.as_str()])).await??;
                // The reason why nothing was changed.
                if answer.reason.is_some() {
                    let why = format!("There is no rule for {target} any more.");
                    return Err(DaemonFailure::Words(why));
                }
            }
            PolicyChange::Move { .. }
            | PolicyChange::Default(_)
            | PolicyChange::Replace(_)
            | PolicyChange::Restore { .. } => {
                let status = timeout(ANSWER, sidecar.policy()).await??;
                let present = status.policy.unwrap_or_default();
                let next = change.apply(&present);
                let next = next.map_err(DaemonFailure::Words)?;
                self.daemons.note("rules", next.egress.len());
                if let Some(action) = &next.default_action {
                    self.daemons.note("default", action.as_str());
                }
                // Another client may change it between the two calls.
                let replaced = sidecar.replace_expected(&next, &present);
                timeout(CHANGE, replaced).await??;
            }
        }
        Ok(())
    }

    async fn proposed(
        &self,
        id: &SandboxId,
        with_denied: bool,
    ) -> Result<NetworkPolicyProposal, DaemonFailure> {
        let sidecar = self.daemons.sidecar(id)?;
        let decisions = known(timeout(ANSWER, sidecar.decisions(0)).await?)?;
        let decisions = decisions.ok_or_else(|| {
            let why =
                "The sidecar of this sandbox is older than this server, and keeps no decisions.";
            DaemonFailure::Words(why.to_owned())
        })?;
        Ok(propose(&decisions, with_denied))
    }
}

/// The decisions of a sidecar; `None` if it keeps none.
fn known(
    answer: Result<NetworkDecisions, osb_client::Error>,
) -> Result<Option<NetworkDecisions>, osb_client::Error> {
    match answer {
        Ok(decisions) => Ok(Some(decisions)),
        Err(osb_client::Error::Api(refusal)) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

#[async_trait]
impl NetworkBackend for Networks {
    async fn read(&self, id: &SandboxId, since: u64) -> Result<NetworkView, ConsoleError> {
        let read = async { self.view(id, since).await.map_err(shown) };
        self.memory
            .once(format!("network/{id}/{since}"), Box::pin(read))
            .await
    }

    async fn change(&self, id: &SandboxId, change: PolicyChange) -> Result<(), ConsoleError> {
        let changed = self.changed(id, &change).await;
        self.daemons.settle(&changed);
        changed.map_err(shown)
    }

    async fn propose(
        &self,
        id: &SandboxId,
        with_denied: bool,
    ) -> Result<NetworkPolicyProposal, ConsoleError> {
        let read = async {
            let proposed = self.proposed(id, with_denied).await;
            proposed.map_err(shown)
        };
        let name = format!("network-proposal/{id}/{with_denied}");
        self.memory.once(name, read).await
    }
}
