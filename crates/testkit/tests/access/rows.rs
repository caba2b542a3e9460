//! What is expected of every route.

use osb_protocol::identity::Role::{self, Operator, ReadOnly, ServiceAdmin};

use self::About::{Absent, Open, Own, Sandbox, Server};

/// What a route is about, for the question of whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// It needs neither a key nor a session.
    Open,
    /// What the caller has or makes.
    Own,
    /// The sandbox that the path or the form names.
    Sandbox,
    /// The server as a whole.
    Server,
    /// A feature that this release does not serve: 501.
    Absent,
}

/// A row: path without `/v1`, methods, the least role, what it is about, and a good body. In paths
/// and bodies `ID` is the sandbox.
pub(super) type Row = (&'static str, &'static str, Role, About, &'static str);

pub(super) const NOTHING: &str = "";
const RENEWAL: &str = r#"{"expiresAt": "2900-01-01T00:00:00Z"}"#;
const LIST: &str = "query[text]=";
const ID: &str = "id=ID";
const KEY_FORM: &str = "name=k&role=read_only&tenant=&days=";
const USER_FORM: &str = "name=zoe&password=a+long+password&role=read_only&tenant=";
const BULK: &str = "ids[0]=ID&seconds=600";
const CREATE: &str = r#"{"image": {"uri": "debian:12"}, "entrypoint": ["sleep", "9"],
    "resourceLimits": {"cpu": "1"}, "timeout": 600}"#;
const CREATE_FORM: &str =
    "image=debian%3A12&entrypoint=sleep+9&ttl=10m&cpu=1&memory=256Mi&env=&metadata=";
const CREATE_CALL: &str = "form[image]=debian%3A12&form[entrypoint]=sleep+9&form[ttl]=10m&\
    form[cpu]=1&form[memory]=256Mi&form[env]=&form[metadata]=";

/// Every route.
#[rustfmt::skip]
pub(super) const ROWS: &[Row] = &[
    ("/", "GET POST PUT PATCH DELETE", ServiceAdmin, Server, NOTHING),
    ("/health", "GET", ReadOnly, Open, NOTHING),
    ("/ready", "GET", ReadOnly, Open, NOTHING),
    ("/version", "GET", ReadOnly, Open, NOTHING),
    ("/docs", "GET", ReadOnly, Open, NOTHING),
    ("/docs/", "GET", ReadOnly, Open, NOTHING),
    ("/docs/{*rest}", "GET", ReadOnly, Open, NOTHING),
    ("/openapi.json", "GET", ReadOnly, Open, NOTHING),
    // A sandbox's programs: who knows the id may talk to them, unless the server has tenants.
    ("/sandboxes/{id}/proxy/{port}", "GET POST PUT PATCH DELETE", ReadOnly, Open, NOTHING),
    ("/sandboxes/{id}/proxy/{port}/", "GET POST PUT PATCH DELETE", ReadOnly, Open, NOTHING),
    ("/sandboxes/{id}/proxy/{port}/{*path}", "GET POST PUT PATCH DELETE", ReadOnly, Open, NOTHING),
    ("/sandboxes", "GET", ReadOnly, Own, NOTHING),
    ("/sandboxes", "POST", Operator, Own, CREATE),
    ("/sandboxes/{id}", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}", "DELETE", Operator, Sandbox, NOTHING),
    ("/sandboxes/{id}/metadata", "PATCH", Operator, Sandbox, r#"{"k": "v"}"#),
    ("/sandboxes/{id}/renew-expiration", "POST", Operator, Sandbox, RENEWAL),
    ("/sandboxes/{id}/pause", "POST", Operator, Sandbox, NOTHING),
    ("/sandboxes/{id}/resume", "POST", Operator, Sandbox, NOTHING),
    ("/sandboxes/{id}/endpoints/{port}", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/diagnostics/logs", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/diagnostics/events", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/diagnostics/inspect", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/diagnostics/summary", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/commands", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/metrics", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/metrics/watch", "GET", ReadOnly, Sandbox, NOTHING),
    ("/sandboxes/{id}/snapshots", "POST", Operator, Absent, "{}"),
    ("/snapshots", "GET", ReadOnly, Absent, NOTHING),
    ("/snapshots/{id}", "GET", ReadOnly, Absent, NOTHING),
    ("/snapshots/{id}", "DELETE", Operator, Absent, NOTHING),
    ("/pools", "GET", ReadOnly, Absent, NOTHING),
    ("/pools", "POST", Operator, Absent, "{}"),
    ("/pools/{name}", "GET", ReadOnly, Absent, NOTHING),
    ("/pools/{name}", "PUT DELETE", Operator, Absent, "{}"),
    ("/templates", "GET", ReadOnly, Absent, NOTHING),
    ("/templates", "POST", Operator, Absent, "{}"),
    ("/templates/{id}", "GET", ReadOnly, Absent, NOTHING),
    ("/templates/{id}", "DELETE", Operator, Absent, NOTHING),
    ("/sandboxes/{id}/networkpolicy", "GET", ReadOnly, Absent, NOTHING),
    ("/sandboxes/{id}/networkpolicy", "PUT PATCH DELETE", Operator, Absent, "{}"),
    ("/metrics/events", "POST", ReadOnly, Own, "{}"),
    ("/metrics", "GET", ReadOnly, Server, NOTHING),
    ("/whoami", "GET", ReadOnly, Own, NOTHING),
    ("/quotas", "GET", ReadOnly, Own, NOTHING),
    ("/users", "GET POST", ServiceAdmin, Server, "{}"),
    ("/users/{id}", "PATCH DELETE", ServiceAdmin, Server, "{}"),
    ("/api-keys", "GET POST", ServiceAdmin, Server, "{}"),
    ("/api-keys/{id}", "DELETE", ServiceAdmin, Server, NOTHING),
    ("/audit", "GET", ServiceAdmin, Server, NOTHING),
    ("/sessions", "GET", ServiceAdmin, Server, NOTHING),
    ("/sessions/{id}", "DELETE", ServiceAdmin, Server, NOTHING),
    ("/webhooks", "GET POST", ServiceAdmin, Server, "{}"),
    ("/webhooks/{id}", "GET DELETE", ServiceAdmin, Server, NOTHING),
    ("/webhooks/{id}/enable", "POST", ServiceAdmin, Server, NOTHING),
    ("/webhooks/{id}/test", "POST", ServiceAdmin, Server, NOTHING),
    ("/webhooks/{id}/deliveries", "GET", ServiceAdmin, Server, NOTHING),
    ("/webhooks/{id}/deliveries/{delivery}/redeliver", "POST", ServiceAdmin, Server, NOTHING),
    // The console.
    ("/console", "GET", ReadOnly, Own, NOTHING),
    ("/console/", "GET", ReadOnly, Open, NOTHING),
    ("/console/test", "POST", Operator, Own, NOTHING),
    ("/console/fn/overview/get", "POST", ReadOnly, Own, NOTHING),
    ("/console/fn/overview/test", "POST", Operator, Own, NOTHING),
    ("/console/fn/sandboxes/images", "POST", ReadOnly, Own, NOTHING),
    ("/console/fn/sandboxes/diagnosis", "POST", ReadOnly, Sandbox, ID),
    ("/console/fn/sandboxes/commands", "POST", ReadOnly, Sandbox, ID),
    ("/console/fn/terminal/end", "POST", Operator, Sandbox, "id=ID&pty=none"),
    ("/console/fn/sandboxes/interrupt", "POST", Operator, Sandbox, "id=ID&started_at=2026-01-01T00:00:00Z"),
    ("/console/fn/files/open", "POST", Operator, Sandbox, "id=ID&path=/&from=0&as_bytes=false"),
    ("/console/fn/files/find", "POST", Operator, Sandbox, "id=ID&path=/&name=a&text=&case=false"),
    ("/console/fn/files/taken", "POST", Operator, Sandbox, "id=ID&folder=/&below=a"),
    ("/console/fn/files/replace", "POST", Operator, Sandbox, "id=ID&folder=/&paths=/a&old=b&new=c"),
    ("/console/fn/files/save", "POST", Operator, Sandbox, "id=ID&path=/a&text=b"),
    ("/console/fn/files/make", "POST", Operator, Sandbox, "id=ID&path=/a&folder=true"),
    ("/console/fn/files/move", "POST", Operator, Sandbox, "id=ID&from=/a&to=/b"),
    ("/console/fn/files/remove", "POST", Operator, Sandbox, "id=ID&path=/a"),
    ("/console/fn/files/mode", "POST", Operator, Sandbox, "id=ID&path=/a&mode=644"),
    ("/console/design", "GET", ReadOnly, Own, NOTHING),
    ("/console/sandboxes/{id}/preview", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/fn/preview/ports", "POST", Operator, Sandbox, "id=ID"),
    ("/console/sandboxes/{id}/files", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/files/download", "GET", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/files/image", "GET", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/files/upload", "POST", Operator, Sandbox, NOTHING),
    ("/console/fn/sandboxes/original", "POST", Operator, Sandbox, ID),
    ("/console/access", "GET", ReadOnly, Own, NOTHING),
    ("/console/access", "POST", ServiceAdmin, Server, KEY_FORM),
    ("/console/access/keys/{id}/revoke", "POST", ServiceAdmin, Server, NOTHING),
    ("/console/access/users", "POST", ServiceAdmin, Server, USER_FORM),
    ("/console/access/users/{id}/change", "POST", ServiceAdmin, Server, "role=operator"),
    ("/console/access/users/{id}/password", "POST", ServiceAdmin, Server, "password=none"),
    ("/console/access/users/{id}/delete", "POST", ServiceAdmin, Server, NOTHING),
    ("/console/access/sessions/{id}/end", "POST", ReadOnly, Own, NOTHING),
    ("/console/fn/access/get", "POST", ReadOnly, Own, NOTHING),
    ("/console/fn/access/add-user", "POST", ServiceAdmin, Server, "form[name]=a&form[role]=operator"),
    ("/console/fn/access/change-user", "POST", ServiceAdmin, Server, "id=none&form[role]=operator"),
    ("/console/fn/access/set-password", "POST", ServiceAdmin, Server, "id=none&form[password]=none"),
    ("/console/fn/access/delete-user", "POST", ServiceAdmin, Server, ID),
    ("/console/fn/access/add-key", "POST", ServiceAdmin, Server, "form[name]=k&form[role]=read_only"),
    ("/console/fn/access/revoke-key", "POST", ServiceAdmin, Server, ID),
    ("/console/fn/access/end-session", "POST", ReadOnly, Own, ID),
    ("/console/events", "GET", ReadOnly, Own, NOTHING),
    ("/console/events/download", "GET", ServiceAdmin, Server, NOTHING),
    ("/console/fn/events/get", "POST", ReadOnly, Own, "query[actor]=a"),
    ("/console/settings", "GET", ReadOnly, Own, NOTHING),
    ("/console/settings/bundle", "GET", ServiceAdmin, Server, NOTHING),
    ("/console/fn/settings/get", "POST", ReadOnly, Own, "checks_store=false"),
    ("/console/login", "GET POST", ReadOnly, Open, "key=wrong"),
    ("/console/logout", "POST", ReadOnly, Open, NOTHING),
    ("/console/sandboxes", "GET", ReadOnly, Own, NOTHING),
    ("/console/create", "GET", ReadOnly, Own, NOTHING),
    ("/console/create", "POST", Operator, Own, CREATE_FORM),
    ("/console/live", "GET", ReadOnly, Own, NOTHING),
    ("/console/{*rest}", "GET", ReadOnly, Own, NOTHING),
    ("/console/fn/{*name}", "GET POST PUT PATCH DELETE", ServiceAdmin, Own, NOTHING),
    ("/console/sandboxes/{id}", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/terminal", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/diagnostics", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/diagnostics/download", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/run", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/logs", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/logs/download", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/metrics", "GET", ReadOnly, Sandbox, NOTHING),
    ("/console/terminal/{sandbox}", "GET", Operator, Sandbox, NOTHING),
    ("/console/tunnel/{sandbox}/{port}", "GET", Operator, Sandbox, NOTHING),
    ("/console/preview/{sandbox}/{port}", "GET", Operator, Sandbox, NOTHING),
    ("/console/run/{sandbox}", "GET", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/renew", "POST", Operator, Sandbox, "seconds=600"),
    ("/console/sandboxes/{id}/pause", "POST", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/resume", "POST", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/{id}/delete", "GET POST", Operator, Sandbox, NOTHING),
    ("/console/sandboxes/bulk/confirm-delete", "POST", Operator, Sandbox, ID),
    ("/console/sandboxes/bulk/extend", "POST", Operator, Sandbox, "seconds=600&id=ID"),
    ("/console/sandboxes/bulk/pause", "POST", Operator, Sandbox, ID),
    ("/console/sandboxes/bulk/resume", "POST", Operator, Sandbox, ID),
    ("/console/sandboxes/bulk/delete", "POST", Operator, Sandbox, ID),
    ("/console/fn/sandboxes/list", "POST", ReadOnly, Own, LIST),
    ("/console/fn/sandboxes/get", "POST", ReadOnly, Sandbox, ID),
    ("/console/fn/sandboxes/port", "POST", ReadOnly, Sandbox, "id=ID&port=80"),
    ("/console/fn/sandboxes/log", "POST", ReadOnly, Sandbox, ID),
    ("/console/fn/sandboxes/metrics", "POST", ReadOnly, Sandbox, ID),
    ("/console/fn/sandboxes/check", "POST", Operator, Own, CREATE_CALL),
    ("/console/fn/sandboxes/create", "POST", Operator, Own, CREATE_CALL),
    ("/console/fn/sandboxes/renew", "POST", Operator, Sandbox, "id=ID&seconds=600&shorten=false"),
    ("/console/fn/sandboxes/pause", "POST", Operator, Sandbox, ID),
    ("/console/fn/sandboxes/resume", "POST", Operator, Sandbox, ID),
    ("/console/fn/sandboxes/delete", "POST", Operator, Sandbox, ID),
    ("/console/fn/sandboxes/extend-all", "POST", Operator, Sandbox, BULK),
    ("/console/fn/sandboxes/pause-all", "POST", Operator, Sandbox, BULK),
    ("/console/fn/sandboxes/resume-all", "POST", Operator, Sandbox, BULK),
    ("/console/fn/sandboxes/delete-all", "POST", Operator, Sandbox, BULK),
];
