//! Paths in the query of a request.

use std::ffi::{OsStr, OsString};

use crate::{
    error::{ApiError, ApiResult},
    http::Query,
};

/// Paths of a query, byte for byte.
pub(super) fn paths(query: &Query) -> Vec<OsString> {
    query.all_bytes("path").map(OsStr::to_owned).collect()
}

/// The single path of a query.
pub(super) fn path_of(query: &Query) -> ApiResult<OsString> {
    let path = query.all_bytes("path").next();
    path.filter(|path| !path.is_empty())
        .map(OsStr::to_owned)
        .ok_or_else(|| ApiError::missing_query("path"))
}
