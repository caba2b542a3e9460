//! The wire types of the OpenSandbox APIs.
//!
//! Serde types of the lifecycle API and of execd, the names of headers, the error codes, and the
//! small grammars both sides share (labels, resource amounts, timestamps). No I/O happens here and
//! nothing depends on a runtime, so the crate also compiles to wasm for the console.
//!
//! | Module | Contract |
//! |---|---|
//! | [`lifecycle`] | docs/contract.md, lifecycle: models of sandboxes, endpoints, lists |
//! | [`execd`] | docs/contract.md, execd: commands, stream events, files, metrics, PTY frames |
//! | [`audit`] | entries of the audit trail |
//! | [`error`] | error bodies and codes |
//! | [`feature`] | what not every runtime can do |
//! | [`identity`] | roles, users, API keys and sessions |
//! | [`quota`] | quotas and what is used of them |
//! | [`labels`], [`resources`], [`time`] | grammars of metadata, resource amounts and timestamps |
//! | [`webhook`] | subscriptions to events, and their messages |
//! | [`headers`] | header names with a meaning of their own |
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod audit;
pub mod error;
pub mod execd;
pub mod feature;
pub mod headers;
pub mod id;
pub mod identity;
pub mod image;
pub mod labels;
pub mod lifecycle;
pub mod network_policy;
pub mod quota;
pub mod resources;
pub mod time;
pub mod webhook;

pub use error::{ErrorBody, FieldError};
pub use feature::{Feature, FeatureSet};
pub use id::SandboxId;
pub use time::WireTime;
