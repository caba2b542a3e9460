//! Isolated execution: sessions with their own namespaces, identity and files (contract: execd A4
//! to A8; docs/adr/0005-isolated-execution.md gives the reasons for this design).
//!
//! ```text
//!   client ─▶ api ─▶ session ══ link ══▶ init ─▶ keeper ─▶ shell        a run
//!                      │                   └───▶ file worker            a request for files
//!                      └ the shell's state, the directories written to
//! ```
//!
//! | Module | What it owns |
//! |---|---|
//! | [`api`] | the routes |
//! | [`request`], [`environment`] | the rules of requests |
//! | [`store`], [`session`] | the list of sessions, and the life of each |
//! | [`link`], [`wire`], [`plan`] | what the daemon and a session's init tell each other |
//! | [`init`] | everything inside: mounts, identity, filter, processes |
//! | [`guest`], [`run`], [`background`], [`record`] | runs |
//! | [`shell`] | how a shell's state outlives it |
//! | [`files`] | requests for files; `crate::view` says which paths they may name |
//! | [`upper`], [`overlay`], [`quota`] | directories that take up what sessions write, and how much |
//! | [`changes`], [`diff`], [`commit`] | telling, applying and throwing away what was written |
//! | [`capabilities`] | what can be done; `crate::config` says what may |

mod api;
mod background;
mod capabilities;
mod changes;
mod commit;
mod diff;
mod environment;
mod files;
mod guest;
pub mod init;
mod link;
mod overlay;
mod plan;
mod quota;
mod record;
mod request;
mod run;
mod session;
mod shell;
mod store;
mod upper;
mod wire;

pub(crate) use api::routes;
pub use store::IsolatedSessions;

use crate::base::Base;

/// State of isolated execution. Clones share it.
#[derive(Clone, Debug)]
pub struct Isolation {
    /// State shared by all features.
    pub base: Base,
    /// All isolated sessions.
    pub sessions: IsolatedSessions,
}

/// Background tasks: removes what earlier daemons left, and measures what sessions write.
pub async fn upkeep(isolation: Isolation) {
    let stale = isolation.sessions.take_stale();
    if !stale.is_empty() {
        // Not awaited elsewhere; a panic has been logged.
        let _swept = tokio::task::spawn_blocking(move || upper::sweep(&stale)).await;
    }
    quota::watch(isolation).await;
}
