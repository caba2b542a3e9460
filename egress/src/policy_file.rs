//! The file that keeps the policy across restarts of the process (contract: egress §6).

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use tracing::warn;

use crate::policy::{Policy, PolicyError};

/// Mode of a new file: a policy names internal hosts.
const MODE: u32 = 0o600;

/// Reason why there is no first policy.
#[derive(Debug, thiserror::Error)]
pub enum FirstPolicyError {
    /// The file is there, but cannot be read.
    #[error("cannot read the policy file {}", .path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The variable has no policy.
    #[error("{} has no valid policy", crate::config::names::RULES)]
    Variable(#[source] PolicyError),
}

/// The policy to begin with.
#[derive(Debug, PartialEq)]
pub struct First {
    /// The policy.
    pub policy: Policy,
    /// Whether it is the file's.
    pub is_kept: bool,
}

/// The file, if there is one.
#[derive(Debug, Default)]
pub struct PolicyFile(Option<PathBuf>);

impl PolicyFile {
    /// File at this path. With `None` nothing is kept.
    #[must_use]
    pub fn new(path: Option<PathBuf>) -> Self {
        Self(path)
    }

    /// The policy to begin with: the file's, or that of the environment if there is no usable file,
    /// or one that refuses everything.
    ///
    /// # Errors
    /// See [`FirstPolicyError`].
    pub fn first(&self, from_environment: Option<&str>) -> Result<First, FirstPolicyError> {
        if let Some(policy) = self.kept()? {
            let is_kept = true;
            return Ok(First { policy, is_kept });
        }
        let text = from_environment.unwrap_or_default();
        let policy = Policy::parse(text.as_bytes()).map_err(FirstPolicyError::Variable)?;
        let is_kept = false;
        Ok(First { policy, is_kept })
    }

    /// The file's policy; `None` if there is no usable file.
    fn kept(&self) -> Result<Option<Policy>, FirstPolicyError> {
        let Some(path) = &self.0 else {
            return Ok(None);
        };
        match fs::read(path) {
            Ok(text) if text.trim_ascii().is_empty() => {
                warn!(path = %path.display(), "the policy file is empty, the environment counts");
                Ok(None)
            }
            Ok(text) => match Policy::parse(&text) {
                Ok(policy) => Ok(Some(policy)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(path = %path.display(), error, "the policy file is invalid, the environment counts");
                    Ok(None)
                }
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => {
                let path = path.clone();
                Err(FirstPolicyError::Read { path, source })
            }
        }
    }

    /// Writes a policy beside the file. It counts when [`Staged::commit`] succeeds.
    ///
    /// # Errors
    /// The file system refuses it.
    pub fn stage(&self, policy: &Policy) -> io::Result<Staged> {
        let Some(path) = &self.0 else {
            return Ok(Staged(None));
        };
        let mut text = serde_json::to_string_pretty(policy)?;
        text.push('\n');
        let mode = match fs::metadata(path) {
            Ok(existing) => existing.permissions().mode(),
            Err(_) => MODE,
        };
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        let beside = path.with_file_name(name);
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(MODE)
            .open(&beside)?;
        file.set_permissions(Permissions::from_mode(mode))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(Staged(Some((beside, path.clone()))))
    }
}

/// Policy that is written but does not count yet.
#[derive(Debug)]
#[must_use]
pub struct Staged(Option<(PathBuf, PathBuf)>);

impl Staged {
    /// Puts the policy in place of the old one.
    ///
    /// # Errors
    /// The file system refuses it. The old one is then still there.
    pub fn commit(mut self) -> io::Result<()> {
        let Some((beside, path)) = self.0.take() else {
            return Ok(());
        };
        match fs::rename(&beside, &path) {
            Ok(()) => {}
            // A file that is a mount point itself can only be overwritten.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                let copied = fs::copy(&beside, &path);
                discard(&beside);
                copied?;
                return Ok(());
            }
            Err(error) => {
                discard(&beside);
                return Err(error);
            }
        }
        // The new name should survive a power failure, too. It counts already, so that a failure
        // must not be reported as one of the change.
        let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = File::open(folder.unwrap_or_else(|| Path::new(".")));
        if let Err(error) = folder.and_then(|folder| folder.sync_all()) {
            warn!(path = %path.display(), %error, "the policy file's folder cannot be synced");
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some((beside, _)) = &self.0 {
            discard(beside);
        }
    }
}

fn discard(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        warn!(path = %path.display(), %error, "a policy that does not count cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: &str = r#"{"egress":[{"action":"allow","target":"a.example"}]}"#;

    fn policy() -> Policy {
        Policy::parse(ALLOW.as_bytes()).unwrap()
    }

    fn first(file: &PolicyFile, from_environment: Option<&str>) -> Policy {
        file.first(from_environment).unwrap().policy
    }

    #[test]
    fn the_file_wins_if_it_can_be_used() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.json");
        let file = PolicyFile::new(Some(path.clone()));
        assert_eq!(first(&file, Some(ALLOW)), policy());
        assert_eq!(first(&file, None), Policy::default());
        for unusable in ["", " \n", "{", "[]", r#"{"egress":[{"target":"*"}]}"#] {
            fs::write(&path, unusable).unwrap();
            assert_eq!(first(&file, Some(ALLOW)), policy(), "{unusable:?}");
        }
        assert!(!file.first(Some(ALLOW)).unwrap().is_kept);
        fs::write(&path, r#"{"defaultAction":"allow"}"#).unwrap();
        let kept = file.first(Some(ALLOW)).unwrap();
        assert!(kept.is_kept && kept.policy != policy(), "{kept:?}");
        assert!(PolicyFile::default().first(Some("{")).is_err());
        let folder = PolicyFile::new(Some(place.path().to_owned()));
        assert!(matches!(
            folder.first(None),
            Err(FirstPolicyError::Read { .. })
        ));
    }

    #[test]
    fn a_policy_counts_once_it_is_committed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("policy.json");
        let file = PolicyFile::new(Some(path.clone()));
        drop(file.stage(&policy()).unwrap());
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
        file.stage(&policy()).unwrap().commit().unwrap();
        assert_eq!(first(&file, None), policy());
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with("{\n  \"egress\": [\n") && text.ends_with("}\n"),
            "{text}"
        );
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        file.stage(&Policy::default()).unwrap().commit().unwrap();
        assert_eq!(mode(), 0o640);
        assert_eq!(first(&file, Some(ALLOW)), Policy::default());
    }

    #[test]
    fn without_a_path_nothing_is_kept() {
        let file = PolicyFile::default();
        file.stage(&policy()).unwrap().commit().unwrap();
        assert_eq!(first(&file, None), Policy::default());
        let nowhere = PolicyFile::new(Some("/nowhere/policy.json".into()));
        assert!(nowhere.stage(&policy()).is_err());
    }
}
