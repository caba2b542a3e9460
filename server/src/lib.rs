//! The control plane: REST API, domain and console host.
//!
//! [`sandbox`] is the domain, [`http`] translates it, [`config`] says how, [`app`] puts the parts
//! together. [`webhooks`] reports events to receivers. [`maintenance`] is what operators do beside the running server.
#![forbid(unsafe_code)]

mod access_queue;
mod address;
pub mod app;
pub mod audit;
pub mod cli;
pub mod config;
pub mod descriptors;
mod durations;
pub mod guard;
mod hosts;
pub mod http;
pub mod identity;
pub mod maintenance;
pub mod manage;
pub mod otel;
mod own_addresses;
mod preview_origin;
pub mod sandbox;
mod trace;
mod wall_clock;
pub mod webhooks;
