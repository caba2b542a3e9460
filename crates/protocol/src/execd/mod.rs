//! Models of execd, the daemon inside each sandbox (contract: execd §4, §5, §9, §10, §11).
//!
//! | Module | Content |
//! |---|---|
//! | [`command`] | requests and status of `/command` |
//! | [`event`] | the events of a stream |
//! | [`file`] | the filesystem routes |
//! | [`history`] | `/commands/history` |
//! | [`isolated`] | sessions with namespaces of their own |
//! | [`metrics`] | `/metrics` and `/metrics/watch` |
//! | [`port`] | `/ports` |
//! | [`runtime_init`] | `/internal/init` and `/ready` |
//! | [`session`] | shell sessions |
//! | [`pty`] | terminal sessions and their WebSocket frames |

pub mod command;
pub mod event;
pub mod file;
pub mod history;
pub mod isolated;
pub mod metrics;
pub mod port;
pub mod pty;
pub mod runtime_init;
pub mod session;

/// Default port of execd, which every SDK knows.
pub const DEFAULT_PORT: u16 = 44772;

/// Variable with a sandbox's lifecycle hooks, as JSON (contract: execd A9.3).
pub const HOOKS_ENV: &str = "OPENSANDBOX_LIFECYCLE";

/// Variables that configure execd (contract: execd A2.3). They take effect when it starts, so neither
/// `POST /internal/init` nor the environment file sets or removes them.
pub const CONFIGURATION_VARIABLES: [&str; 8] = [
    "EXECD_ACCESS_TOKEN",
    "EXECD_ENVS",
    "EXECD_ISOLATION_CONFIG",
    "EXECD_LIFECYCLE_CONFIG",
    "EXECD_RUNTIME_INIT",
    "JUPYTER_HOST",
    "JUPYTER_TOKEN",
    HOOKS_ENV,
];

/// Most bytes of the body of `POST /internal/init` (contract: execd A9.5).
pub const INIT_BODY_MAX: usize = 1 << 20;

/// Messages in execd's log about a daemon that ends before the entry point has started. The server
/// looks for them in the output of a sandbox that has hooks.
pub mod log_message {
    /// The preStart hook ended with a failure, in member `exit`.
    pub const PRE_START_FAILED: &str = "preStart hook failed";
    /// The preStart hook reached its time limit, in member `limit`. [`PRE_START_FAILED`] follows.
    pub const PRE_START_TIMEOUT: &str = "preStart hook did not end in time";
    /// The hooks are invalid or cannot be started, for the reason in member `error`.
    pub const HOOKS_FAILED: &str = "lifecycle hooks failed";
}

/// Error codes of execd (contract: execd §2.2, §9).
pub mod code {
    #![expect(missing_docs, reason = "the names say it; the contract lists them")]
    pub const INVALID_REQUEST_BODY: &str = "INVALID_REQUEST_BODY";
    pub const MISSING_QUERY: &str = "MISSING_QUERY";
    pub const RUNTIME_ERROR: &str = "RUNTIME_ERROR";
    pub const INVALID_FILE: &str = "INVALID_FILE";
    pub const INVALID_FILE_CONTENT: &str = "INVALID_FILE_CONTENT";
    pub const INVALID_FILE_METADATA: &str = "INVALID_FILE_METADATA";
    pub const FILE_NOT_FOUND: &str = "FILE_NOT_FOUND";
    pub const FILESYSTEM_IDENTITY_UNAVAILABLE: &str = "FILESYSTEM_IDENTITY_UNAVAILABLE";
    pub const SERVICE_UNAVAILABLE: &str = "SERVICE_UNAVAILABLE";
    pub const SESSION_NOT_FOUND: &str = "SESSION_NOT_FOUND";
    pub const NOT_SUPPORTED: &str = "NOT_SUPPORTED";
    pub const TOO_MANY_SESSIONS: &str = "TOO_MANY_SESSIONS";
    pub const CONTEXT_NOT_FOUND: &str = "CONTEXT_NOT_FOUND";
    pub const UNAUTHORIZED: &str = "UNAUTHORIZED";
    pub const UNKNOWN: &str = "UNKNOWN";
    pub const ALREADY_CONNECTED: &str = "ALREADY_CONNECTED";
    pub const ALREADY_INITIALIZED: &str = "ALREADY_INITIALIZED";
    pub const START_FAILED: &str = "START_FAILED";
    pub const STDIN_WRITE_FAILED: &str = "STDIN_WRITE_FAILED";
    pub const INVALID_FRAME: &str = "INVALID_FRAME";
    pub const READ_ONLY: &str = "READ_ONLY";
    pub const VIEWER_REQUIRES_RUNNING_SESSION: &str = "VIEWER_REQUIRES_RUNNING_SESSION";
}
