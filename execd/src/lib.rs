//! The daemon inside each sandbox: runs commands, transfers files, serves terminals, reports
//! resources, and, as init, supervises the user's entry point (contract: execd).
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
//! From top to bottom; a module uses only those below it (ARCHITECTURE.md has the arrows).
//!
//! | Module | What it owns |
//! |---|---|
//! | [`cli`], [`clone3`] | flags, and what they mean together with the environment; hiding a system call that some tracers do not know |
//! | [`daemon`] | the order of start and stop |
//! | [`server`] | connections, routes, tokens, request ids |
//! | [`app`] | the state of the routes: the base and what each feature keeps |
//! | | **Features** |
//! | [`command`] | `/command`: runs, records, interrupts |
//! | [`session`] | `/session`: variables and a directory that outlive their runs |
//! | [`init`] | the user's entry point |
//! | [`runtime_init`] | the late claim of a warm sandbox |
//! | [`hook`] | programs before the entry point, and at times |
//! | [`isolated`] | sessions with namespaces of their own |
//! | [`pty`] | terminal sessions |
//! | [`file_worker`], [`file`] | files and directories as another user, and as the daemon's |
//! | [`proxy`] | the user's own servers |
//! | | **What they share** |
//! | [`base`] | the parts of the daemon that all features are given |
//! | [`telemetry`] | metrics for a collector, where one is named |
//! | [`metrics`] | the sandbox's resources, also as routes |
//! | [`output`] | from a process's pipes to a client's stream |
//! | [`process`], [`signals`] | spawning, signalling and reaping every child; signals to the daemon |
//! | [`hardening`], [`identity`] | what every process of the user has to do without; users and groups |
//! | [`env`], [`path`], [`request`] | variables, paths and rules of requests |
//! | `links`, `view` | which links paths may follow, and which paths of an isolated session requests may name |
//! | | **Leaves** |
//! | [`config`], [`log`] | the isolation file; where the log goes |
//! | [`http`], [`json`], [`error`] | queries, bodies, and what a request can fail with |
//! | [`kernel_path`] | absolute paths, `..` behind links, directories that are made |
//! | [`blocking`], [`scratch`] | work that blocks; files without a name |
//! | `script` | a client's text between commands of the daemon, as input of a shell |
//! | [`heap`], `idle` | giving memory back; ending sessions that clients left behind |
//! | `duration`, [`limits`] | durations in Go's form; every bound |
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
pub mod heap;
pub mod hook;
pub mod http;
pub mod identity;
mod idle;
pub mod init;
pub mod isolated;
pub mod json;
pub mod kernel_path;
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
mod script;
pub mod server;
pub mod session;
pub mod signals;
pub mod telemetry;
mod view;
