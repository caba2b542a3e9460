//! Lookup of programs by the shell's rules, in a given `PATH`.

use std::{
    ffi::OsStr,
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Search path if `PATH` is not set.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Finds a program (contract: execd A2.1): an absolute path as it is, a name with `/` relative to
/// `cwd`, a bare name in the absolute entries of `path`.
///
/// # Errors
/// `NotFound`, or `PermissionDenied` if it exists but is not executable.
pub fn find(name: &OsStr, path: Option<&OsStr>, cwd: Option<&Path>) -> io::Result<PathBuf> {
    let as_path = Path::new(name);
    if name.as_encoded_bytes().contains(&b'/') {
        let full = match cwd {
            Some(cwd) => cwd.join(as_path),
            None => as_path.to_owned(),
        };
        return executable(&full).map(|()| full);
    }
    let mut refused = io::Error::new(
        io::ErrorKind::NotFound,
        "executable file not found in $PATH",
    );
    for place in std::env::split_paths(path.unwrap_or_else(|| DEFAULT_PATH.as_ref())) {
        if !place.is_absolute() {
            continue;
        }
        let full = place.join(as_path);
        match executable(&full) {
            Ok(()) => return Ok(full),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => refused = error,
            Err(_) => {}
        }
    }
    Err(refused)
}

fn executable(path: &Path) -> io::Result<()> {
    let meta = path.metadata()?;
    if meta.is_dir() || meta.permissions().mode() & 0o111 == 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "permission denied",
        ));
    }
    Ok(())
}

/// Finds the shell for command texts: `bash`, else `sh`. Searches `path`, which the user may set to
/// anything, then the daemon's own `PATH`, then the default one: without a shell the user could not
/// repair `PATH`.
///
/// # Errors
/// When none of them contains either shell.
pub fn shell(path: Option<&OsStr>) -> io::Result<PathBuf> {
    let own = std::env::var_os("PATH");
    let paths = [path, own.as_deref(), Some(DEFAULT_PATH.as_ref())];
    shell_in(paths.into_iter().flatten())
}

fn shell_in<'a>(mut paths: impl Iterator<Item = &'a OsStr>) -> io::Result<PathBuf> {
    let named = |name: &str, path| find(name.as_ref(), Some(path), None);
    let found = paths.find_map(|path| named("bash", path).or_else(|_| named("sh", path)).ok());
    found.ok_or_else(|| {
        let text = "no shell: neither bash nor sh is in $PATH; use argv";
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs};

    use super::*;

    #[test]
    fn names_are_found_in_absolute_entries_only() {
        let place = tempfile::tempdir().unwrap();
        let make = |name: &str, mode| {
            let path = place.path().join(name);
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        let run = make("run", 0o755);
        let plain = make("plain", 0o644);
        fs::create_dir(place.path().join("dir")).unwrap();
        let path = OsString::from(format!(".::{}", place.path().display()));
        let find = |name: &str| find(name.as_ref(), Some(&path), Some(place.path()));
        assert_eq!(find("run").unwrap(), run);
        assert_eq!(find("./run").unwrap(), place.path().join("./run"));
        assert_eq!(find(run.to_str().unwrap()).unwrap(), run);
        let kind = |name: &str| find(name).unwrap_err().kind();
        assert_eq!(kind("plain"), io::ErrorKind::PermissionDenied);
        assert_eq!(
            kind(plain.to_str().unwrap()),
            io::ErrorKind::PermissionDenied
        );
        assert_eq!(kind("dir"), io::ErrorKind::PermissionDenied);
        assert_eq!(kind("absent"), io::ErrorKind::NotFound);
    }

    #[test]
    fn an_image_may_have_no_shell() {
        let empty = tempfile::tempdir().unwrap();
        let empty = empty.path().as_os_str();
        assert!(shell_in([empty, empty].into_iter()).is_err());
    }

    #[test]
    fn the_shell_does_not_depend_on_the_user_s_path() {
        let empty = tempfile::tempdir().unwrap();
        for path in [None, Some(empty.path().as_os_str()), Some("".as_ref())] {
            let shell = shell(path).unwrap();
            assert!(shell.ends_with("bash") || shell.ends_with("sh"));
        }
        let place = tempfile::tempdir().unwrap();
        let own = place.path().join("sh");
        fs::write(&own, "").unwrap();
        fs::set_permissions(&own, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(shell(Some(place.path().as_os_str())).unwrap(), own);
    }
}
