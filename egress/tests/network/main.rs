//! The sidecar in network namespaces with real sockets. Needs root, `ip` and `nft`.
#![expect(
    clippy::unwrap_used,
    reason = "a failing test should panic, also in helpers"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "these tests have no runtime whose threads `sleep` could block"
)]

mod answers;
mod changes;
mod claims;
mod client;
mod escapes;
mod internet;
mod policies;
mod queries;
mod reports;
mod supervised;
mod world;
