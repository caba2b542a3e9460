//! Named volumes of the engine (contract: lifecycle §17.8).
//!
//! A volume of ours carries who made it for which sandbox, and whether it goes with its last user. The
//! labels of a volume never change, so they are what a removal and the sweep decide by: a volume without
//! them is never removed.

use std::{collections::HashMap, fmt::Write};

use bollard::{
    models::{Volume, VolumeCreateRequest},
    query_parameters::{ListVolumesOptionsBuilder, RemoveVolumeOptions},
};
use osb_protocol::{SandboxId, lifecycle::ClaimVolume};
use sha2::{Digest, Sha256};
use tracing::{debug, info, warn};

use super::Refused;
use crate::{
    Origin, RuntimeError, VolumeFailure,
    docker::{DockerRuntime, adoption::MANAGED, engine::bounded, error, labels},
};

/// Prefixes of the names of volumes that belong to servers.
const RESERVED: [&str; 4] = [
    "osb-",
    "opensandbox-execd-",
    "opensandbox-runtime-",
    "opensandbox-win-oem-",
];
/// Longest name that a directory, and thus a volume, can have, in bytes.
const LONGEST_NAME: usize = 255;
/// The engine's own driver, whose volumes are directories of its host.
const LOCAL: &str = "local";

/// Name of a claim's volume. Each tenant has names of its own: another tenant's volume is not found, and
/// cannot be in the way.
pub(super) fn name_of(tenant: Option<&str>, claim: &str) -> Result<String, Refused> {
    let Some(tenant) = tenant else {
        return match RESERVED.iter().find(|prefix| claim.starts_with(**prefix)) {
            None => Ok(claim.to_owned()),
            Some(prefix) => Err(refused(
                VolumeFailure::ClaimName,
                format!("names that begin with {prefix} belong to the server"),
            )),
        };
    };
    let mut name = "osb-tenant-".to_owned();
    for byte in &Sha256::digest(tenant)[..8] {
        write!(name, "{byte:02x}").expect("a string takes any text");
    }
    name = format!("{name}-{claim}");
    if name.len() > LONGEST_NAME {
        let most = LONGEST_NAME - (name.len() - claim.len());
        let reason = format!("must have at most {most} characters");
        return Err(refused(VolumeFailure::ClaimName, reason));
    }
    Ok(name)
}

fn refused(failure: VolumeFailure, reason: impl Into<String>) -> Refused {
    Refused::Volume {
        member: "pvc.claimName",
        failure,
        reason: reason.into(),
    }
}

/// A volume that a create may mount.
#[derive(Debug)]
pub(super) struct Claimed {
    /// Its directory on the host, if it is one.
    pub(super) directory: Option<String>,
    /// The directory of the host that it shows, its own or that of its options.
    pub(super) shows: Option<String>,
    /// Whether this create made it, and it is to go with its last user.
    pub(super) is_managed: bool,
}

impl DockerRuntime {
    /// Finds a volume, or makes it. The caller has the volume's turn.
    pub(super) async fn claim(
        &self,
        name: &str,
        claim: &ClaimVolume,
        origin: &Origin,
    ) -> Result<Claimed, Refused> {
        let mut found = self.find_volume(name).await?;
        if found.is_none() {
            if !claim.create_if_not_exists {
                let reason = "does not exist, and createIfNotExists is false";
                return Err(refused(VolumeFailure::ClaimMissing, reason));
            }
            self.make_volume(name, claim, origin).await?;
            found = self.find_volume(name).await?;
        }
        let volume = found.ok_or_else(|| {
            let reason = "another program removed it while it was made";
            refused(VolumeFailure::ClaimInspect, reason)
        })?;
        let has = |label: &str| volume.labels.contains_key(label);
        if has(labels::EXECD_BUILD) || has(labels::OWNER_OF) {
            let reason = "is a volume of the server itself";
            return Err(refused(VolumeFailure::ClaimName, reason));
        }
        let is_of =
            |label: &str, value: &str| volume.labels.get(label).is_some_and(|it| it == value);
        let is_new = is_of(labels::MADE_FOR, origin.id.as_str());
        if is_new {
            info!(sandbox = %origin.id, volume = name, "made a volume");
        }
        let shows = shown_by(&volume).map(str::to_owned);
        // With options, the engine mounts something there only while a container uses the volume.
        let is_directory = volume.driver == LOCAL && volume.options.is_empty();
        let directory = Some(volume.mountpoint).filter(|it| is_directory && !it.is_empty());
        Ok(Claimed {
            directory,
            shows,
            is_managed: is_new && claim.delete_on_sandbox_termination,
        })
    }

    async fn find_volume(&self, name: &str) -> Result<Option<Volume>, Refused> {
        let docker = self.docker()?;
        match bounded(docker, docker.inspect_volume(name)).await {
            Ok(volume) => Ok(Some(volume)),
            Err(error) if error::is_missing(&error) => Ok(None),
            Err(error) => Err(inspect_failed("inspect", &error)),
        }
    }

    async fn make_volume(
        &self,
        name: &str,
        claim: &ClaimVolume,
        origin: &Origin,
    ) -> Result<(), Refused> {
        let mut made = HashMap::from([
            (labels::VOLUMES.to_owned(), MANAGED.to_owned()),
            (labels::SERVER.to_owned(), self.config.instance.clone()),
            (labels::MADE_FOR.to_owned(), origin.id.to_string()),
        ]);
        if claim.delete_on_sandbox_termination {
            made.insert(labels::TRANSIENT.to_owned(), "true".to_owned());
        }
        if let Some(tenant) = &origin.tenant {
            made.insert(labels::TENANT.to_owned(), tenant.to_string());
        }
        let request = VolumeCreateRequest {
            name: Some(name.to_owned()),
            labels: Some(made),
            ..VolumeCreateRequest::default()
        };
        let docker = self.docker()?;
        let made = bounded(docker, docker.create_volume(request)).await;
        made.map(drop)
            .map_err(|error| inspect_failed("create", &error))
    }

    /// Removes a volume that goes with its last user, unless the engine says that it is in use. The caller
    /// has the volume's turn and has found no user.
    pub(super) async fn remove_claim(&self, id: Option<&SandboxId>, name: &str) {
        let sandbox = id.map(tracing::field::display);
        let volume = match self.find_volume(name).await {
            Ok(Some(volume)) => volume,
            Ok(None) => return,
            Err(error) => {
                warn!(
                    sandbox,
                    volume = name,
                    ?error,
                    "cannot inspect a volume of the sandbox, will retry"
                );
                return;
            }
        };
        if !self.is_transient(&volume) {
            return;
        }
        let Ok(docker) = self.docker() else {
            return;
        };
        let removed = docker.remove_volume(name, None::<RemoveVolumeOptions>);
        match bounded(docker, removed).await {
            Ok(()) => info!(
                sandbox,
                volume = name,
                "removed a volume with its last sandbox"
            ),
            Err(error) if error::is_missing(&error) => {}
            Err(error) if error::status(&error) == Some(409) => {
                debug!(
                    sandbox,
                    volume = name,
                    "a container of another program uses the volume"
                );
            }
            Err(error) => {
                let reason = error::reason(&error);
                warn!(
                    sandbox,
                    volume = name,
                    reason,
                    "cannot remove a volume of the sandbox, will retry"
                );
            }
        }
    }

    /// Lists the volumes of this installation that go with their last user.
    pub(super) async fn transient_volumes(&self) -> Result<Vec<String>, RuntimeError> {
        let docker = self.docker()?;
        let filter = HashMap::from([("label", vec![labels::TRANSIENT])]);
        let options = ListVolumesOptionsBuilder::default()
            .filters(&filter)
            .build();
        let list = bounded(docker, docker.list_volumes(Some(options))).await;
        let list = list.map_err(|error| error::other("list the volumes of sandboxes", &error))?;
        let volumes = list.volumes.unwrap_or_default().into_iter();
        Ok(volumes
            .filter(|volume| self.is_transient(volume))
            .map(|volume| volume.name)
            .collect())
    }

    /// Whether this installation made the volume, to be removed with its last user.
    fn is_transient(&self, volume: &Volume) -> bool {
        let is = |label: &str, value: &str| volume.labels.get(label).is_some_and(|it| it == value);
        is(labels::VOLUMES, MANAGED)
            && is(labels::SERVER, &self.config.instance)
            && is(labels::TRANSIENT, "true")
    }
}

/// The directory of the host that a volume shows, if the engine's own driver has it.
fn shown_by(volume: &Volume) -> Option<&str> {
    let options = &volume.options;
    let bind = || {
        let modes = options.get("o")?;
        let is_bind = |mode| matches!(mode, "bind" | "rbind");
        let device = options.get("device")?;
        modes.split(',').any(is_bind).then_some(device)
    };
    let directory = match options.is_empty() {
        true => Some(&volume.mountpoint),
        false => bind(),
    };
    let directory = directory.filter(|it| volume.driver == LOCAL && !it.is_empty());
    directory.map(String::as_str)
}

fn inspect_failed(op: &str, error: &bollard::errors::Error) -> Refused {
    match error::unavailable(error) {
        Some(unavailable) => Refused::Runtime(unavailable),
        None => refused(
            VolumeFailure::ClaimInspect,
            format!("cannot {op} the volume: {}", error::reason(error)),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tenant_has_names_of_its_own_and_none_is_a_servers() {
        let name = |tenant, claim| name_of(tenant, claim).unwrap();
        assert_eq!(name(None, "data"), "data");
        let (a, b) = (name(Some("a"), "data"), name(Some("b"), "data"));
        assert!(a.starts_with("osb-tenant-") && a.ends_with("-data"), "{a}");
        assert_ne!(a, b);
        assert_eq!(name(Some("a"), &"c".repeat(227)).len(), LONGEST_NAME);
        let long = name_of(Some("a"), &"c".repeat(228)).unwrap_err();
        let Refused::Volume { reason, .. } = long else {
            panic!("{long:?}");
        };
        assert_eq!(reason, "must have at most 227 characters");
        for claim in ["opensandbox-execd-0123", "osb-owner-0123", &a] {
            let refused = name_of(None, claim).unwrap_err();
            let Refused::Volume { failure, .. } = refused else {
                panic!("{refused:?}");
            };
            assert_eq!(failure, VolumeFailure::ClaimName);
        }
    }
}
