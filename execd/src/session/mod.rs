//! Shell sessions (contract: execd §6, A2.5): variables and a working directory that persist
//! between runs.
//!
//! ```text
//!  POST /session ─▶ store: variables, directory
//!  POST …/run ─▶ api ─▶ run: waits for its turn ─spawn─▶ shell ─▶ output ─▶ client
//!                        ▲                                 │
//!                        └── variables, directory ◀────────┘ reported when the command completes
//! ```
//!
//! Every run is a fresh shell. A command that calls `exit`, replaces the shell or is killed leaves
//! the session unchanged. A disconnect ends the client's run, because no other client could.

mod api;
mod run;
mod script;
mod store;

pub(crate) use api::routes;
pub use run::reserve_numbers;
pub use store::ShellSessions;
