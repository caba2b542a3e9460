//! Validation shared by requests that run code (contract: execd §5.1, §6.2).

use std::{io, path::PathBuf, time::Duration};

use crate::{
    env::{Environment, Variables, expand},
    error::{ApiError, ApiResult},
    kernel_path,
};

/// Parses a time limit in milliseconds; 0 means none.
///
/// # Errors
/// 400 when it is negative.
pub fn timeout(millis: Option<i64>) -> ApiResult<Option<Duration>> {
    match u64::try_from(millis.unwrap_or(0)) {
        Ok(0) => Ok(None),
        Ok(millis) => Ok(Some(Duration::from_millis(millis))),
        Err(_) => Err(ApiError::invalid("timeout must not be negative")),
    }
}

/// Rejects a text with a NUL, where the kernel would cut it.
///
/// # Errors
/// 400 when there is one.
pub fn no_nul(text: &str) -> ApiResult<()> {
    match text.contains('\0') {
        true => Err(ApiError::invalid("arguments must not contain NUL")),
        false => Ok(()),
    }
}

/// Resolves a working directory: expanded with the variables of the process, absolute. `None` for
/// an empty one.
///
/// # Errors
/// 400 when it cannot be resolved, or is not a directory.
pub fn working_directory(
    text: Option<&str>,
    variables: &Variables,
    environment: &Environment,
) -> ApiResult<Option<PathBuf>> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    no_nul(text)?;
    let refuse = |why: String| ApiError::invalid(format!("working directory {why}"));
    let cwd = expanded(text, variables, environment)
        .map_err(|why| refuse(format!("cannot be resolved: {why}")))?;
    match cwd.metadata() {
        Ok(meta) if meta.is_dir() => Ok(Some(cwd)),
        Ok(_) => Err(refuse(format!("path is not a directory: {text}"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(refuse(format!("does not exist: {text}")))
        }
        Err(error) => Err(refuse(format!("cannot be used: {text}: {error}"))),
    }
}

/// Expands the variables in a path and makes it absolute.
///
/// # Errors
/// The reason, for people.
pub fn expanded(
    text: &str,
    variables: &Variables,
    environment: &Environment,
) -> Result<PathBuf, String> {
    let home = environment.home();
    let expanded = expand(text, |name| variables.text(name), home.as_deref());
    let expanded = expanded.map_err(|error| error.to_string())?;
    kernel_path::absolute(expanded.as_ref()).map_err(|error| error.to_string())
}
