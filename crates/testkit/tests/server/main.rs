//! The server over the simulated runtime, on the wire. Every test here passes on every store, and
//! beside every other one in the same process.
#![expect(
    clippy::unwrap_used,
    reason = "a test helper that cannot go on fails the test"
)]

mod access;
mod audit;
mod creates;
mod diagnostics;
mod lifecycle_api;
mod metrics;
mod network_policy;
mod operation;
mod pause;
mod pool_rules;
mod pools;
mod powers;
mod previews;
mod proxy;
mod quotas;
mod recovery;
mod revocation;
mod roles;
mod secure_runtime;
mod snapshots;
mod store_faults;
mod surface;
mod templates;
mod tenants;
mod warm_sidecars;
mod webhooks;
