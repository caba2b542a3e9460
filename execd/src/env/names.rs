//! Names of the variables that configure the daemon, and which processes inherit them.

/// Access token of the daemon; no child inherits it.
pub const ACCESS_TOKEN: &str = "EXECD_ACCESS_TOKEN";
/// File whose variables are overlaid on every command.
pub const ENVIRONMENT_FILE: &str = "EXECD_ENVS";
/// Lifecycle hooks, in JSON or TOML.
pub const HOOKS: &str = osb_protocol::execd::HOOKS_ENV;
/// File that stores the lifecycle hooks.
pub const HOOKS_FILE: &str = "EXECD_LIFECYCLE_CONFIG";
/// File that configures isolated sessions and hardening.
pub const ISOLATION_CONFIG: &str = "EXECD_ISOLATION_CONFIG";
/// Whether the daemon rejects requests until `POST /internal/init`; `--runtime-init` takes
/// precedence.
pub const RUNTIME_INIT: &str = "EXECD_RUNTIME_INIT";
/// Id of the sandbox.
pub const SANDBOX: &str = "OPENSANDBOX_ID";

/// Configuration of the daemon, which the user's processes do not inherit (contract: execd A2.3).
/// [`ENVIRONMENT_FILE`] is missing on purpose: the SDK's `set_env` appends to that file from a
/// command.
pub(super) const CONFIGURATION: &[&str] = &[
    ACCESS_TOKEN,
    "JUPYTER_HOST",
    "JUPYTER_TOKEN",
    ISOLATION_CONFIG,
    HOOKS,
    HOOKS_FILE,
    RUNTIME_INIT,
];

/// Configuration that the entry point does not inherit either; it may need the Jupyter token.
pub(super) const NEVER_INHERITED: &[&str] = &[ACCESS_TOKEN, HOOKS, HOOKS_FILE, RUNTIME_INIT];

/// Whether a variable configures the daemon, so that the environment file and orders must not set
/// it.
pub(crate) fn is_configuration(name: &str) -> bool {
    osb_protocol::execd::CONFIGURATION_VARIABLES.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_children_do_not_inherit_cannot_be_set_later() {
        assert!(is_configuration(ENVIRONMENT_FILE));
        for name in CONFIGURATION {
            assert!(is_configuration(name), "{name}");
        }
        let known = CONFIGURATION.len() + 1;
        assert_eq!(osb_protocol::execd::CONFIGURATION_VARIABLES.len(), known);
        assert!(!is_configuration(SANDBOX) && !is_configuration("PATH"));
    }
}
