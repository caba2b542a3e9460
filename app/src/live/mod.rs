//! The tab's one WebSocket, `/console/live`: topics in, snapshots and deltas out.
//!
//! A topic is subscribed to while a component that shows it is mounted. The server answers with a
//! snapshot, then with deltas whose sequence numbers grow by one. After a reconnect the last number
//! is offered: the server replays what was missed, or sends a snapshot when it cannot. A hole in
//! the numbers makes the tab ask for a snapshot too.
//!
//! A tab without a session receives a close code ([`CLOSE_SIGNED_OUT`]), which distinguishes it from
//! a server that is down: the tab stops reconnecting and asks for a new sign-in.

mod link;
mod log;
mod watches;
mod wire;

pub use link::{Link, Live};
pub use log::{LogBatch, LogLine, LogState, LogStream};
pub use wire::{
    CLOSE_SIGNED_OUT, Command, Frame, Gauge, Position, RowChange, RowUse, Samples, Topic,
    says_signed_out,
};
