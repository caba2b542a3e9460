//! What a create needs of its volumes: each is found or made, and becomes a mount.

use std::path::PathBuf;

use bollard::models::{Mount, MountType, MountVolumeOptions};
use osb_protocol::lifecycle::{ClaimVolume, HostVolume, OssfsVolume, Volume};
use tracing::debug;

use super::{
    Belongings, Provided, Refused,
    below::{Source, Watched},
    blocking, claims,
    host_files::{self, Allowed, Found, Part, Trouble},
    ossfs::Refusal,
    places::Place,
};
use crate::{CreateSpec, RuntimeError, VolumeFailure, docker::DockerRuntime};

impl DockerRuntime {
    /// Finds or makes all volumes of a create, in order. After a failure, [`Self::release_volumes`] undoes
    /// what was made for it.
    pub(in crate::docker) async fn provide_volumes(
        &self,
        spec: &CreateSpec,
    ) -> Result<Provided, RuntimeError> {
        let mut provided = Provided::default();
        for (index, volume) in spec.volumes.iter().enumerate() {
            let added = self
                .provide_volume(spec, index, volume, &mut provided)
                .await;
            added.map_err(|refused| refused.of_volume(index))?;
        }
        self.check_overlaps(spec.id(), &provided.watched).await?;
        Ok(provided)
    }

    async fn provide_volume(
        &self,
        spec: &CreateSpec,
        index: usize,
        volume: &Volume,
        provided: &mut Provided,
    ) -> Result<(), Refused> {
        let sub_path = volume.sub_path.as_deref().unwrap_or_default();
        let sub_path = host_files::parts_of(sub_path).ok_or_else(|| {
            Refused::sub_path(VolumeFailure::SubPath, "must be a relative path without ..")
        })?;
        let watched = if let Some(host) = &volume.host {
            Some(self.provide_host(volume, host, sub_path, provided).await?)
        } else if let Some(claim) = &volume.pvc {
            let place = (index, sub_path);
            self.provide_claim(spec, volume, claim, place, provided)
                .await?
        } else if let Some(bucket) = &volume.ossfs {
            self.provide_bucket(spec, volume, bucket, &sub_path, provided)
                .await?;
            None
        } else {
            // Validation demands one of them.
            None
        };
        let watched = watched.map(|(place, source, is_racy)| Watched {
            index,
            mount_path: volume.mount_path.clone(),
            writes: !volume.read_only,
            place,
            source,
            is_racy,
        });
        provided.watched.extend(watched);
        Ok(())
    }

    /// Finds a directory of the host.
    async fn provide_host(
        &self,
        volume: &Volume,
        host: &HostVolume,
        sub_path: Vec<String>,
        provided: &mut Provided,
    ) -> Result<(Place, Source, bool), Refused> {
        let path = PathBuf::from(&host.path);
        let (place, is_below) = self.host_directory(path.clone(), sub_path.clone()).await?;
        provided.mounts.push(bind(volume, &place.found));
        Ok((place, Source::Host { path, sub_path }, is_below))
    }

    /// Finds or makes a named volume. Returns the directory of it that an older engine is to mount, or that
    /// sandboxes may get as one of the host, too.
    async fn provide_claim(
        &self,
        spec: &CreateSpec,
        volume: &Volume,
        claim: &ClaimVolume,
        (index, sub_path): (usize, Vec<String>),
        provided: &mut Provided,
    ) -> Result<Option<(Place, Source, bool)>, Refused> {
        let name = claims::name_of(spec.origin.tenant.as_deref(), &claim.claim_name)?;
        let turn = self.volumes.claims.of(&name);
        let turn = turn.lock().await;
        // Before it exists, so that neither a removal nor the sweep takes it away.
        self.volumes.ledger.add(
            spec.id(),
            Belongings {
                claims: [name.clone()].into(),
                ..Belongings::default()
            },
        );
        // What one entry says of a volume holds for it in all.
        let claims = spec.volumes.iter().filter_map(|it| it.pvc.as_ref());
        let mut same = claims.filter(|it| it.claim_name == claim.claim_name);
        let claim = ClaimVolume {
            delete_on_sandbox_termination: same.any(|it| it.delete_on_sandbox_termination),
            ..claim.clone()
        };
        let claimed = self.claim(&name, &claim, &spec.origin).await?;
        drop(turn);
        provided.claims.push(name.clone());
        if claimed.is_managed && !provided.managed.contains(&name) {
            provided.managed.push(name.clone());
        }
        if sub_path.is_empty() {
            provided.mounts.push(mount(volume, MountType::VOLUME, name));
            return match claimed.shows.map(PathBuf::from) {
                Some(root) => self.watch_claim(root, sub_path).await,
                None => Ok(None),
            };
        }
        let Some(directory) = claimed.directory else {
            let reason = "needs a volume of the driver local without options, which is a directory of the host";
            return Err(Refused::sub_path(VolumeFailure::SubPathDriver, reason));
        };
        let root = PathBuf::from(directory);
        if !self.has_sub_paths()? {
            let place = self.racy_directory(root.clone(), sub_path.clone()).await?;
            provided.mounts.push(bind(volume, &place.found));
            return Ok(Some((place, Source::Claim { root, sub_path }, true)));
        }
        self.make_directory(root.clone(), &sub_path).await?;
        let path = sub_path.join("/");
        provided.sub_paths.push((index, path.clone()));
        let mut mount = mount(volume, MountType::VOLUME, name);
        mount.volume_options = Some(MountVolumeOptions {
            subpath: Some(path),
            // Only whole volumes get the image's files.
            no_copy: Some(true),
            ..MountVolumeOptions::default()
        });
        provided.mounts.push(mount);
        self.watch_claim(root, sub_path).await
    }

    /// Looks at the directory of a named volume, if sandboxes may get it, or one above or below it, as a
    /// directory of the host.
    async fn watch_claim(
        &self,
        root: PathBuf,
        sub_path: Vec<String>,
    ) -> Result<Option<(Place, Source, bool)>, Refused> {
        let allowed = &self.volumes.allowed;
        if !self.config.storage.sees_host || allowed.is_empty() {
            return Ok(None);
        }
        let allowed = allowed.clone();
        let look = move || {
            let root = allowed.settled(&root)?;
            Ok(allowed.touch(&root).then_some(root))
        };
        let found = blocking(look).await.ok_or_else(unanswered)?;
        let Some(root) = found.map_err(|trouble| in_claim(&trouble))? else {
            return Ok(None);
        };
        let found = self.claim_directory(root.clone(), sub_path.clone()).await?;
        let place = found.map_err(|trouble| in_claim(&trouble))?;
        Ok(Some((place, Source::Claim { root, sub_path }, false)))
    }

    /// Mounts a bucket, or a directory of it.
    async fn provide_bucket(
        &self,
        spec: &CreateSpec,
        volume: &Volume,
        bucket: &OssfsVolume,
        sub_path: &[String],
        provided: &mut Provided,
    ) -> Result<(), Refused> {
        if !self.config.storage.sees_host {
            return Err(unseen("ossfs", VolumeFailure::OssfsMount));
        }
        let ossfs = &self.volumes.ossfs;
        let turn = self.volumes.buckets.of(&bucket.bucket);
        let _turn = turn.lock().await;
        let refused = |refusal: Refusal| Refused::Volume {
            member: "ossfs",
            failure: refusal.failure,
            reason: refusal.reason,
        };
        let path = ossfs.choose(bucket, sub_path).await.map_err(refused)?;
        self.volumes.ledger.add(
            spec.id(),
            Belongings {
                buckets: [path.clone()].into(),
                ..Belongings::default()
            },
        );
        let found = ossfs.provide(bucket, sub_path, path.clone()).await;
        let found = found.map_err(refused)?;
        provided.buckets.push(path);
        provided.mounts.push(bind(volume, &found));
        Ok(())
    }

    /// Finds a directory of the host in an allowed one, and whether it lies below that.
    async fn host_directory(
        &self,
        wanted: PathBuf,
        sub_path: Vec<String>,
    ) -> Result<(Place, bool), Refused> {
        if !self.config.storage.sees_host {
            return Err(unseen("host.path", VolumeFailure::HostPathNotAllowed));
        }
        let allowed = self.volumes.allowed.clone();
        // Other runtimes than the engine's own number directories anew, so execd cannot compare them.
        let only_itself = self.config.secure_runtime.is_some();
        let look = move || {
            let found = host_files::find_allowed(&allowed, &wanted, &sub_path, only_itself);
            let Allowed { found, is_below } = found?;
            let part = match sub_path.is_empty() {
                true => Part::Root,
                false => Part::SubPath,
            };
            let place = Place::of(found).map_err(|trouble| (part, trouble))?;
            Ok((place, is_below))
        };
        let found = blocking(look).await.ok_or_else(|| Refused::Volume {
            member: "host.path",
            failure: VolumeFailure::HostPathCreate,
            reason: "its file system does not answer".to_owned(),
        })?;
        found.map_err(|(part, trouble)| {
            let failure = match (part, &trouble) {
                (_, Trouble::Refused { .. }) | (Part::Root, Trouble::NotADirectory(_)) => {
                    VolumeFailure::HostPathCreate
                }
                (Part::Root, _) => VolumeFailure::HostPathNotAllowed,
                (Part::SubPath, _) => VolumeFailure::SubPath,
            };
            Refused::Volume {
                member: match part {
                    Part::Root => "host.path",
                    Part::SubPath => "subPath",
                },
                failure,
                reason: trouble.to_string(),
            }
        })
    }

    /// Makes a directory of a named volume that the engine is to look up, if this process can.
    async fn make_directory(&self, root: PathBuf, sub_path: &[String]) -> Result<(), Refused> {
        if !self.config.storage.sees_host {
            return Ok(());
        }
        match self.claim_directory(root, sub_path.to_vec()).await? {
            Ok(_) => Ok(()),
            // It may exist: the engine sees more than a confined service does.
            Err(trouble @ Trouble::Refused { .. }) => {
                debug!(%trouble, "leaving the directory of a volume to the engine");
                Ok(())
            }
            Err(trouble) => Err(in_claim(&trouble)),
        }
    }

    /// Finds a directory of a named volume for an engine that mounts it by path.
    async fn racy_directory(&self, root: PathBuf, sub_path: Vec<String>) -> Result<Place, Refused> {
        let storage = &self.config.storage;
        if !storage.allow_racy_paths || self.config.secure_runtime.is_some() {
            let reason = "this engine mounts it by path, so a sandbox that uses the volume could replace it \
                          by a link before that: it takes an engine with API 1.45 (Docker 26), or without \
                          [secure_runtime] the operator's acceptance (storage.allow_racy_paths)";
            return Err(Refused::sub_path(VolumeFailure::SubPath, reason));
        }
        if !storage.sees_host {
            return Err(unseen("subPath", VolumeFailure::SubPathDriver));
        }
        let found = self.claim_directory(root, sub_path).await?;
        found.map_err(|trouble| in_claim(&trouble))
    }

    async fn claim_directory(
        &self,
        root: PathBuf,
        sub_path: Vec<String>,
    ) -> Result<Result<Place, Trouble>, Refused> {
        let look = move || Place::of(host_files::find_below(&root, &sub_path)?);
        blocking(look).await.ok_or_else(unanswered)
    }
}

/// Refuses a directory of a named volume that cannot be looked at in time.
fn unanswered() -> Refused {
    let reason = "its file system does not answer";
    Refused::sub_path(VolumeFailure::ClaimInspect, reason)
}

/// Refuses a directory of a named volume.
fn in_claim(trouble: &Trouble) -> Refused {
    let failure = match trouble {
        Trouble::Refused { .. } => VolumeFailure::ClaimInspect,
        Trouble::Outside
        | Trouble::Below
        | Trouble::Link(_)
        | Trouble::NotADirectory(_)
        | Trouble::TooDeep(_) => VolumeFailure::SubPath,
    };
    Refused::sub_path(failure, trouble.to_string())
}

/// Refuses a directory that cannot be looked at.
fn unseen(member: &'static str, failure: VolumeFailure) -> Refused {
    Refused::Volume {
        member,
        failure,
        reason:
            "this server does not see the files of the engine's host, so it cannot check where the \
                 path leads (storage.host_is_local)"
                .to_owned(),
    }
}

fn bind(volume: &Volume, found: &Found) -> Mount {
    let source = found.path.to_string_lossy().into_owned();
    mount(volume, MountType::BIND, source)
}

/// A mount as a structure: in a text, a colon in a path would be a separator.
fn mount(volume: &Volume, kind: MountType, source: String) -> Mount {
    Mount {
        typ: Some(kind),
        source: Some(source),
        target: Some(volume.mount_path.clone()),
        read_only: Some(volume.read_only),
        ..Mount::default()
    }
}
