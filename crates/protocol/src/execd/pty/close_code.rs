//! Close codes of a terminal's WebSocket: those of execd, which the server's bridge passes on to
//! the page, and the bridge's own.
//!
//! | Code | Sent by | Meaning |
//! |---|---|---|
//! | 1000 | execd | the process ended, or the session was deleted |
//! | 1001 | execd | execd stops |
//! | 1002 | execd | a frame breaks the protocol |
//! | 1007 | execd | a text frame is not UTF-8 |
//! | 1008 | execd | the client keeps breaking the rules |
//! | 1009 | execd | a message is longer than execd takes |
//! | 1011 | execd | the session could not start or continue |
//! | 4001 | execd | another client took the session over |
//! | 4400 | bridge | the terminal cannot be opened; the reason says why |
//! | 4401 | bridge | the console's session ended |
//! | 4404 | bridge | execd does not know the session (any more) |
//! | 4409 | bridge | another client holds the session |

/// The process ended, or the session was deleted.
pub const NORMAL: u16 = 1000;
/// Execd stops.
pub const GOING_AWAY: u16 = 1001;
/// A frame breaks the protocol.
pub const PROTOCOL_ERROR: u16 = 1002;
/// A message of a kind that is not expected, such as text in a tunnel (RFC 6455 §7.4.1).
pub const UNSUPPORTED: u16 = 1003;
/// Stands for a close frame without a code; never sent (RFC 6455 §7.4.1).
pub const NO_STATUS: u16 = 1005;
/// A text frame is not UTF-8.
pub const INVALID_TEXT: u16 = 1007;
/// The client keeps breaking the rules: a viewer that writes.
pub const POLICY_VIOLATION: u16 = 1008;
/// A message is longer than execd takes.
pub const TOO_LONG: u16 = 1009;
/// The session could not start or continue.
pub const INTERNAL_ERROR: u16 = 1011;
/// Another client took the session over.
pub const TAKEN_OVER: u16 = 4001;
/// The terminal cannot be opened; the reason says why.
pub const REFUSED: u16 = 4400;
/// The console's session ended.
pub const SIGNED_OUT: u16 = 4401;
/// Execd does not know the session (any more).
pub const UNKNOWN_SESSION: u16 = 4404;
/// Another client holds the session.
pub const HELD: u16 = 4409;
