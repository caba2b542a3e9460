//! Tests of the real daemon as a child process, over real HTTP and WebSockets.
#![expect(
    clippy::unwrap_used,
    reason = "a failing test should panic, also in helpers"
)]

mod clone3;
mod command;
mod events;
mod fault;
mod file;
mod hardening;
mod history;
mod hook;
mod identity;
mod init;
mod isolated;
mod log;
mod masked;
mod output;
mod proxy;
mod pty;
mod runtime_init;
mod script;
mod server;
mod session;
mod support;
mod telemetry;
mod tunnel;
