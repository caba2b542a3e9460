//! The daemon inside each sandbox.
