//! Files and directories (contract: execd §10, A3).
//!
//! Everything here blocks, so it runs on the threads for that ([`crate::blocking`]); large contents travel
//! between them and the connection in pieces, so that a file of any size passes in constant memory.

mod disposition;
mod download;
mod entries;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod glob;
mod info;
mod lines;
mod multipart;
mod permission;
mod range;
mod relocate;
mod replace;
mod routes;
mod target;
mod upload;

pub(crate) use routes::routes;
