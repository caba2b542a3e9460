//! Resource use of containers, from their cgroups. Where these cannot be read (a remote engine, or a
//! server in a container), the engine's statistics serve.

mod cgroup;
mod statistics;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use futures::{StreamExt, stream};
use osb_protocol::SandboxId;

use self::cgroup::{ContainerFiles, Hierarchy};
use super::DockerRuntime;
use crate::{Metering, Usage};

/// Most questions to the engine at the same time.
const QUESTIONS: usize = 8;

/// Files of containers whose use was read.
#[derive(Debug)]
pub(super) struct Meter {
    hierarchy: Hierarchy,
    /// Whether containers have networks of their own.
    has_network: bool,
    files: Mutex<HashMap<String, ContainerFiles>>,
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
        let mut files = self.locked();
        let wanted: HashSet<&str> = containers.iter().flatten().map(String::as_str).collect();
        files.retain(|container, _| wanted.contains(container.as_str()));
        let mut read = |container: &String| {
            if !files.contains_key(container) {
                let found = self.hierarchy.find(container, self.has_network)?;
                files.insert(container.clone(), found);
            }
            let usage = files.get_mut(container)?.read();
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

    fn locked(&self) -> MutexGuard<'_, HashMap<String, ContainerFiles>> {
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
}
