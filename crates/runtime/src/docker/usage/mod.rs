//! Resource use of containers, from their cgroups. Where these cannot be read (a remote engine, or a
//! server in a container), the engine's statistics serve.

mod cgroup;
mod statistics;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use bollard::query_parameters::ListContainersOptionsBuilder;
use futures::{StreamExt, stream};
use osb_protocol::SandboxId;

use self::cgroup::{ContainerFiles, Hierarchy};
use super::{DockerRuntime, error, labels};
use crate::{Metering, RuntimeError, Usage};

/// Time without a read after which the files of a container are forgotten. All containers are read more
/// often than that; in between, only those that a client watches.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// Most questions to the engine at the same time.
const QUESTIONS: usize = 8;

/// Files of containers whose use was read.
#[derive(Debug)]
pub(super) struct Meter {
    hierarchy: Hierarchy,
    /// Whether containers have networks of their own.
    has_network: bool,
    /// The files of each container, and when they were read last.
    files: Mutex<HashMap<String, (ContainerFiles, Instant)>>,
}

impl Meter {
    /// Creates a meter for the cgroups of this host.
    pub(super) fn of_host(has_network: bool) -> Self {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        Self {
            hierarchy: Hierarchy::of_mounts(&mounts),
            has_network,
            files: Mutex::default(),
        }
    }

    /// Reads the use of containers. `None` for those whose files cannot be found. Blocks.
    fn read(&self, containers: &[Option<String>]) -> Vec<Option<Usage>> {
        let (mut files, now) = (self.locked(), Instant::now());
        files.retain(|_, (_, read_at)| now.duration_since(*read_at) < FORGOTTEN);
        let mut read = |container: &String| {
            if !files.contains_key(container) {
                let found = self.hierarchy.find(container, self.has_network)?;
                files.insert(container.clone(), (found, now));
            }
            let (found, read_at) = files.get_mut(container)?;
            *read_at = now;
            let usage = found.read();
            if usage.is_none() {
                // It ended, or was moved.
                files.remove(container);
            }
            usage
        };
        let containers = containers.iter();
        containers
            .map(|container| read(container.as_ref()?))
            .collect()
    }

    fn locked(&self) -> MutexGuard<'_, HashMap<String, (ContainerFiles, Instant)>> {
        // The map is whole after every operation, so a panic elsewhere does not spoil it.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Metering for DockerRuntime {
    async fn read_usage(&self, ids: &[SandboxId]) -> Vec<Option<Usage>> {
        let containers: Arc<[Option<String>]> =
            ids.iter().map(|id| self.originals.main(id)).collect();
        let (meter, named) = (Arc::clone(&self.meter), Arc::clone(&containers));
        let read = tokio::task::spawn_blocking(move || meter.read(&named)).await;
        let mut usages = read.unwrap_or_else(|_| vec![None; ids.len()]);
        if usages.iter().any(Option::is_some) {
            // The others have just ended.
            return usages;
        }
        let asked = stream::iter(containers.iter().cloned())
            .map(async |container| match container {
                Some(container) => self.ask_usage(&container).await,
                None => None,
            })
            .buffered(QUESTIONS);
        usages = asked.collect().await;
        usages
    }

    async fn read_layer_sizes(&self) -> Result<HashMap<SandboxId, u64>, RuntimeError> {
        let ours = format!("{}={}", labels::SERVER, self.config.instance);
        let filter = HashMap::from([("label", vec![ours.as_str()])]);
        let options = ListContainersOptionsBuilder::default()
            .all(true)
            .size(true)
            .filters(&filter)
            .build();
        let list = self.docker()?.list_containers(Some(options));
        let list = list
            .await
            .map_err(|error| error::other("measure the sandboxes", &error))?;
        let mut sizes = HashMap::new();
        for container in list {
            let labels = container.labels.unwrap_or_default();
            let size = container.size_rw.unwrap_or_default();
            if let (Some(id), Ok(size)) = (labels::Read(&labels).id(), u64::try_from(size)) {
                *sizes.entry(id).or_default() += size;
            }
        }
        Ok(sizes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_others_are_kept_while_one_container_is_watched() {
        let folder = tempfile::tempdir().unwrap();
        for container in ["watched", "other"] {
            let cgroup = folder.path().join("docker").join(container);
            std::fs::create_dir_all(&cgroup).unwrap();
            for (file, text) in [
                ("cpu.stat", "usage_usec 1\n"),
                ("memory.current", "1\n"),
                ("memory.stat", "inactive_file 0\n"),
            ] {
                std::fs::write(cgroup.join(file), text).unwrap();
            }
        }
        let mount = format!(
            "1 1 0:1 / {} rw - cgroup2 cgroup2 rw",
            folder.path().display()
        );
        let meter = Meter {
            hierarchy: Hierarchy::of_mounts(&mount),
            has_network: false,
            files: Mutex::default(),
        };
        let names = |names: &[&str]| -> Vec<Option<String>> {
            names.iter().map(|name| Some((*name).to_owned())).collect()
        };
        let read = |wanted: &[&str]| meter.read(&names(wanted)).into_iter().flatten().count();
        assert_eq!(read(&["watched", "other", "missing"]), 2);
        assert_eq!(read(&["watched"]), 1);
        assert!(meter.locked().contains_key("other"));
        let long_ago = Instant::now().checked_sub(FORGOTTEN).unwrap();
        for (_, read_at) in meter.locked().values_mut() {
            *read_at = long_ago;
        }
        assert_eq!(read(&["watched"]), 1);
        let kept: Vec<String> = meter.locked().keys().cloned().collect();
        assert_eq!(kept, ["watched"]);
    }
}
