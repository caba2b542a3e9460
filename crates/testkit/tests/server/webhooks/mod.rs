//! Webhooks on the wire: what receivers get, when, and what administrators see.

mod addresses;
mod events;
mod failures;
mod limits;
mod log;
mod management;
mod restart;
mod support;
mod tls;
