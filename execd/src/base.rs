//! State that every feature of the daemon shares.

use std::sync::Arc;

use osb_service::Supervisor;

use crate::{
    env::Environment, history::CommandHistory, identity::Accounts, metrics::Meter, output::Outputs,
    process::Processes, telemetry::Telemetry,
};

/// Shared parts of the daemon. Clones share them too.
#[derive(Clone, Debug)]
pub struct Base {
    /// Variables of the daemon and of the processes it starts.
    pub environment: Arc<Environment>,
    /// Users and groups of the sandbox.
    pub accounts: Arc<Accounts>,
    /// All child processes.
    pub processes: Processes,
    /// Resource limits of all output streams together.
    pub outputs: Outputs,
    /// Resource meter.
    pub meter: Arc<Meter>,
    /// The last commands.
    pub history: Arc<CommandHistory>,
    /// Metrics for a collector; inactive unless started.
    pub telemetry: Telemetry,
    /// All background tasks.
    pub tasks: Supervisor,
}

impl Base {
    /// Creates the state of a daemon that runs nothing yet.
    #[must_use]
    pub fn new(environment: Environment, tasks: Supervisor) -> Self {
        let meter = Meter::default();
        Self {
            environment: Arc::new(environment),
            accounts: Arc::default(),
            processes: Processes::default(),
            outputs: Outputs::new(meter.memory()),
            meter: Arc::new(meter),
            history: Arc::default(),
            telemetry: Telemetry::default(),
            tasks,
        }
    }
}
