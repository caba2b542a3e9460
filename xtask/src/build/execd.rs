//! execd: one static binary, because it runs in images that may contain nothing else.

use std::path::Path;

use anyhow::Result;

use super::{Profile, native};
use crate::repo::Repo;

/// Builds execd into `dist/execd`.
pub(super) fn build(repo: &Repo, profile: Profile, dist: &Path) -> Result<()> {
    native::build(repo, profile, dist, "osb-execd", "execd")
}
