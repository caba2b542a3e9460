//! Results of the tools for operators.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{StoreError, inspection::InspectionError};

/// Why a tool did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The store is in PostgreSQL, which has tools of its own.
    #[error(
        "the store is in PostgreSQL: save it with pg_dump and put it back with pg_restore \
         (docs/operations.md)"
    )]
    HasOwnTools,
    /// There is no store.
    #[error("{0}: there is no store")]
    NoStore(PathBuf),
    /// There is no file of another server.
    #[error("{0}: there is no such file")]
    NoFile(PathBuf),
    /// A store that is to be replaced is in use.
    #[error("{0}: a server uses this store; stop it, restore, and start it again")]
    InUse(PathBuf),
    /// A file would be overwritten.
    #[error("{0} exists and is not overwritten")]
    Exists(PathBuf),
    /// A file is no store, or is not one that this release can use.
    #[error("{path}: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file cannot be written or replaced.
    #[error("{path}: cannot {op}")]
    File {
        /// The file.
        path: PathBuf,
        /// What was tried.
        op: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The database failed.
    #[error("cannot {op}")]
    Database {
        /// What was tried.
        op: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The store cannot be opened; another server may use it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ToolError {
    pub(crate) fn inspection(path: &Path, error: InspectionError) -> Self {
        match error {
            InspectionError::NoStore => Self::Unusable {
                path: path.to_owned(),
                reason: error.to_string(),
            },
            InspectionError::Query(source) => Self::Database {
                op: "read the store",
                source,
            },
        }
    }
}

/// A file that a tool has written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its path.
    pub path: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where the file that it replaced is now.
    pub replaced: Option<PathBuf>,
}
