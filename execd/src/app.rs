//! The state of the routes. Each handler takes the parts of it that it uses.

use std::sync::Arc;

use axum::extract::FromRef;
use osb_forward::Forwarder;
use osb_service::Supervisor;

use crate::{
    base::Base,
    command::Commands,
    isolated::{IsolatedSessions, Isolation},
    metrics::Meter,
    proxy,
    pty::Sessions as Ptys,
    runtime_init::RuntimeInit,
    session::Sessions,
};

/// The daemon's state. Clones share it.
#[derive(Clone, Debug, FromRef)]
pub struct App {
    /// What all features share.
    pub base: Base,
    /// All commands.
    pub commands: Commands,
    /// All terminal sessions.
    pub ptys: Ptys,
    /// All shell sessions.
    pub sessions: Sessions,
    /// All isolated sessions, with what they work with.
    pub isolation: Isolation,
    /// Whether it is known yet for whom all of this is.
    pub runtime_init: RuntimeInit,
    /// Reaches the user's own servers.
    pub forwarder: Forwarder,
}

impl App {
    /// A daemon that has no commands and no sessions yet.
    #[must_use]
    pub fn new(base: Base, runtime_init: RuntimeInit) -> Self {
        Self {
            commands: Commands::new(base.outputs.memory_of_ended()),
            ptys: Ptys::default(),
            sessions: Sessions::default(),
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

impl FromRef<App> for Supervisor {
    fn from_ref(app: &App) -> Self {
        app.base.tasks.clone()
    }
}
