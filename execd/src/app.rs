//! What every handler shares.

use std::sync::Arc;

use osb_forward::Forwarder;
use osb_service::Supervisor;

use crate::{
    command::Commands, env::Environment, identity::Accounts, isolated::IsolatedSessions,
    metrics::Meter, output::Outputs, process::Processes, proxy, pty::Sessions as Ptys,
    runtime_init::RuntimeInit, session::Sessions, telemetry::Telemetry,
};

/// The daemon's state. Clones share it.
#[derive(Clone, Debug)]
pub struct App {
    /// Variables of the daemon and of what it starts.
    pub environment: Arc<Environment>,
    /// Users and groups of the sandbox.
    pub accounts: Arc<Accounts>,
    /// All children.
    pub processes: Processes,
    /// All commands.
    pub commands: Commands,
    /// What all streams together may take.
    pub outputs: Outputs,
    /// All terminal sessions.
    pub ptys: Ptys,
    /// All shell sessions.
    pub sessions: Sessions,
    /// All isolated sessions.
    pub isolated: IsolatedSessions,
    /// Whether it is known yet for whom all of this is.
    pub runtime_init: RuntimeInit,
    /// Reads resources.
    pub meter: Arc<Meter>,
    /// What is measured for a collector; nothing unless it is started.
    pub telemetry: Telemetry,
    /// Reaches the user's own servers.
    pub forwarder: Forwarder,
    /// All tasks.
    pub tasks: Supervisor,
}

impl App {
    /// A daemon that runs nothing yet.
    #[must_use]
    pub fn new(environment: Environment, tasks: Supervisor) -> Self {
        let meter = Meter::default();
        let outputs = Outputs::new(meter.memory());
        Self {
            environment: Arc::new(environment),
            accounts: Arc::default(),
            processes: Processes::default(),
            commands: Commands::new(outputs.memory_of_ended()),
            outputs,
            ptys: Ptys::default(),
            sessions: Sessions::default(),
            isolated: IsolatedSessions::default(),
            runtime_init: RuntimeInit::default(),
            meter: Arc::new(meter),
            telemetry: Telemetry::default(),
            forwarder: proxy::forwarder(&tasks),
            tasks,
        }
    }
}
