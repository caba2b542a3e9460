//! Files and directories (contract: execd §10, A3).
//!
//! All operations block, so they run on blocking threads ([`crate::blocking`]). Contents travel
//! between these threads and the connection in pieces, so that a file of any size takes constant
//! memory.

mod content;
mod disposition;
mod download;
mod entries;
mod find;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod glob;
mod info;
mod lines;
mod multipart;
mod permission;
mod query;
mod range;
mod relocate;
mod replace;
mod routes;
mod target;
mod upload;
mod walk;

pub(crate) use routes::routes;
