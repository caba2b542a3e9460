//! Shell sessions (contract: execd §6, A2.5): variables and a working directory that outlive the
//! runs that set them.
//!
//! ```text
//!  POST /session ─▶ store: variables, directory
//!  POST …/run ─▶ api ─▶ run: waits for its turn ─spawn─▶ shell ─▶ output ─▶ client
//!                        ▲                                 │
//!                        └── variables, directory ◀────────┘ reported when the command came to its end
//! ```
//!
//! Every run is a fresh shell. A command that calls `exit`, replaces the shell or is killed leaves
//! the session as it was. A client that leaves ends its run, since no other client knows of it.

mod api;
mod run;
mod script;
mod store;

pub(crate) use api::routes;
pub use run::reserve_numbers;
pub use store::Sessions;
