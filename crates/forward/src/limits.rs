//! Timeouts and bounds of the forwarder.

use std::time::Duration;

/// Header lines of one request: several times what common clients send. The library prepares room
/// for all of them before each message; with 1,024 that was a tenth of the cost of a small request.
/// A server in front of a forwarder must accept as many, or requests never reach it.
pub const MAX_HEADERS: usize = 256;

/// Header lines of one response. Programs send more of them than clients do: a cookie, a link or a
/// policy each. In bytes, the library's own bound holds for a head, about 400 KiB.
const MAX_RESPONSE_HEADERS: usize = 1000;

/// Bounds of one [`Forwarder`](crate::Forwarder).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest time to open a TCP connection to the backend.
    pub connect: Duration,
    /// Pauses before further attempts when a connection is refused or reset while it is opened. No
    /// byte of the request has left by then.
    pub refused: &'static [Duration],
    /// Longest silence: nothing of the request goes out and nothing of the response comes in, although
    /// the backend could answer ([`Lease::with_silence`](crate::Lease::with_silence)). `None` waits for as long as both sides stay connected. For tunnels see below.
    pub idle: Option<Duration>,
    /// Longest silence of a tunnel, in both directions at once. `None` lets it be silent for as long
    /// as both sides stay connected.
    pub tunnel_idle: Option<Duration>,
    /// How long an unused connection is kept for the next request.
    pub keep: Duration,
    /// Unused connections kept for each backend. Connections in use are not limited here: a limit
    /// would let slow streams starve other clients.
    pub keep_per_backend: usize,
    /// Header lines of a response. One with more is [`ForwardError::Response`](crate::ForwardError).
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            refused: &[],
            // contract: lifecycle §7, read timeout
            idle: Some(Duration::from_secs(180)),
            tunnel_idle: None,
            // Shorter than the five seconds after which common application servers disconnect, so
            // that a request seldom uses a connection that is being closed.
            keep: Duration::from_secs(4),
            keep_per_backend: 32,
            headers: MAX_RESPONSE_HEADERS,
        }
    }
}
