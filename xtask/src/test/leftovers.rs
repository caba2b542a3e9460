//! What a test run leaves behind on the Docker engine.
//!
//! Whatever a server makes there carries the id of its instance, so a run knows its own things, and
//! everybody else may use the engine meanwhile. Rust tests give their instances names; other
//! suites' servers make up an id, which lies as plain text in their stores below `target/reports`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::process::ask;

/// Begins the names of all instances of Rust tests; the name of the run follows.
const TEST: &str = "test-";
/// The id of the instance, which is in another label when the container only helps a server.
const INSTANCE: &str = r#"{{.Label "opensandbox.io/server"}}{{.Label "opensandbox.io/helper-of"}}"#;

/// Kinds of things, how Docker lists them, and where their names are.
const KINDS: [(&str, &[&str], &str); 3] = [
    ("container", &["ps", "--all", "--no-trunc"], "{{.Names}}"),
    ("network", &["network", "ls"], "{{.Name}}"),
    ("volume", &["volume", "ls"], "{{.Name}}"),
];
/// Volumes with an execd, which outlive sandboxes so that the next one starts without a copy.
const EXECD_VOLUMES: [&str; 4] = [
    "volume",
    "ls",
    "--filter",
    "label=opensandbox.io/execd-build",
];
/// The network of all servers on the engine, which they keep for the next sandbox.
const NETWORKS: [&str; 4] = ["network", "ls", "--filter", "label=opensandbox.io/network"];

/// The engine before a run.
pub(super) struct Before {
    run: String,
    reports: PathBuf,
    /// Things of earlier runs.
    things: BTreeSet<String>,
    networks: Vec<Thing>,
}

/// Something on the engine.
#[derive(Debug, PartialEq, Eq)]
struct Thing {
    name: String,
    /// Empty when none is told.
    instance: String,
}

impl Before {
    /// Looks around, and removes the execd volumes of earlier runs.
    pub(super) fn look(run: &str, reports: &Path) -> Result<Self> {
        let earlier = Instances::of(None, reports);
        remove_execd_volumes(&earlier)?;
        Ok(Self {
            run: run.to_owned(),
            reports: reports.to_owned(),
            things: things_of(&earlier)?,
            networks: list(&NETWORKS, "{{.Name}}")?,
        })
    }

    /// What the run left behind. The network and the execd volumes are kept for a next sandbox,
    /// which there is not: they are removed, unless somebody else uses them by now.
    pub(super) fn left(&self) -> Result<Vec<String>> {
        let ours = Instances::of(Some(&self.run), &self.reports);
        remove_execd_volumes(&ours)?;
        for Thing { name, .. } in list(&NETWORKS, "{{.Name}}")? {
            if self.networks.iter().all(|known| known.name != name) {
                remove("network", &name);
            }
        }
        Ok(things_of(&ours)?
            .difference(&self.things)
            .cloned()
            .collect())
    }
}

/// Some servers.
struct Instances {
    /// Begins the names of those in Rust tests.
    prefix: String,
    /// Stores of the others.
    stores: Vec<Vec<u8>>,
}

impl Instances {
    /// Those of a run, or of any.
    fn of(run: Option<&str>, reports: &Path) -> Self {
        let mut stores = Vec::new();
        collect(reports, &mut stores);
        let prefix = match run {
            Some(run) => format!("{TEST}{run}."),
            None => TEST.to_owned(),
        };
        Self { prefix, stores }
    }

    fn made(&self, thing: &Thing) -> bool {
        let id = thing.instance.as_bytes();
        let is_in = |store: &Vec<u8>| store.windows(id.len()).any(|part| part == id);
        !id.is_empty()
            && (thing.instance.starts_with(&self.prefix) || self.stores.iter().any(is_in))
    }
}

/// Reads the stores below a folder, with their write-ahead logs. One that vanishes has nobody who
/// uses it.
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

/// What the servers made, but for execd volumes.
fn things_of(instances: &Instances) -> Result<BTreeSet<String>> {
    let kept = list(&EXECD_VOLUMES, "{{.Name}}")?;
    let mut all = BTreeSet::new();
    for (kind, arguments, name) in KINDS {
        let things = list(arguments, name)?.into_iter();
        all.extend(
            things
                .filter(|thing| instances.made(thing) && !kept.contains(thing))
                .map(|thing| format!("{kind} {}", thing.name)),
        );
    }
    Ok(all)
}

fn remove_execd_volumes(instances: &Instances) -> Result<()> {
    for volume in list(&EXECD_VOLUMES, "{{.Name}}")? {
        if instances.made(&volume) {
            remove("volume", &volume.name);
        }
    }
    Ok(())
}

/// Removes a thing that may be in use, and stays then.
fn remove(kind: &str, name: &str) {
    let _ = ask(Command::new("docker").args([kind, "rm", name]));
}

fn list(arguments: &[&str], name: &str) -> Result<Vec<Thing>> {
    let format = format!("{name}\t{INSTANCE}");
    let text = ask(Command::new("docker")
        .args(arguments)
        .args(["--format", &format]))?;
    Ok(text.lines().filter_map(of_line).collect())
}

/// Reads a name and, if any, an instance.
fn of_line(line: &str) -> Option<Thing> {
    let (name, instance) = line.split_once('\t').unwrap_or((line, ""));
    (!name.is_empty()).then(|| Thing {
        name: name.to_owned(),
        instance: instance.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_knows_its_own_things() {
        let reports = std::env::temp_dir().join(format!("xtask-stores-{}", std::process::id()));
        let folder = reports.join("pytest/test_kill0");
        fs::create_dir_all(&folder).unwrap();
        let id = "0b8e6a4e-6a9d-4c53-9d6f-2f6d1c0a7b11";
        fs::write(folder.join("store.db-wal"), format!("\0\x01{id}\0")).unwrap();
        fs::write(folder.join("server.log"), "up-1").unwrap();

        let made = |run: Option<&str>, line: &str| {
            Instances::of(run, &reports).made(&of_line(line).unwrap())
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
