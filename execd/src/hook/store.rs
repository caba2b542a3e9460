//! Storage of hooks between starts.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::config::Lifecycle;
use crate::{
    env::{Variables, names},
    hardening::ProcessHardening,
    limits,
};

/// Default file, relative to the home directory.
const DEFAULT: &str = ".execd/lifecycle.toml";

/// Contents of the file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored<'a> {
    sandbox_id: &'a str,
    #[serde(flatten)]
    hooks: &'a Lifecycle,
}

/// The member of the file that names its sandbox.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Owner {
    sandbox_id: String,
}

/// File of the stored hooks. `None` without a home directory.
pub(super) fn path(own: &Variables) -> Option<PathBuf> {
    let set = |name| {
        own.get(name)
            .filter(|value| !value.is_empty())
            .map(Path::new)
    };
    set(names::HOOKS_FILE)
        .map(Path::to_owned)
        .or_else(|| set("HOME").map(|home| home.join(DEFAULT)))
}

/// Whether the environment names the file.
pub(super) fn is_named(own: &Variables) -> bool {
    own.get(names::HOOKS_FILE)
        .is_some_and(|value| !value.is_empty())
}

/// Stores hooks of a sandbox, readable by the daemon's user only: their commands may contain
/// secrets. Returns why the next start will distrust the file, if it will.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn keep(
    path: &Path,
    sandbox: &str,
    hooks: &Lifecycle,
    hardening: &ProcessHardening,
) -> io::Result<Option<io::Error>> {
    let stored = Stored {
        sandbox_id: sandbox,
        hooks,
    };
    let text = toml::to_string(&stored).map_err(io::Error::other)?;
    if let Some(parent) = path.parent() {
        // With any umask, other users must not be able to replace the hooks.
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(parent)?;
    }
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", uuid::Uuid::new_v4().simple()));
    let temporary = path.with_file_name(name);
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The file may not even exist.
        let _gone = fs::remove_file(&temporary);
    }
    written.map(|()| kept(path, hardening).err())
}

/// Loads the stored hooks, if any.
///
/// # Errors
/// When the file is unreadable, or a process with fewer rights than hooks may have written it.
pub(super) fn kept(path: &Path, hardening: &ProcessHardening) -> io::Result<Option<String>> {
    let mut text = String::new();
    let read = hardening
        .open_trusted(path)
        .and_then(|file| file.take(limits::LIFECYCLE_FILE).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sandbox whose hooks a stored text has. `None` if it names none, as a damaged text.
pub(super) fn owner(text: &str) -> Option<String> {
    toml::from_str::<Owner>(text)
        .ok()
        .map(|owner| owner.sandbox_id)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Arc};

    use super::*;
    use crate::{config::IsolationConfig, env::Environment, hardening::DistrustReason};

    #[test]
    fn stored_hooks_are_private_and_replaced_atomically() {
        let place = tempfile::tempdir().unwrap();
        let own = Variables::from_iter([("HOME", place.path())]);
        let path = path(&own).unwrap();
        assert_eq!(path, place.path().join(".execd/lifecycle.toml"));
        let hardening = ProcessHardening::default();
        assert_eq!(kept(&path, &hardening).unwrap(), None);
        let hooks = Lifecycle::read(
            r#"{"preStart":{"command":["a"]},"periodic":[{"schedule":"@daily","command":["b"]}]}"#,
        )
        .unwrap();
        for _ in 0..2 {
            let reason = keep(&path, "s-1", &hooks, &hardening).unwrap();
            assert!(reason.is_none(), "{reason:?}");
            let text = kept(&path, &hardening).unwrap().unwrap();
            assert_eq!(owner(&text).as_deref(), Some("s-1"));
            assert_eq!(Lifecycle::read(&text).unwrap(), hooks);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(kept(place.path(), &hardening).is_err(), "a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let refused = kept(&path, &hardening).unwrap_err().to_string();
        assert_eq!(refused, DistrustReason::Mode.to_string());
    }

    #[test]
    fn hooks_stored_in_an_untrusted_place_are_reported() {
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let path = place.path().join("own/hooks.toml");
        let hooks = Lifecycle::default();
        for (writable, expected) in [
            (vec![], None),
            (
                vec![place.path()],
                Some(DistrustReason::WithinReach.to_string()),
            ),
        ] {
            let environment = Environment::new(Variables::default());
            let config = IsolationConfig {
                allowed_writable: writable.iter().map(PathBuf::from).collect(),
                ..IsolationConfig::default()
            };
            let hardening = ProcessHardening::new(&config, &Arc::new(environment));
            let reason = keep(&path, "s-1", &hooks, &hardening).unwrap();
            assert_eq!(
                reason.map(|reason| reason.to_string()),
                expected,
                "{writable:?}"
            );
        }
    }
}
