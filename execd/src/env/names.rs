//! Names of the variables that configure the daemon, and who else gets them.

/// The access token of the daemon; never handed to a child.
pub const ACCESS_TOKEN: &str = "EXECD_ACCESS_TOKEN";
/// The file whose variables are overlaid on every command.
pub const ENVIRONMENT_FILE: &str = "EXECD_ENVS";
/// The lifecycle hooks, in JSON or TOML.
pub const HOOKS: &str = "OPENSANDBOX_LIFECYCLE";
/// The file that keeps the lifecycle hooks.
pub const HOOKS_FILE: &str = "EXECD_LIFECYCLE_CONFIG";
/// The file that configures isolated sessions and hardening.
pub const ISOLATION_CONFIG: &str = "EXECD_ISOLATION_CONFIG";
/// Whether the daemon answers nothing until `POST /internal/init`; `--runtime-init` wins over it.
pub const RUNTIME_INIT: &str = "EXECD_RUNTIME_INIT";
/// The id of the sandbox.
pub const SANDBOX: &str = "OPENSANDBOX_ID";

/// What configures the daemon and is no business of the user's processes (contract: execd A2.3).
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

/// The part of it that the entry point does not get either; it may well need the Jupyter token.
pub(super) const NEVER_INHERITED: &[&str] = &[ACCESS_TOKEN, HOOKS, HOOKS_FILE, RUNTIME_INIT];

/// Whether a variable configures the daemon, so that nobody else may set it for everybody.
pub(crate) fn is_configuration(name: &str) -> bool {
    name == ENVIRONMENT_FILE || CONFIGURATION.contains(&name)
}
