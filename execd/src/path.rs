//! Paths in requests (contract: execd §2.4).

use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

use crate::{
    env::{Environment, Undefined, Variables, expand},
    error::{ApiError, ApiResult},
    kernel_path::{absolute, must_name_something},
};

/// Expands a path with the daemon's own variables and makes it absolute and normalised.
///
/// A path with `$` that exists under its literal name is not expanded, so that such names are
/// reachable. A leading `~` always means the home directory. A path need not be UTF-8.
///
/// Paths of an isolated session are restricted by the session instead.
///
/// # Errors
/// When the path is empty, contains a NUL, or names an undefined variable.
pub fn resolve(given: impl AsRef<OsStr>, environment: &Environment) -> ApiResult<PathBuf> {
    let given = given.as_ref();
    if let Some(confined) = environment.confine(given) {
        return confined;
    }
    must_name_something(given)?;
    let literal =
        || given.as_bytes().contains(&b'$') && Path::new(given).symlink_metadata().is_ok();
    let expanded = if literal() {
        given.to_owned()
    } else {
        expanded(given, &environment.own()).map_err(|error| ApiError::invalid(error.to_string()))?
    };
    absolute(Path::new(&expanded)).map_err(|error| ApiError::runtime(error.to_string()))
}

/// Replaces variables and `~` in the UTF-8 parts of a path.
fn expanded(given: &OsStr, own: &Variables) -> Result<OsString, Undefined> {
    let mut expanded = Vec::with_capacity(given.len());
    for chunk in given.as_bytes().utf8_chunks() {
        let home = own.text("HOME").filter(|_| expanded.is_empty());
        let text = expand(chunk.valid(), |name| own.text(name), home.as_deref())?;
        expanded.extend_from_slice(text.as_bytes());
        expanded.extend_from_slice(chunk.invalid());
    }
    Ok(OsString::from_vec(expanded))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn existing_names_take_precedence_over_expansion() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("a$B");
        std::fs::write(&odd, "").unwrap();
        let environment = Environment::new(Variables::from_iter([("HOME", "/root"), ("A", "/a")]));
        let resolve = |given: &[u8]| resolve(OsStr::from_bytes(given), &environment);
        assert_eq!(resolve(odd.as_os_str().as_bytes()), Ok(odd));
        assert_eq!(resolve(b"~/x"), Ok(PathBuf::from("/root/x")));
        let bytes = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
        assert_eq!(resolve(b"~/\xff$A~/\xfe"), Ok(bytes(b"/root/\xff/a~/\xfe")));
        for bad in [&b""[..], b"a\0b", b"/x/$UNDEFINED", b"\xff$UNDEFINED"] {
            let refused = resolve(bad);
            assert!(matches!(refused, Err(ApiError::Invalid(_))), "{bad:?}");
        }
    }
}
