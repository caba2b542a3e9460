//! What everything in the daemon works with.

use std::sync::Arc;

use osb_service::Supervisor;

use crate::{
    env::Environment, identity::Accounts, metrics::Meter, output::Outputs, process::Processes,
    telemetry::Telemetry,
};

/// The parts of the daemon that all its features share. Clones share them too.
#[derive(Clone, Debug)]
pub struct Base {
    /// Variables of the daemon and of what it starts.
    pub environment: Arc<Environment>,
    /// Users and groups of the sandbox.
    pub accounts: Arc<Accounts>,
    /// All children.
    pub processes: Processes,
    /// What all streams together may take.
    pub outputs: Outputs,
    /// Reads resources.
    pub meter: Arc<Meter>,
    /// What is measured for a collector; nothing unless it is started.
    pub telemetry: Telemetry,
    /// All tasks.
    pub tasks: Supervisor,
}

impl Base {
    /// Of a daemon that runs nothing yet.
    #[must_use]
    pub fn new(environment: Environment, tasks: Supervisor) -> Self {
        let meter = Meter::default();
        Self {
            environment: Arc::new(environment),
            accounts: Arc::default(),
            processes: Processes::default(),
            outputs: Outputs::new(meter.memory()),
            meter: Arc::new(meter),
            telemetry: Telemetry::default(),
            tasks,
        }
    }
}
