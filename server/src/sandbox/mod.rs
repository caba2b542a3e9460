//! The domain: what a sandbox is and what may be done with it. No HTTP, no Docker.
//!
//! * [`service`]: create, get, list, delete, renew, patch, endpoints. What the REST API and the
//!   console call.
//! * [`registry`]: every sandbox in memory, fed by the runtime's events; all reads come from it.
//! * [`record`], [`state`]: how the facts about a sandbox become what clients see.
//! * [`lifecycle`]: making and removing, one owner per sandbox.
//! * [`events`]: the runtime's events into the registry.
//! * [`journal`]: history that the store could not take yet. [`ready`]: what an operator asks.
//! * [`answer`], [`once`]: creates whose client goes away, or asks twice.
//! * [`expiry`]: deadlines. [`reconcile`]: what a crash or a fault left behind.
//! * [`validate`]: the rules of a request.

mod answer;
pub mod endpoint;
pub mod error;
mod events;
pub mod expiry;
mod journal;
pub mod lifecycle;
pub mod list;
pub mod once;
mod pause;
mod readiness;
mod ready;
pub mod reconcile;
pub mod record;
pub mod registry;
pub mod service;
pub mod state;
pub mod validate;

pub use answer::Unanswered;
pub use endpoint::{EndpointQuery, Execd, Hosts};
pub use error::Error;
pub use list::{ListQuery, Page};
pub use once::IdempotencyKey;
pub use record::{Facts, Record, StageAt};
pub use registry::{Change, Registry, RuntimeHealth};
pub use service::{Limits, Service};
