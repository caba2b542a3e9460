//! The daemon inside each sandbox: runs commands, transfers files, serves terminals, reports
//! resources, and, as init, supervises the user's entry point (contract: execd).
//!
//! ```text
//!   client ──HTTP──▶ server ─▶ command ─┐
//!                      │    ─▶ pty     ─┼─▶ process ──▶ children
//!                      │    ─▶ init    ─┘     ▲
//!                      │    ─▶ file           └── reaps all of them
//!                      │    ─▶ metrics
//!                      └───▶ proxy ──▶ the user's own servers on the loopback
//! ```
//!
//! Modules from top to bottom. A module uses only modules below it; ARCHITECTURE.md lists the
//! dependencies.
//!
//! | Module | Contents |
//! |---|---|
//! | [`cli`], [`clone3`] | flags and environment variables; hiding a system call that some tracers do not know |
//! | [`daemon`] | order of startup and shutdown |
//! | [`server`] | connections, routes, tokens, request ids |
//! | [`app`] | state of the routes: the base, and the state of each feature |
//! | | **Features** |
//! | [`command`] | `/command`: runs, records, interrupts |
//! | [`session`] | `/session`: variables and a directory that persist between runs |
//! | [`init`] | supervision of the user's entry point |
//! | [`runtime_init`] | late claim of a warm sandbox |
//! | [`hook`] | programs that run before the entry point or on a schedule |
//! | [`isolated`] | sessions with namespaces of their own |
//! | [`pty`] | terminal sessions |
//! | [`file_worker`], [`file`] | files and directories, with another identity or the daemon's |
//! | [`proxy`] | requests to the user's own servers |
//! | | **Shared by features** |
//! | [`base`] | state that all features share |
//! | [`telemetry`] | metrics for a collector, if one is configured |
//! | [`metrics`] | resource use of the sandbox, with its routes |
//! | [`output`] | transfer from a process's pipes to a client's stream |
//! | [`process`], [`signals`] | spawning, signalling and reaping every child; signals to the daemon |
//! | [`hardening`], [`identity`] | restrictions of the user's processes; users and groups |
//! | [`env`], [`path`], [`request`] | variables, paths and rules of requests |
//! | `links`, `view` | links that paths may follow; paths of an isolated session that requests may name |
//! | | **Leaves** |
//! | [`config`], [`log`] | isolation file; outputs of the log |
//! | [`http`], [`json`], [`error`] | queries, bodies, and errors of requests |
//! | [`kernel_path`] | absolute paths, `..` behind links, creation of directories |
//! | [`blocking`], [`scratch`] | blocking work; unlinked temporary files |
//! | `script` | a client's code between commands of the daemon, as input of a shell |
//! | `idle` | end of unused sessions |
//! | `duration`, [`limits`] | durations in Go's format; all limits |
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
pub mod history;
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
pub mod mount_check;
pub mod output;
pub mod path;
pub mod ports;
pub mod process;
pub mod proxy;
pub mod pty;
mod removal;
pub mod request;
pub mod runtime_init;
pub mod scratch;
mod script;
pub mod server;
pub mod session;
pub mod signals;
pub mod telemetry;
mod tunnel;
mod view;
