//! The control plane: REST API, domain and console host.
#![forbid(unsafe_code)]

pub mod config;
pub mod sandbox;
