//! Sidecars that are not in the state of their main container.

use std::collections::HashMap;

use bollard::models::ContainerSummaryStateEnum;
use osb_protocol::SandboxId;
use osb_service::ErrorChain;
use tracing::{info, warn};

use super::{DockerRuntime, Failure, Motion};
use crate::{
    Role, RuntimeError,
    docker::{KIND, error, labels},
};

impl DockerRuntime {
    /// Freezes and thaws sidecars so that they are in the state of their main containers. They differ
    /// after a crash between two steps, after a failed rollback, and when an operator pauses a single
    /// container.
    pub(in crate::docker) async fn settle_sidecars(
        &self,
        sidecars: Vec<(SandboxId, Role, String, Option<ContainerSummaryStateEnum>)>,
    ) -> Result<(), RuntimeError> {
        if sidecars.is_empty() {
            return Ok(());
        }
        let list = self.list_labelled(labels::ID, "list the sandboxes").await?;
        let listed: HashMap<String, Motion> = list
            .into_iter()
            .filter_map(|container| Some((container.id?, Motion::listed(container.state))))
            .collect();
        for (id, role, sidecar, state) in sidecars {
            let is_known = self.originals.of(&id, role).as_ref() == Some(&sidecar);
            let Some(main) = self.originals.main(&id).filter(|_| is_known) else {
                continue;
            };
            // The engine freezes it for a moment, alone.
            if self.capturing.contains(&id) {
                continue;
            }
            let main_listed = listed.get(&main).copied().unwrap_or(Motion::Absent);
            if let (Motion::Runs, Motion::Frozen) | (Motion::Frozen, Motion::Runs) =
                (main_listed, Motion::listed(state))
            {
                self.settle(&id, role, &main, &sidecar).await?;
            }
        }
        Ok(())
    }

    /// Thaws the sidecars of a sandbox whose main container was thawed just now, as the engine does at
    /// the end of a capture that an earlier process of this server began.
    pub(in crate::docker) async fn settle_thawed(
        &self,
        id: &SandboxId,
    ) -> Result<(), RuntimeError> {
        let turn = self.turns.of(id);
        // An operation that is in progress sees to the sidecars itself.
        let Ok(_one_at_a_time) = turn.try_lock() else {
            return Ok(());
        };
        let Some(main) = self.originals.main(id) else {
            return Ok(());
        };
        for role in Role::ALL.into_iter().filter(|role| *role != Role::Main) {
            if let Some(sidecar) = self.originals.of(id, role) {
                self.settle_in_turn(id, role, &main, &sidecar).await?;
            }
        }
        Ok(())
    }

    async fn settle(
        &self,
        id: &SandboxId,
        role: Role,
        main: &str,
        sidecar: &str,
    ) -> Result<(), RuntimeError> {
        let turn = self.turns.of(id);
        let _one_at_a_time = turn.lock().await;
        self.settle_in_turn(id, role, main, sidecar).await
    }

    async fn settle_in_turn(
        &self,
        id: &SandboxId,
        role: Role,
        main: &str,
        sidecar: &str,
    ) -> Result<(), RuntimeError> {
        match self.follow_main(role, main, sidecar).await {
            Ok(Some(freeze)) => {
                info!(sandbox = %id, %role, freeze, "a sidecar follows its main container");
                Ok(())
            }
            Ok(None) | Err(Failure::Missing(_)) => Ok(()),
            Err(failure) => {
                let error = failure.into_error(|reason| RuntimeError::Other {
                    runtime: KIND,
                    op: "freeze or thaw a sidecar",
                    reason,
                });
                if error::is_disconnected(&error) {
                    return Err(error);
                }
                // Tried again at the next sweep, and the others have their turn.
                warn!(sandbox = %id, %role, error = %ErrorChain(&error), "a sidecar is not in the state of its main container");
                Ok(())
            }
        }
    }

    /// Brings a sidecar to the state of its main container. Returns whether it was frozen; `None` if
    /// nothing was to be done.
    async fn follow_main(
        &self,
        role: Role,
        main: &str,
        sidecar: &str,
    ) -> Result<Option<bool>, Failure> {
        // The list may show the middle of a change that has ended by now.
        let freeze = match (self.motion(main).await?, self.motion(sidecar).await?) {
            (Motion::Frozen, Motion::Runs) => true,
            (Motion::Runs, Motion::Frozen) => false,
            _ => return Ok(None),
        };
        self.set_frozen(role, sidecar, freeze).await?;
        Ok(Some(freeze))
    }
}
