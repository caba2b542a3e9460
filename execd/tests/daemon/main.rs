//! The real daemon, started as a child process, spoken to over real HTTP and WebSockets.

mod command;
mod file;
mod init;
mod output;
mod proxy;
mod pty;
mod server;
mod support;
