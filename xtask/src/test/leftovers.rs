//! Resources that a test run leaves behind on the Docker engine.
//!
//! Each resource carries the id of the server instance that created it. A run thus recognises its
//! own, and other programs may use the engine at the same time. Rust tests name their instances;
//! servers of the other suites generate an id, which is in their stores below `target/reports`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::process::query;

/// Prefix of the instance ids of Rust tests; the name of the run follows.
const TEST: &str = "test-";
/// Template for the id of the instance. Helper containers carry it in another label than sandboxes.
const INSTANCE: &str = r#"{{.Label "opensandbox.io/server"}}{{.Label "opensandbox.io/helper-of"}}"#;

/// Kinds of resources, the Docker commands that list them, and the templates of their names.
const KINDS: [(&str, &[&str], &str); 3] = [
    ("container", &["ps", "--all", "--no-trunc"], "{{.Names}}"),
    ("network", &["network", "ls"], "{{.Name}}"),
    ("volume", &["volume", "ls"], "{{.Name}}"),
];
/// Volumes with an execd. They outlive sandboxes, so that the next one starts without a copy.
const EXECD_VOLUMES: [&str; 4] = [
    "volume",
    "ls",
    "--filter",
    "label=opensandbox.io/execd-build",
];
/// The network that all servers on the engine share and keep for the next sandbox.
const NETWORKS: [&str; 4] = ["network", "ls", "--filter", "label=opensandbox.io/network"];

/// The state of the engine before a run.
pub(super) struct Baseline {
    run: String,
    reports: PathBuf,
    /// Resources of earlier runs.
    resources: BTreeSet<String>,
    networks: Vec<Resource>,
}

/// A container, network or volume on the engine.
#[derive(Debug, PartialEq, Eq)]
struct Resource {
    name: String,
    /// Instance that created it; empty when it has no such label.
    instance: String,
}

impl Baseline {
    /// Records the state of the engine after removing the execd volumes of earlier runs.
    pub(super) fn record(run: &str, reports: &Path) -> Result<Self> {
        let earlier = Instances::of(None, reports);
        remove_execd_volumes(&earlier)?;
        Ok(Self {
            run: run.to_owned(),
            reports: reports.to_owned(),
            resources: resources_of(&earlier)?,
            networks: list(&NETWORKS, "{{.Name}}")?,
        })
    }

    /// Lists what the run left behind. Servers keep the network and the execd volumes on purpose;
    /// both are removed here unless another server uses them.
    pub(super) fn leftovers(&self) -> Result<Vec<String>> {
        let ours = Instances::of(Some(&self.run), &self.reports);
        remove_execd_volumes(&ours)?;
        for Resource { name, .. } in list(&NETWORKS, "{{.Name}}")? {
            if self.networks.iter().all(|known| known.name != name) {
                remove("network", &name);
            }
        }
        Ok(resources_of(&ours)?
            .difference(&self.resources)
            .cloned()
            .collect())
    }
}

/// Server instances of one run, or of all runs.
struct Instances {
    /// Prefix of the instance ids of Rust tests.
    prefix: String,
    /// Content of the stores of all other servers.
    stores: Vec<Vec<u8>>,
}

impl Instances {
    /// The instances of `run`, or of all runs.
    fn of(run: Option<&str>, reports: &Path) -> Self {
        let mut stores = Vec::new();
        collect(reports, &mut stores);
        let prefix = match run {
            Some(run) => format!("{TEST}{run}."),
            None => TEST.to_owned(),
        };
        Self { prefix, stores }
    }

    fn created(&self, resource: &Resource) -> bool {
        let id = resource.instance.as_bytes();
        let is_in = |store: &Vec<u8>| store.windows(id.len()).any(|part| part == id);
        !id.is_empty()
            && (resource.instance.starts_with(&self.prefix) || self.stores.iter().any(is_in))
    }
}

/// Reads the stores below a folder, with their write-ahead logs. A store that vanishes meanwhile is
/// unused and skipped.
fn collect(folder: &Path, stores: &mut Vec<Vec<u8>>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, stores);
        } else if entry.file_name().to_string_lossy().starts_with("store.db") {
            stores.extend(fs::read(path));
        }
    }
}

/// Lists the resources that the instances created, without execd volumes.
fn resources_of(instances: &Instances) -> Result<BTreeSet<String>> {
    let kept = list(&EXECD_VOLUMES, "{{.Name}}")?;
    let mut all = BTreeSet::new();
    for (kind, arguments, name) in KINDS {
        let resources = list(arguments, name)?.into_iter();
        all.extend(
            resources
                .filter(|resource| instances.created(resource) && !kept.contains(resource))
                .map(|Resource { name, instance }| format!("{kind} {name} of server {instance}")),
        );
    }
    Ok(all)
}

fn remove_execd_volumes(instances: &Instances) -> Result<()> {
    for volume in list(&EXECD_VOLUMES, "{{.Name}}")? {
        if instances.created(&volume) {
            remove("volume", &volume.name);
        }
    }
    Ok(())
}

/// Removes a resource unless it is in use.
fn remove(kind: &str, name: &str) {
    let _ = query(Command::new("docker").args([kind, "rm", name]));
}

fn list(arguments: &[&str], name: &str) -> Result<Vec<Resource>> {
    let format = format!("{name}\t{INSTANCE}");
    let text = query(
        Command::new("docker")
            .args(arguments)
            .args(["--format", &format]),
    )?;
    Ok(text.lines().filter_map(of_line).collect())
}

/// Parses a name and, if present, an instance.
fn of_line(line: &str) -> Option<Resource> {
    let (name, instance) = line.split_once('\t').unwrap_or((line, ""));
    (!name.is_empty()).then(|| Resource {
        name: name.to_owned(),
        instance: instance.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_recognises_its_own_resources() {
        let reports = std::env::temp_dir().join(format!("xtask-stores-{}", std::process::id()));
        let folder = reports.join("pytest/test_kill0");
        fs::create_dir_all(&folder).unwrap();
        let id = "0b8e6a4e-6a9d-4c53-9d6f-2f6d1c0a7b11";
        fs::write(folder.join("store.db-wal"), format!("\0\x01{id}\0")).unwrap();
        fs::write(folder.join("server.log"), "up-1").unwrap();

        let made = |run: Option<&str>, line: &str| {
            Instances::of(run, &reports).created(&of_line(line).unwrap())
        };
        let ours = Some("abc");
        assert!(made(ours, &format!("sandbox\t{id}")));
        assert!(made(ours, "sandbox\ttest-abc.tmpXyz"));
        assert!(!made(ours, "sandbox\ttest-abcd.tmpXyz"));
        assert!(made(None, "sandbox\ttest-abcd.tmpXyz"));
        for line in ["sandbox\tup-1", "sandbox\t", "sandbox"] {
            assert!(!made(None, line), "{line}");
        }
        fs::remove_dir_all(&reports).unwrap();
    }
}
