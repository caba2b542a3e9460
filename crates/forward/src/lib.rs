//! A streaming reverse proxy for HTTP/1.1 and for protocols reached by `Upgrade`.
//!
//! ```text
//!            HeaderRules            connection pool
//!  request ──────────────▶ Forwarder ───────────────▶ backend
//!          ◀────────────── Forwarder ◀───────────────
//!                             │ 101
//!                             └──▶ tunnel: bytes both ways until either side or the process ends
//! ```
//!
//! Guarantees (contract: lifecycle §7, §8, §28; execd §12):
//!
//! * Path and query reach the backend byte for byte ([`Target`]); repeated headers stay separate
//!   lines; nothing is invented (no `Accept-Encoding`, no `User-Agent`) and nothing is decoded.
//! * Bodies of any method are streamed both ways, one frame at a time, at the reader's pace.
//! * A connection that an earlier request left serves GET, HEAD and OPTIONS without a body only; if it
//!   breaks before the response, the request is sent once more. Any other request gets a new connection
//!   and is sent once.
//! * Where nothing listens, a request may take another way ([`Detour`]), before anything of it is sent.
//! * A caller can end an exchange at any point, tunnels included ([`Lease::until`]); a WebSocket gets a
//!   close frame then.
//! * Silence does not count while the backend cannot answer ([`CountSilence`]).
//! * A WebSocket whose other side vanishes gets a close frame.
//! * When the client disconnects, the backend connection is closed, also before the response head.
//! * Redirects are passed on, never followed; environment variables for proxies are not read.
//! * Errors name the party at fault but never the backend's address ([`ForwardError`]).
//!
//! HTTP/2 clients are served, except for WebSocket over HTTP/2 (RFC 8441).
#![warn(missing_docs)]
#![forbid(unsafe_code)]

mod activity;
mod body;
mod detour;
mod error;
mod forwarder;
mod headers;
mod lease;
mod limits;
mod patience;
mod pool;
mod request_body;
mod rules;
mod socket;
mod target;
mod tunnel;
mod turn;
mod websocket;

pub use body::BodyError;
pub use detour::Detour;
pub use error::{Awaited, ForwardError, Origin};
pub use forwarder::Forwarder;
pub use lease::{CountSilence, Lease, Silence};
pub use limits::{Limits, MAX_HEADERS};
pub use rules::{Forwarded, HeaderRules, Host, Peer};
pub use target::{Target, after_segments};
