//! The daemon inside each sandbox: runs commands, moves files, carries terminals, tells resources,
//! and, as init, stands in front of the user's entry point (contract: execd).
//!
//! ```text
//!   client ──HTTP──▶ server ─▶ command ─┐
//!                      │    ─▶ pty     ─┼─▶ process ──▶ children
//!                      │    ─▶ init    ─┘     ▲
//!                      │    ─▶ file           └── the one place that waits for them
//!                      │    ─▶ metrics
//!                      └───▶ proxy ──▶ the user's own servers on the loopback
//! ```
//!
//! | Module | What it owns |
//! |---|---|
//! | [`cli`] | flags, and what they mean together with the environment |
//! | [`clone3`] | hiding a system call that some tracers do not know |
//! | [`config`] | the isolation file |
//! | [`daemon`] | the order of start and stop |
//! | [`server`] | connections, routes, tokens, request ids |
//! | [`command`] | `/command`: runs, records, interrupts |
//! | [`session`] | `/session`: variables and a directory that outlive their runs |
//! | [`output`] | from a process's pipes to a client's stream |
//! | [`file`] | files and directories |
//! | [`file_worker`] | the same as somebody else |
//! | [`isolated`] | sessions with namespaces of their own |
//! | [`pty`] | terminal sessions |
//! | [`metrics`] | the sandbox's resources |
//! | [`proxy`] | the user's own servers |
//! | [`process`] | spawning, signalling and reaping every child |
//! | [`hardening`] | what every process of the user has to do without |
//! | [`init`] | the user's entry point |
//! | [`hook`] | programs before it, and at times |
//! | [`runtime_init`] | being told only later for whom all of this is |
//! | `duration` | durations in Go's form |
//! | [`env`], [`identity`], [`path`], [`request`] | variables, users, paths and rules of requests |
//! | [`base`] | what all features share |
//! | [`app`] | the state of the routes: the base and what each feature keeps |
//! | [`blocking`] | work that blocks, and how many threads it has |
//! | [`http`] | what handlers share |
//! | `links` | what paths lead to, where the user's processes may have made links |
//! | [`signals`] | signals to the daemon, and passing them on |
//! | `view` | which paths of an isolated session requests may name |
//! | [`log`] | where the log goes; its form and its outputs are in `crates/log` |
//! | [`telemetry`] | metrics for a collector, where one is named |
//! | [`limits`] | every bound |
#![warn(missing_docs)]
#![deny(unsafe_code)]

pub mod app;
pub mod base;
pub mod blocking;
pub mod cli;
pub mod clone3;
pub mod command;
pub mod config;
pub mod daemon;
mod duration;
pub mod env;
pub mod error;
pub mod file;
pub mod file_worker;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod hardening;
pub mod hook;
pub mod http;
pub mod identity;
pub mod init;
pub mod isolated;
pub mod json;
pub mod limits;
mod links;
pub mod log;
pub mod metrics;
pub mod output;
pub mod path;
pub mod process;
pub mod proxy;
pub mod pty;
pub mod request;
pub mod runtime_init;
pub mod scratch;
pub mod server;
pub mod session;
pub mod signals;
pub mod telemetry;
mod view;
