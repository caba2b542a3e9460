//! HTTP: extract, call the domain, map the error. No rule about sandboxes lives here.
//!
//! ```text
//!             ┌ request id ─ client ─ host ─ overload ─ panic guard ┐
//!  connection ┤  /console/…      session, no CORS   ├─▶ console
//!   (serve)   │  /…/proxy/…      CORS, no key       ├─▶ proxy ─▶ sandbox
//!             │  /v1/… and /…    CORS, API key      ├─▶ lifecycle
//!             └  /health /docs … CORS, no key       ┘
//! ```

mod access;
mod access_log;
mod account_acts;
mod accounts;
mod app;
mod audit;
mod audited;
mod auth;
mod caller;
mod client;
mod connections;
pub mod console;
mod cors;
mod delivery;
mod docs;
mod edge;
pub mod error;
mod error_codes;
mod extract;
mod fields;
mod gate;
mod host;
pub mod lifecycle;
pub mod measure;
mod metrics;
mod openapi;
mod origin;
mod overload;
mod proxy;
mod quotas;
mod request_id;
pub mod router;
pub mod serve;
mod sign_in;
mod stall;
mod system;
mod throttle;
pub mod tls;
mod watchers;
mod webhooks;

pub use access::{Effect, effect, least_role};
pub use access_log::AccessLog;
pub use app::{AppParts, AppState};
pub use client::TrustedProxies;
pub use edge::EdgeRules;
pub use host::AllowedHosts;
pub use openapi::document;
pub use overload::{Capacities, Limits};
pub(crate) use proxy::limits as proxy_limits;
pub use proxy::{Previews, preview_router};
pub use router::{metrics_router, router, routes};
pub use throttle::Throttle;
