//! The real daemon, started as a child process, spoken to over real HTTP and WebSockets.
#![expect(
    clippy::unwrap_used,
    reason = "a test that fails shall panic, helpers included"
)]

mod clone3;
mod command;
mod events;
mod fault;
mod file;
mod hardening;
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
mod server;
mod session;
mod support;
mod telemetry;
