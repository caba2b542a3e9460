//! The configuration that a capture gives to the image of a snapshot: that of the image which the sandbox was created
//! from, without anything that the sandbox had in addition (contract: lifecycle §28, correctness 4).
//!
//! A commit starts with the configuration of the container, and a request can replace its entries but
//! not remove them. So an entry of the container alone is replaced by one that has no effect:
//!
//! * a variable by its bare name, which the engine takes as "not set";
//! * a label by an empty one, which this server reads as none;
//! * the command by one of an empty word, if the image has neither an entry point nor a command. Every
//!   sandbox has a command of its own.

use std::collections::{HashMap, HashSet};

use bollard::models::{ContainerConfig, ImageConfig};

use super::labels;

/// Builds the request of a commit.
pub(super) fn of(
    container: &ContainerConfig,
    image: ImageConfig,
    marks: &[(&str, &str)],
) -> ContainerConfig {
    let entrypoint = image.entrypoint.unwrap_or_default();
    let mut cmd = image.cmd.unwrap_or_default();
    // With two empty lists, the engine would keep the command of the container.
    if entrypoint.is_empty() && cmd.is_empty() {
        cmd.push(String::new());
    }
    // A list is the container's unless it is given.
    ContainerConfig {
        env: Some(environment(
            container.env.as_deref().unwrap_or_default(),
            image.env.unwrap_or_default(),
        )),
        labels: Some(labels_of(
            container.labels.as_ref(),
            image.labels.unwrap_or_default(),
            marks,
        )),
        entrypoint: Some(entrypoint),
        cmd: Some(cmd),
        ..ContainerConfig::default()
    }
}

/// Whether a command is the one that stands for none.
pub(super) fn is_no_command(cmd: &[String]) -> bool {
    matches!(cmd, [word] if word.is_empty())
}

fn name(entry: &str) -> &str {
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

fn environment(of_container: &[String], of_image: Vec<String>) -> Vec<String> {
    let known: HashSet<String> = of_image.iter().map(|it| name(it).to_owned()).collect();
    let added = of_container.iter().map(|entry| name(entry));
    let mut added: Vec<String> = added
        .filter(|name| !known.contains(*name))
        .map(str::to_owned)
        .collect();
    added.sort();
    added.dedup();
    let mut env = of_image;
    env.extend(added);
    env
}

fn labels_of(
    of_container: Option<&HashMap<String, String>>,
    of_image: HashMap<String, String>,
    marks: &[(&str, &str)],
) -> HashMap<String, String> {
    let names = of_container.into_iter().flat_map(HashMap::keys);
    let mut all: HashMap<String, String> =
        names.map(|name| (name.clone(), String::new())).collect();
    all.extend(of_image);
    // Of a sandbox that someone committed by hand.
    for (name, value) in &mut all {
        if labels::is_reserved(name) {
            value.clear();
        }
    }
    let marks = marks.iter();
    all.extend(marks.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    const MARKS: &[(&str, &str)] = &[
        (labels::SNAPSHOT_SERVER, "us"),
        (labels::SNAPSHOT, "s"),
        (labels::SNAPSHOT_SOURCE, "a"),
    ];

    #[test]
    fn nothing_of_the_sandbox_is_left() {
        let container = ContainerConfig {
            env: Some(list(&[
                "PATH=/bin",
                "LANG=de",
                "KEY=secret=1",
                "EXECD_ACCESS_TOKEN=t",
                "OPENSANDBOX_ID=a",
                "OLD",
            ])),
            labels: Some(map(&[
                (labels::ID, "a"),
                (labels::EXECD_TOKEN, "t"),
                (labels::SNAPSHOT, "parent"),
                ("team", "core"),
                ("maintainer", "x"),
                ("changed", "by the request"),
            ])),
            entrypoint: Some(list(&["/opt/opensandbox/.dist/execd", "init"])),
            cmd: Some(list(&["sleep", "9"])),
            ..ContainerConfig::default()
        };
        let image = ImageConfig {
            env: Some(list(&["PATH=/bin", "LANG=en", "OLD"])),
            labels: Some(map(&[
                ("maintainer", "x"),
                ("changed", "no"),
                (labels::EXPIRES_AT, "2031-05-01T10:00:00Z"),
                (labels::SNAPSHOT, "parent"),
            ])),
            cmd: Some(list(&["bash"])),
            ..ImageConfig::default()
        };
        let committed = of(&container, image, MARKS);
        assert_eq!(
            committed.env.unwrap(),
            [
                "PATH=/bin",
                "LANG=en",
                "OLD",
                "EXECD_ACCESS_TOKEN",
                "KEY",
                "OPENSANDBOX_ID"
            ]
        );
        let want = map(&[
            (labels::ID, ""),
            (labels::EXECD_TOKEN, ""),
            (labels::EXPIRES_AT, ""),
            ("team", ""),
            ("maintainer", "x"),
            ("changed", "no"),
            (labels::SNAPSHOT_SERVER, "us"),
            (labels::SNAPSHOT, "s"),
            (labels::SNAPSHOT_SOURCE, "a"),
        ]);
        assert_eq!(committed.labels.unwrap(), want);
        assert_eq!(committed.entrypoint, Some(Vec::new()));
        assert_eq!(committed.cmd.unwrap(), ["bash"]);
        // An image without a command does not get the container's.
        let bare = of(&container, ImageConfig::default(), MARKS);
        assert_eq!(bare.entrypoint, Some(Vec::new()));
        assert!(is_no_command(&bare.cmd.unwrap()));
        let started = ImageConfig {
            entrypoint: Some(list(&["run"])),
            ..ImageConfig::default()
        };
        assert_eq!(of(&container, started, MARKS).cmd, Some(Vec::new()));
        // Absent members are the container's: user, working directory, volumes, health check.
        assert_eq!((committed.user, committed.working_dir), (None, None));
    }
}
