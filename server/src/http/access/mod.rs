//! The least role of each route, REST and console alike (contract: clients §5), and what the audit
//! trail calls it. A table for each kind of route; a route that is in none is for service administrators
//! only, and a test finds it.

mod api;
mod console;
mod forbidden;
mod functions;
mod rule;

use std::{collections::HashMap, sync::LazyLock};

use axum::extract::{MatchedPath, Request};
use http::Method;
use osb_protocol::identity::Role;

pub(super) use self::forbidden::{Forbidden, check};
pub use self::rule::Effect;
use self::rule::{Route, Rules};
use crate::audit::Action;

static BY_PATH: LazyLock<HashMap<&str, Rules>> = LazyLock::new(|| routes().collect());

/// Every route behind authentication. Those of the API are without `/v1`.
fn routes() -> impl Iterator<Item = Route> {
    let tables = [
        api::ROUTES,
        console::PAGES,
        console::FORMS,
        console::FILES,
        console::SOCKETS,
        functions::ROUTES,
    ];
    tables.into_iter().flatten().copied()
}

/// The least role for a method of a route; `None` for one that the table does not have. `path` is the
/// route's pattern, such as `/v1/sandboxes/{id}`.
#[must_use]
pub fn least_role(method: &Method, path: &str) -> Option<Role> {
    rule(method, path).map(|(role, _)| role)
}

/// What a method of a route does; `None` for one that the table does not have.
#[must_use]
pub fn effect(method: &Method, path: &str) -> Option<Effect> {
    rule(method, path).map(|(_, effect)| effect)
}

fn rule(method: &Method, path: &str) -> Option<(Role, Effect)> {
    let bare = path
        .strip_prefix("/v1")
        .filter(|rest| rest.starts_with('/'));
    let rules = BY_PATH.get(bare.unwrap_or(path))?;
    let wanted = if method == Method::HEAD {
        &Method::GET
    } else {
        method
    };
    let row = rules.iter().find(|(method, ..)| method == wanted);
    row.map(|(_, role, effect)| (*role, *effect))
}

/// The act that a request is, if it is one.
pub(super) fn action(request: &Request) -> Option<Action> {
    let path = request.extensions().get::<MatchedPath>()?;
    match effect(request.method(), path.as_str())? {
        Effect::Reads => None,
        Effect::Acts(action) => Some(action),
    }
}

#[cfg(test)]
mod tests {
    use osb_protocol::identity::Role::{Operator, ReadOnly, ServiceAdmin};

    use super::*;

    /// A method that changes nothing by its definition is recorded only if it opens a way into a
    /// sandbox; every other one is, unless it is known to read.
    #[test]
    fn what_changes_state_has_a_name_in_the_trail() {
        const READS: [&str; 31] = [
            "/metrics/events",
            "/console/fn/settings/get",
            "/console/fn/events/get",
            "/console/fn/network/read",
            "/console/fn/network/propose",
            "/console/fn/files/open",
            "/console/fn/files/find",
            "/console/fn/files/taken",
            "/console/fn/preview/ports",
            "/console/fn/access/get",
            "/console/fn/snapshots/list",
            "/console/fn/snapshots/get",
            "/console/fn/snapshots/offered",
            "/console/fn/pools/list",
            "/console/fn/pools/get",
            "/console/fn/templates/list",
            "/console/fn/templates/get",
            "/console/fn/templates/offered",
            "/console/sandboxes/bulk/confirm-delete",
            "/console/fn/overview/get",
            "/console/fn/sandboxes/list",
            "/console/fn/sandboxes/get",
            "/console/fn/sandboxes/port",
            "/console/fn/sandboxes/log",
            "/console/fn/sandboxes/metrics",
            "/console/fn/sandboxes/commands",
            "/console/fn/sandboxes/diagnosis",
            "/console/fn/sandboxes/health",
            "/console/fn/sandboxes/check",
            "/console/fn/sandboxes/images",
            "/console/fn/sandboxes/original",
        ];
        for (path, rules) in routes() {
            for (method, _, effect) in rules {
                let may_read = method == Method::GET || READS.contains(&path);
                let opens = [
                    "/console/terminal/{sandbox}",
                    "/console/tunnel/{sandbox}/{port}",
                    "/console/preview/{sandbox}/{port}",
                    "/console/run/{sandbox}",
                    "/console/sandboxes/{id}/files/download",
                ];
                let opens = opens.contains(&path);
                assert_eq!(
                    *effect == Effect::Reads,
                    may_read && !opens,
                    "{method} {path}"
                );
            }
        }
    }

    #[test]
    fn the_table_is_read_with_and_without_the_prefix() {
        let (get, delete) = (Method::GET, Method::DELETE);
        for path in ["/sandboxes/{id}", "/v1/sandboxes/{id}"] {
            assert_eq!(least_role(&get, path), Some(ReadOnly));
            assert_eq!(least_role(&Method::HEAD, path), Some(ReadOnly));
            assert_eq!(least_role(&delete, path), Some(Operator));
            assert_eq!(least_role(&Method::PUT, path), None);
        }
        assert_eq!(least_role(&get, "/v1/users"), Some(ServiceAdmin));
        assert_eq!(least_role(&get, "/v1"), None);
        assert_eq!(least_role(&get, "/v1sandboxes"), None);
        assert_eq!(BY_PATH.len(), routes().count(), "a path is listed twice");
    }
}
