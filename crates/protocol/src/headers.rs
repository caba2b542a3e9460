//! Names of the headers that carry meaning on the OpenSandbox APIs, in lower case, as HTTP/2 and
//! the `http` crate require.

/// API key of the lifecycle API.
pub const API_KEY: &str = "open-sandbox-api-key";
/// Request id: echoed when the client sent one, generated otherwise.
pub const REQUEST_ID: &str = "x-request-id";
/// Token of one sandbox's execd; handed out with the endpoint.
pub const EXECD_ACCESS_TOKEN: &str = "x-execd-access-token";
/// On a 502 of execd's proxy: no program accepts connections on the port.
pub const EXECD_NO_PROGRAM: &str = "x-execd-no-program";
/// Token of one sandbox's egress sidecar; handed out with the endpoint.
pub const EGRESS_AUTH: &str = "opensandbox-egress-auth";
/// Token of a sandbox with secure access (Kubernetes gateway).
pub const SECURE_ACCESS: &str = "opensandbox-secure-access";
/// Routes a request through the gateway to one sandbox port.
pub const INGRESS_TO: &str = "opensandbox-ingress-to";
/// `skip` keeps a proxied request from renewing the sandbox.
pub const ACCESS_RENEW: &str = "opensandbox-access-renew";
/// The SDK host's own address: informational, never used for decisions.
pub const CLIENT_IP: &str = "open-sandbox-client-ip";
/// `template` on endpoint replies of template-backed sandboxes.
pub const ORIGIN: &str = "open-sandbox-origin";
/// Next byte offset of a background command's log.
pub const COMMAND_TAIL_CURSOR: &str = "execd-commands-tail-cursor";
/// Next byte offset of an isolated background run's log.
pub const ISOLATED_TAIL_CURSOR: &str = "execd-isolated-tail-cursor";
/// The same request sent again joins the first run (`POST /command`).
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";
