//! Where sandboxes run: the Runtime trait and its back ends.
