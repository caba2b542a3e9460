//! Paths as requests name them (contract: execd §2.4).

use std::path::{Component, Path, PathBuf};

use crate::{
    env::{Environment, expand},
    error::{ApiError, ApiResult},
};

/// Expands a path with the daemon's own variables and makes it absolute and clean.
///
/// A path with `$` that exists exactly as it was sent is taken as it is, so that such names can be
/// reached. A leading `~` always means home.
///
/// Where paths are confined to an isolated session, that decides instead.
///
/// # Errors
/// When it is empty, holds a NUL, or names an undefined variable.
pub fn resolve(text: &str, environment: &Environment) -> ApiResult<PathBuf> {
    if let Some(confined) = environment.confine(text) {
        return confined;
    }
    if text.is_empty() {
        return Err(ApiError::invalid("path must not be empty"));
    }
    if text.contains('\0') {
        return Err(ApiError::invalid("path must not contain NUL"));
    }
    let literal = || text.contains('$') && Path::new(text).symlink_metadata().is_ok();
    let expanded = if literal() {
        text.to_owned()
    } else {
        let own = environment.own();
        expand(text, |name| own.text(name), own.text("HOME").as_deref())
            .map_err(|error| ApiError::invalid(error.to_string()))?
    };
    absolute(Path::new(&expanded)).map_err(|error| ApiError::runtime(error.to_string()))
}

/// Makes a path absolute against the working directory and cleans it lexically.
///
/// # Errors
/// When the working directory is gone.
pub fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    let joined = std::path::absolute(path)?;
    let mut clean = PathBuf::new();
    for component in joined.components() {
        match component {
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    Ok(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::Variables;

    #[test]
    fn absolute_paths_are_clean() {
        let absolute = |path| absolute(Path::new(path)).unwrap();
        assert_eq!(absolute("/a/./b/../c//d/"), Path::new("/a/c/d"));
        assert_eq!(absolute("/../.."), Path::new("/"));
        assert_eq!(absolute("x"), std::env::current_dir().unwrap().join("x"));
    }

    #[test]
    fn names_that_exist_win_over_expansion() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("a$B");
        std::fs::write(&odd, "").unwrap();
        let environment = Environment::new(Variables::from_iter([("HOME", "/root")]));
        let resolve = |text: &str| resolve(text, &environment);
        assert_eq!(resolve(odd.to_str().unwrap()), Ok(odd));
        assert_eq!(resolve("~/x"), Ok(PathBuf::from("/root/x")));
        for bad in ["", "a\0b", "/x/$UNDEFINED"] {
            let refused = resolve(bad);
            assert!(matches!(refused, Err(ApiError::Invalid(_))), "{bad:?}");
        }
    }
}
