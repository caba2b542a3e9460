//! What a test run may not leave behind on the Docker engine.

use std::{collections::BTreeSet, process::Command};

use anyhow::Result;

use crate::{process::ask, step::notice};

/// Our containers, networks and volumes at one moment.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Inventory {
    containers: BTreeSet<String>,
    networks: BTreeSet<String>,
    volumes: BTreeSet<String>,
}

/// Label of everything that belongs to the platform.
const LABEL_PREFIX: &str = "opensandbox.io/";

impl Inventory {
    /// What is there now.
    pub(super) fn take() -> Result<Self> {
        Ok(Self {
            containers: list(&["ps", "--all", "--no-trunc"], "{{.Names}}\t{{.Labels}}")?,
            networks: list(&["network", "ls"], "{{.Name}}\t{{.Labels}}")?,
            volumes: list(&["volume", "ls"], "{{.Name}}\t{{.Labels}}")?,
        })
    }

    /// Removes networks of ours that `before` had not. The server keeps its network for the next
    /// sandbox; after a test run there is none. One that something is attached to stays, and is
    /// then told as left behind.
    pub(super) fn release_networks(&self, before: &Self) {
        for name in self.networks.difference(&before.networks) {
            if let Err(error) = ask(Command::new("docker").args(["network", "rm", name])) {
                notice(&format!("the network {name} cannot be removed: {error:#}"));
            }
        }
    }

    /// What this has and `before` had not. One volume is allowed to appear: that of the execd
    /// build, which outlives sandboxes so that the next one starts without a copy.
    pub(super) fn beyond(&self, before: &Self) -> Vec<String> {
        let new = |kind: &str, now: &BTreeSet<String>, then: &BTreeSet<String>| {
            now.difference(then)
                .map(|name| format!("{kind} {name}"))
                .collect::<Vec<_>>()
        };
        let mut left = new("container", &self.containers, &before.containers);
        left.extend(new("network", &self.networks, &before.networks));
        let volumes = new("volume", &self.volumes, &before.volumes);
        if volumes.len() > 1 {
            left.extend(volumes);
        }
        left
    }
}

fn list(arguments: &[&str], format: &str) -> Result<BTreeSet<String>> {
    let text = ask(Command::new("docker")
        .args(arguments)
        .args(["--format", format]))?;
    Ok(ours(&text))
}

/// Names of the lines with a label of ours.
fn ours(text: &str) -> BTreeSet<String> {
    text.lines()
        .filter_map(|line| line.split_once('\t'))
        .filter(|(_, labels)| {
            labels
                .split(',')
                .any(|label| label.starts_with(LABEL_PREFIX))
        })
        .map(|(name, _)| name.to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(containers: &[&str], volumes: &[&str]) -> Inventory {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Inventory {
            containers: set(containers),
            networks: BTreeSet::new(),
            volumes: set(volumes),
        }
    }

    #[test]
    fn only_labelled_things_are_ours() {
        let text =
            "a\topensandbox.io/id=1,x=y\nb\tx=opensandbox.io/\nc\t\nd\tx=y,opensandbox.io/execd=z";
        assert_eq!(ours(text), BTreeSet::from(["a".to_owned(), "d".to_owned()]));
    }

    #[test]
    fn the_volume_of_the_current_execd_may_stay() {
        let before = inventory(&["running"], &["old"]);
        assert!(before.beyond(&before).is_empty());
        assert!(inventory(&["running"], &["new"]).beyond(&before).is_empty());
        let after = inventory(&["running", "left"], &["new", "other"]);
        assert_eq!(
            after.beyond(&before),
            ["container left", "volume new", "volume other"]
        );
    }
}
