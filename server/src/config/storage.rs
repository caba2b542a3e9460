//! `[storage]`: volumes of sandboxes (contract: lifecycle §14.8).

use std::path::{Path, PathBuf};

use osb_runtime::docker::StorageConfig;
use osb_service::config::ConfigError;
use serde::{Deserialize, Serialize};

use crate::sandbox::StorageRules;

/// `[storage]`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(default)]
pub struct StorageSection {
    /// Directories of the host that sandboxes may get, with what is below; none allows none.
    pub allowed_host_paths: Vec<String>,
    /// Whether directories are mounted that another sandbox could replace by a link just before.
    pub allow_racy_paths: bool,
    /// Read for compatibility: size of volumes on Kubernetes.
    pub volume_default_size: String,
    /// Directory of the host below which buckets are mounted.
    pub ossfs_mount_root: PathBuf,
    /// Names of options of `ossfs` and `ossfs2` that requests may use, besides the harmless ones.
    pub ossfs_options: Vec<String>,
    /// Whether this process sees the files of the engine's host, at the same paths; found out when absent.
    pub host_is_local: Option<bool>,
}

impl Default for StorageSection {
    fn default() -> Self {
        Self {
            allowed_host_paths: Vec::new(),
            allow_racy_paths: false,
            volume_default_size: "1Gi".to_owned(),
            ossfs_mount_root: PathBuf::from("/mnt/ossfs"),
            ossfs_options: Vec::new(),
            host_is_local: None,
        }
    }
}

/// Where this process runs, seen from the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StorageView {
    /// Whether it sees the files of the engine's host, at the same paths.
    pub sees_host: bool,
    /// Whether it runs in a container of its own.
    pub in_container: bool,
}

impl StorageSection {
    pub(super) fn check(&self, file: &Path) -> Result<(), ConfigError> {
        let rule = |key: &str, rule: &str| {
            let key = format!("storage.{key}");
            Err(ConfigError::rule(file, key, rule))
        };
        if !self.allowed_host_paths.iter().all(|path| is_plain(path)) {
            let text = "must be absolute paths without .., empty parts and control characters";
            return rule("allowed_host_paths", text);
        }
        if !is_size(&self.volume_default_size) {
            let text = "must be a number with Ki, Mi, Gi, Ti, Pi, Ei or no unit";
            return rule("volume_default_size", text);
        }
        let root = self.ossfs_mount_root.to_str();
        if !root.is_some_and(|root| is_plain(root) && !without_slash(root).is_empty()) {
            let text = "must be an absolute path without .., empty parts and control characters, other than /";
            return rule("ossfs_mount_root", text);
        }
        if self.has_reachable_root() {
            let text = "must not be in a directory of storage.allowed_host_paths or the other way round: \
                        a sandbox could replace the mounts of buckets";
            return rule("ossfs_mount_root", text);
        }
        let is_name = |name: &String| {
            let is_inner = |it: char| it.is_ascii_alphanumeric() || it == '_';
            !name.is_empty() && name.chars().all(is_inner)
        };
        if !self.ossfs_options.iter().all(is_name) {
            let text = "must be names of options: letters, digits and underscores";
            return rule("ossfs_options", text);
        }
        Ok(())
    }

    /// Whether an allowed directory contains the mounts of buckets, or is among them.
    fn has_reachable_root(&self) -> bool {
        let root = &self.ossfs_mount_root;
        self.allowed_host_paths.iter().any(|path| {
            let path = Path::new(path);
            // The root of the host allows itself only, and there is a warning about it.
            path != Path::new("/") && (path.starts_with(root) || root.starts_with(path))
        })
    }

    /// Whether a request may get the whole host.
    pub(super) fn allows_root(&self) -> bool {
        let mut paths = self.allowed_host_paths.iter();
        paths.any(|path| without_slash(path).is_empty())
    }

    /// The allowed directories. One below another is left out: a sandbox that has the upper one could
    /// replace the lower one by a link to anywhere.
    fn allowed(&self) -> Vec<String> {
        let paths: Vec<&str> = self
            .allowed_host_paths
            .iter()
            .map(|path| without_slash(path))
            .collect();
        let is_below = |path: &str, other: &str| {
            let rest = path.strip_prefix(other);
            // The root allows itself only.
            !other.is_empty() && rest.is_some_and(|rest| rest.starts_with('/'))
        };
        let mut allowed: Vec<String> = paths
            .iter()
            .filter(|path| !paths.iter().any(|other| is_below(path, other)))
            .map(|path| match *path {
                "" => "/".to_owned(),
                path => path.to_owned(),
            })
            .collect();
        allowed.sort_unstable();
        allowed.dedup();
        allowed
    }

    /// The rules of requests.
    #[must_use]
    pub fn rules(&self, view: StorageView) -> StorageRules {
        StorageRules {
            allowed_host_paths: self.allowed(),
            ossfs_options: self.ossfs_options.clone(),
            sees_host: view.sees_host,
        }
    }

    /// Settings of the Docker back end.
    #[must_use]
    pub fn runtime_config(&self, view: StorageView) -> StorageConfig {
        StorageConfig {
            allowed_host_paths: self.allowed().into_iter().map(PathBuf::from).collect(),
            allow_racy_paths: self.allow_racy_paths,
            ossfs_mount_root: self.ossfs_mount_root.components().collect(),
            sees_host: view.sees_host,
            in_container: view.in_container,
            programs: None,
        }
    }
}

/// Whether a path is absolute and leads where it reads. A slash at the end is allowed.
fn is_plain(path: &str) -> bool {
    let parts = without_slash(path).split('/').skip(1);
    let is_part =
        |part: &str| !matches!(part, "" | "." | "..") && !part.chars().any(char::is_control);
    let mut parts = parts;
    path.starts_with('/') && parts.all(is_part)
}

fn without_slash(path: &str) -> &str {
    path.strip_suffix('/').unwrap_or(path)
}

/// Whether a text is a size as Kubernetes has it (contract: lifecycle §4.3).
fn is_size(text: &str) -> bool {
    let units = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let number = units.iter().find_map(|unit| text.strip_suffix(unit));
    let number = number.unwrap_or(text);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    is_digits(whole) && is_digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(paths: &[&str]) -> StorageSection {
        StorageSection {
            allowed_host_paths: paths.iter().map(|it| (*it).to_owned()).collect(),
            ..StorageSection::default()
        }
    }

    #[test]
    fn paths_below_others_are_covered_by_them() {
        let section = section(&[
            "/srv/data/",
            "/srv/data/a",
            "/srv/database",
            "/",
            "/srv/data",
        ]);
        assert_eq!(section.allowed(), ["/", "/srv/data", "/srv/database"]);
        assert!(section.allows_root());
        assert!(!self::section(&["/srv"]).allows_root());
    }

    #[test]
    fn wrong_values_are_refused() {
        let file = Path::new("a.toml");
        section(&["/srv/a-b", "/"]).check(file).unwrap();
        for path in [
            "srv",
            "",
            "/srv/../etc",
            "/srv//a",
            "/./a",
            "C:\\data",
            "/a\nb",
        ] {
            let error = section(&[path]).check(file).unwrap_err().to_string();
            assert!(
                error.contains("storage.allowed_host_paths: "),
                "{path}: {error}"
            );
        }
        for (key, wrong) in [
            (
                "ossfs_mount_root",
                StorageSection {
                    ossfs_mount_root: "mnt".into(),
                    ..section(&[])
                },
            ),
            (
                "ossfs_mount_root",
                StorageSection {
                    ossfs_mount_root: "/".into(),
                    ..section(&[])
                },
            ),
            (
                "ossfs_mount_root",
                StorageSection {
                    ossfs_mount_root: "/srv/ossfs/".into(),
                    ..section(&["/a", "/srv"])
                },
            ),
            (
                "ossfs_mount_root",
                StorageSection {
                    ossfs_mount_root: "/srv/ossfs".into(),
                    ..section(&["/srv/ossfs/data"])
                },
            ),
            (
                "volume_default_size",
                StorageSection {
                    volume_default_size: "1G".into(),
                    ..section(&[])
                },
            ),
            (
                "ossfs_options",
                StorageSection {
                    ossfs_options: vec!["a=b".into()],
                    ..section(&[])
                },
            ),
        ] {
            let error = wrong.check(file).unwrap_err().to_string();
            assert!(error.contains(&format!("storage.{key}: ")), "{error}");
        }
    }
}
