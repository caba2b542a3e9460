//! State that every feature of the daemon shares.

use std::sync::Arc;

use osb_service::Supervisor;

use crate::{
    env::{Environment, Variables},
    history::CommandHistory,
    identity::{Accounts, Credentials},
    metrics::Meter,
    output::Outputs,
    process::Processes,
    telemetry::Telemetry,
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

    /// Variables of a process that runs as this user. `HOME`, and `USER` and `LOGNAME` where the
    /// daemon has them, describe that user, unless the environment file sets them.
    #[must_use]
    pub(crate) fn variables_of(&self, uid: u32) -> Variables {
        let mut variables = self.environment.for_user();
        if uid == Credentials::own().uid {
            return variables;
        }
        let own = self.environment.own();
        let names = self.accounts.names();
        let name = names.user(uid);
        for (variable, value) in [
            ("HOME", names.home(uid)),
            ("USER", name.as_str()),
            ("LOGNAME", name.as_str()),
        ] {
            let is_set = variable == "HOME" || own.get(variable).is_some();
            if is_set && variables.get(variable) == own.get(variable) {
                variables.set(variable, value);
            }
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_describe_the_user_that_a_process_runs_as() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let passwd = "root:x:0:0::/root:\nann:x:4000000000:100::/home/ann:\n";
        std::fs::write(at("passwd"), passwd).unwrap();
        let of = |own: &[(&str, &str)], uid: u32| {
            let mut variables = Variables::from_iter(own.iter().copied());
            variables.set("EXECD_ENVS", at("envs"));
            let mut base = Base::new(Environment::new(variables), Supervisor::new());
            base.accounts = Arc::new(Accounts::at(at("passwd"), at("group")));
            let variables = base.variables_of(uid);
            ["HOME", "USER", "LOGNAME"].map(|name| variables.text(name).unwrap_or_default())
        };
        let (ann, unknown) = (4_000_000_000, 4_000_000_001);
        let roots = [("HOME", "/root"), ("USER", "root"), ("LOGNAME", "root")];
        assert_eq!(of(&[], ann), ["/home/ann", "", ""]);
        assert_eq!(of(&roots, ann), ["/home/ann", "ann", "ann"]);
        assert_eq!(of(&roots[..1], unknown), ["/", "", ""]);
        assert_eq!(of(&roots, unknown), ["/", "4000000001", "4000000001"]);
        let own = Credentials::own().uid;
        assert_eq!(of(&roots, own), ["/root", "root", "root"]);
        std::fs::write(at("envs"), "HOME=/data\nUSER=chosen\n").unwrap();
        assert_eq!(of(&roots, ann), ["/data", "chosen", "ann"]);
    }
}
