//! State of the routes. Each handler takes the parts that it uses.

use std::sync::Arc;

use axum::extract::FromRef;
use osb_forward::Forwarder;
use osb_service::Supervisor;

use crate::{
    base::Base,
    command::Commands,
    history::CommandHistory,
    isolated::{IsolatedSessions, Isolation},
    metrics::Meter,
    proxy,
    pty::PtySessions,
    runtime_init::RuntimeInit,
    session::ShellSessions,
};

/// State of the daemon. Clones share it.
#[derive(Clone, Debug, FromRef)]
pub struct App {
    /// State shared by all features.
    pub base: Base,
    /// All commands.
    pub commands: Commands,
    /// All terminal sessions.
    pub ptys: PtySessions,
    /// All shell sessions.
    pub sessions: ShellSessions,
    /// All isolated sessions, with their context.
    pub isolation: Isolation,
    /// Late claim of a warm sandbox.
    pub runtime_init: RuntimeInit,
    /// Forwards requests to the user's own servers.
    pub forwarder: Forwarder,
}

impl App {
    /// Creates the state of a daemon without commands and sessions.
    #[must_use]
    pub fn new(base: Base, runtime_init: RuntimeInit) -> Self {
        Self {
            commands: Commands::new(base.outputs.memory_of_ended()),
            ptys: PtySessions::default(),
            sessions: ShellSessions::default(),
            isolation: Isolation {
                base: base.clone(),
                sessions: IsolatedSessions::default(),
            },
            runtime_init,
            forwarder: proxy::forwarder(&base.tasks),
            base,
        }
    }
}

impl FromRef<App> for Arc<Meter> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.base.meter)
    }
}

impl FromRef<App> for Arc<CommandHistory> {
    fn from_ref(app: &App) -> Self {
        Self::clone(&app.base.history)
    }
}

impl FromRef<App> for Supervisor {
    fn from_ref(app: &App) -> Self {
        app.base.tasks.clone()
    }
}
