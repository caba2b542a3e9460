//! Named volumes of the simulated back end. Directories of the host and buckets are only kept with the
//! sandbox.

use std::collections::{BTreeMap, BTreeSet};

use osb_protocol::SandboxId;

use super::{SimRuntime, State};
use crate::{CreateSpec, RuntimeError, VolumeFailure};

/// All volumes, by name.
pub(super) type Volumes = BTreeMap<String, Volume>;

/// A volume.
#[derive(Debug, Default)]
pub(super) struct Volume {
    /// Whether it goes with its last user.
    is_transient: bool,
    users: BTreeSet<SandboxId>,
}

impl State {
    /// Finds or makes the volumes of a create.
    pub(super) fn provide_volumes(&mut self, spec: &CreateSpec) -> Result<(), RuntimeError> {
        for (index, volume) in spec.volumes.iter().enumerate() {
            let Some(claim) = &volume.pvc else {
                continue;
            };
            if !claim.create_if_not_exists && !self.volumes.contains_key(&claim.claim_name) {
                return Err(RuntimeError::Volume {
                    index,
                    member: "pvc.claimName",
                    failure: VolumeFailure::ClaimMissing,
                    reason: "does not exist, and createIfNotExists is false".to_owned(),
                });
            }
            let made = || Volume {
                is_transient: claim.delete_on_sandbox_termination,
                users: BTreeSet::new(),
            };
            let volume = self.volumes.entry(claim.claim_name.clone());
            volume.or_insert_with(made).users.insert(spec.id().clone());
        }
        Ok(())
    }

    /// Removes the volumes that go with this user.
    pub(super) fn release_volumes(&mut self, id: &SandboxId) {
        self.volumes.retain(|_, volume| {
            let was_used = volume.users.remove(id);
            !(was_used && volume.is_transient && volume.users.is_empty())
        });
    }
}

impl SimRuntime {
    /// Adds a volume that no sandbox made.
    pub fn add_volume(&self, name: &str) {
        let mut state = self.locked();
        state.volumes.insert(name.to_owned(), Volume::default());
    }

    /// Returns the names of all volumes.
    #[must_use]
    pub fn volumes(&self) -> Vec<String> {
        self.locked().volumes.keys().cloned().collect()
    }
}
