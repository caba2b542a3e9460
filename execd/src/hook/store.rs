//! Where hooks are kept from one start to the next.

use std::{
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use super::config::Lifecycle;
use crate::{
    env::{Variables, names},
    hardening::ProcessHardening,
    limits,
};

/// Where, unless the environment says otherwise, below the home directory.
const DEFAULT: &str = ".execd/lifecycle.toml";

/// Where they are kept. `None` without a home directory.
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

/// Whether the environment says where.
pub(super) fn is_named(own: &Variables) -> bool {
    own.get(names::HOOKS_FILE)
        .is_some_and(|value| !value.is_empty())
}

/// Keeps hooks, readable by the daemon's user alone: their commands may hold secrets. Tells why the
/// next start will not believe them, if so.
///
/// # Errors
/// When they cannot be written.
pub(super) fn keep(
    path: &Path,
    hooks: &Lifecycle,
    hardening: &ProcessHardening,
) -> io::Result<Option<io::Error>> {
    let text = toml::to_string(hooks).map_err(io::Error::other)?;
    if let Some(parent) = path.parent() {
        // Whatever the mask is, nobody else puts other hooks there.
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
        // It may not even have been made.
        let _gone = fs::remove_file(&temporary);
    }
    written.map(|()| kept(path, hardening).err())
}

/// What was kept, if anything was.
///
/// # Errors
/// When it cannot be read, or somebody may have written it who has fewer rights than hooks.
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

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, sync::Arc};

    use super::*;
    use crate::{config::IsolationConfig, env::Environment, hardening::Doubt};

    #[test]
    fn what_is_kept_is_private_and_replaced_whole() {
        let place = tempfile::tempdir().unwrap();
        let own = Variables::from_iter([("HOME", place.path())]);
        let path = path(&own).unwrap();
        assert_eq!(path, place.path().join(".execd/lifecycle.toml"));
        let hardening = ProcessHardening::default();
        assert_eq!(kept(&path, &hardening).unwrap(), None);
        let hooks = Lifecycle::read(r#"{"preStart":{"command":["a"]}}"#).unwrap();
        for _ in 0..2 {
            let doubt = keep(&path, &hooks, &hardening).unwrap();
            assert!(doubt.is_none(), "{doubt:?}");
            let text = kept(&path, &hardening).unwrap().unwrap();
            assert_eq!(Lifecycle::read(&text).unwrap(), hooks);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        assert!(kept(place.path(), &hardening).is_err(), "a directory");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        let refused = kept(&path, &hardening).unwrap_err().to_string();
        assert_eq!(refused, Doubt::Mode.to_string());
    }

    #[test]
    fn what_the_next_start_will_not_believe_is_told_when_it_is_kept() {
        let place = tempfile::tempdir_in("/var/lib").unwrap();
        let path = place.path().join("own/hooks.toml");
        let hooks = Lifecycle::default();
        for (writable, told) in [
            (vec![], None),
            (vec![place.path()], Some(Doubt::WithinReach.to_string())),
        ] {
            let environment = Environment::new(Variables::default());
            let config = IsolationConfig {
                allowed_writable: writable.iter().map(PathBuf::from).collect(),
                ..IsolationConfig::default()
            };
            let hardening = ProcessHardening::new(&config, &Arc::new(environment));
            let doubt = keep(&path, &hooks, &hardening).unwrap();
            assert_eq!(doubt.map(|doubt| doubt.to_string()), told, "{writable:?}");
        }
    }
}
