//! Values that a form begins with, and examples in its texts.

/// The image of this project.
pub(super) const BASE_IMAGE: &str = "opensandbox/base:latest";
/// A small public image that has the default entry point.
pub(super) const PUBLIC_IMAGE: &str = "debian:bookworm-slim";
/// Entry point of images that bring none of their own.
pub(super) const IDLE: &str = "tail -f /dev/null";
