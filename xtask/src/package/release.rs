//! Version and time of a release. Both follow from the commit, so that one commit always makes the
//! same files.

use std::process::Command;

use anyhow::{Context, Result};
use jiff::Timestamp;

use crate::{build, process::query, repo::Repo};

/// Version of all components.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Variable with the time of a release, in seconds since 1970, as other build tools read it.
const EPOCH: &str = "SOURCE_DATE_EPOCH";

/// The release that is packaged.
#[derive(Clone, Debug)]
pub(crate) struct Release {
    version: String,
    time: Timestamp,
}

impl Release {
    /// The release of a checkout: its version if the commit has the tag of that version, otherwise a
    /// version that sorts before it. The time is that of the commit, unless [`EPOCH`] has another.
    pub(crate) fn of(repo: &Repo) -> Result<Self> {
        let git = |arguments: &[&str]| {
            query(
                Command::new("git")
                    .arg("-C")
                    .arg(repo.root())
                    .args(arguments),
            )
        };
        let seconds = match std::env::var(EPOCH) {
            Ok(seconds) => seconds,
            Err(_) => git(&["log", "-1", "--format=%ct"])
                .with_context(|| format!("there is no commit whose time counts; set {EPOCH}"))?,
        };
        let tag = git(&["describe", "--tags", "--exact-match"]).ok();
        let time = parse_epoch(&seconds)?;
        let version = version(
            VERSION,
            tag.as_deref(),
            build::commit(repo).as_deref(),
            time,
        );
        Ok(Self { version, time })
    }

    /// A release of this version and time.
    #[cfg(test)]
    pub(super) fn at(version: &str, seconds: i64) -> Self {
        Self {
            version: version.to_owned(),
            time: Timestamp::from_second(seconds).expect("tests use times in range"),
        }
    }

    /// The same release under a later version: what a test upgrades to.
    pub(crate) fn successor(&self) -> Self {
        Self {
            version: format!("{}+next", self.version),
            ..self.clone()
        }
    }

    /// Version, such as `1.2.3` or `1.2.3~git20261126101500.0123456789ab`.
    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    /// Version of the Debian packages.
    pub(super) fn debian_version(&self) -> String {
        format!("{}-1", self.version)
    }

    /// Time in seconds since 1970.
    pub(super) fn epoch(&self) -> u64 {
        // Checked when it was read.
        u64::try_from(self.time.as_second()).unwrap_or_default()
    }

    /// Time as RFC 3339 writes it, in UTC.
    pub(super) fn rfc3339(&self) -> String {
        self.time.to_string()
    }

    /// Time as RFC 5322 writes it, in UTC.
    pub(super) fn rfc5322(&self) -> String {
        self.time
            .strftime("%a, %d %b %Y %H:%M:%S +0000")
            .to_string()
    }
}

fn parse_epoch(text: &str) -> Result<Timestamp> {
    let seconds: Option<i64> = text.trim().parse().ok();
    seconds
        .filter(|seconds| *seconds >= 0)
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .with_context(|| format!("{EPOCH} must be a number of seconds since 1970, not {text:?}"))
}

/// Names a release. A commit without the tag of its version comes before that version, and after
/// commits that are older.
fn version(base: &str, tag: Option<&str>, commit: Option<&str>, time: Timestamp) -> String {
    let Some(commit) = commit else {
        return base.to_owned();
    };
    let is_tagged = tag.is_some_and(|tag| tag == format!("v{base}"));
    if is_tagged && !commit.ends_with("-dirty") {
        return base.to_owned();
    }
    let time = time.strftime("%Y%m%d%H%M%S");
    format!("{base}~git{time}.{}", commit.replace('-', "."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_tagged_and_unchanged_commit_has_the_plain_version() {
        let time = parse_epoch("1795688100\n").unwrap();
        let version = |tag, commit| version("1.2.3", tag, commit, time);
        assert_eq!(version(Some("v1.2.3"), Some("0123456789ab")), "1.2.3");
        assert_eq!(version(None, None), "1.2.3");
        let unreleased = "1.2.3~git20261126101500.0123456789ab";
        assert_eq!(version(None, Some("0123456789ab")), unreleased);
        assert_eq!(version(Some("v1.2.2"), Some("0123456789ab")), unreleased);
        assert_eq!(
            version(Some("v1.2.3"), Some("0123456789ab-dirty")),
            format!("{unreleased}.dirty")
        );
    }

    #[test]
    fn times_are_written_as_their_readers_expect() {
        let release = Release::at("1.2.3", 1_795_688_100);
        assert_eq!(release.epoch(), 1_795_688_100);
        assert_eq!(release.rfc3339(), "2026-11-26T10:15:00Z");
        assert_eq!(release.rfc5322(), "Thu, 26 Nov 2026 10:15:00 +0000");
        assert_eq!(release.debian_version(), "1.2.3-1");
        for wrong in ["", "-1", "today", "99999999999999999999"] {
            let error = parse_epoch(wrong).unwrap_err().to_string();
            assert!(error.contains("SOURCE_DATE_EPOCH"), "{error}");
        }
    }
}
