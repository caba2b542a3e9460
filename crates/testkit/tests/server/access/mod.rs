//! Who may call what: every route of the router, with every role and as every tenant.
//!
//! The list of routes comes from the router itself. What is expected of each is in [`rows`], which
//! does not look at the server's own table; a route without a row fails.

mod cell;
mod origins;
mod rows;

use std::{collections::BTreeSet, sync::Arc};

use osb_protocol::identity::Role::{self, Operator, ReadOnly, ServiceAdmin};
use osb_runtime::sim::{Options, SimRuntime};
use osb_server::http::least_role;
use osb_testkit::{TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};

use self::{
    cell::{Caller, Cell, answer},
    rows::{
        About::{Absent, Open, Sandbox, Server},
        ROWS,
    },
};

/// A server over a runtime with every power, or none.
async fn server_with(powers: bool, more: &str) -> (TestServer, tempfile::TempDir) {
    let sim = Arc::new(SimRuntime::with_options(Options {
        powers,
        ..Options::default()
    }));
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::over(sim, folder.path(), more).await.unwrap();
    let look = || async { server.service.available().is_ok() };
    wait_until("the runtime", look, |up| *up).await;
    (server, folder)
}

fn cells(server: &TestServer) -> Vec<Cell> {
    server.routes().iter().map(Cell::of).collect()
}

#[tokio::test]
async fn every_row_is_a_route_and_every_route_has_a_row() {
    let (server, _folder) = server_with(true, "").await;
    let mounted: BTreeSet<_> = cells(&server)
        .into_iter()
        .map(|cell| {
            let bare = cell.pattern.strip_prefix("/v1").unwrap_or(&cell.pattern);
            (bare.to_owned(), cell.method.to_string())
        })
        .collect();
    for (path, methods, ..) in ROWS {
        for method in methods.split(' ') {
            let route = ((*path).to_owned(), method.to_owned());
            assert!(mounted.contains(&route), "{method} {path} is not a route");
        }
    }
    // The same resources under both prefixes, except what the contract has under `/v1` only.
    let all: BTreeSet<_> = server.routes().into_iter().map(|it| it.path).collect();
    for path in &all {
        if path.starts_with("/sandboxes")
            || path.starts_with("/snapshots")
            || path.starts_with("/templates")
        {
            assert!(all.contains(&format!("/v1{path}")), "{path} without /v1");
        }
    }
    server.stop().await;
}

async fn try_every_role(powers: bool) {
    let (server, _folder) = server_with(powers, "").await;
    let mut callers = vec![Caller {
        role: ReadOnly,
        tenant: None,
        secret: None,
    }];
    for role in Role::ALL {
        callers.push(Caller::new(&server, role, None).await);
    }
    for cell in cells(&server) {
        if cell.about != Open {
            let in_table = least_role(&cell.method, &cell.pattern).unwrap_or(ServiceAdmin);
            assert_eq!(in_table, cell.least, "{} {}", cell.method, cell.pattern);
        }
        for caller in &callers {
            let seen = cell.send(&server, caller, "none").await;
            let what = format!("{caller:?}: {} {}: {seen:?}", cell.method, cell.pattern);
            let is_signed_out = seen.status == 401 || seen.leads_to_login();
            match (&caller.secret, cell.about) {
                // A wrong key is refused by the login, and a logout leads there.
                (_, Open) if cell.is_of_console() => assert_ne!(seen.status, 403, "{what}"),
                (_, Open) => assert!(!is_signed_out && seen.status != 403, "{what}"),
                (None, _) => assert!(is_signed_out, "{what}"),
                (Some(_), _) => {
                    assert!(!is_signed_out, "{what}");
                    assert_eq!(seen.status == 403, caller.role < cell.least, "{what}");
                    let is_absent = cell.about == Absent && caller.role >= cell.least;
                    assert_eq!(
                        seen.status == 501,
                        is_absent || is_without(powers, &cell) && caller.role >= cell.least,
                        "{what}"
                    );
                }
            }
            if seen.status == 403 && !cell.is_of_console() {
                let body: Value = serde_json::from_str(&seen.text).unwrap();
                assert_eq!(body["code"], "GENERAL::FORBIDDEN", "{what}");
                let message = body["message"].as_str().unwrap();
                let names_both =
                    message.contains(caller.role.as_str()) && message.contains(cell.least.as_str());
                assert!(names_both, "{what}");
            }
        }
    }
    server.stop().await;
}

/// Whether the API lacks a route on a runtime without powers.
fn is_without(powers: bool, cell: &Cell) -> bool {
    let needs_power = [
        "/pause",
        "/resume",
        "/snapshots",
        "/pools",
        "/templates",
        "/diagnostics/",
        "{id}/metrics",
    ];
    let needs_power = needs_power.iter().any(|part| cell.pattern.contains(part));
    !powers && needs_power && !cell.is_of_console()
}

#[tokio::test]
async fn every_route_keeps_to_its_role_on_a_runtime_with_all_powers() {
    try_every_role(true).await;
}

#[tokio::test]
async fn every_route_keeps_to_its_role_on_a_runtime_without_powers() {
    try_every_role(false).await;
}

#[tokio::test]
async fn a_sandbox_of_another_tenant_is_as_if_it_did_not_exist_in_every_route() {
    let (server, _folder) = server_with(true, "").await;
    let mut callers = Vec::new();
    for (role, tenant) in [
        (ReadOnly, Some("team-a")),
        (Operator, Some("team-a")),
        (ReadOnly, None),
        (Operator, None),
        (ServiceAdmin, None),
    ] {
        callers.push(Caller::new(&server, role, tenant).await);
    }
    let owner = Caller::new(&server, Operator, Some("team-b")).await;
    let unowned = Caller::new(&server, Operator, None).await;
    let foreign = [
        owner.create(&server, "mark-of-foreign").await,
        unowned.create(&server, "mark-of-foreign").await,
    ];
    let admin = callers.last().unwrap().clone();
    let look = async |id: &str| {
        let path = format!("/v1/sandboxes/{id}");
        let request = server.request_as(admin.secret(), Method::GET, &path);
        answer(request).await
    };
    let mut before = Vec::new();
    for id in &foreign {
        before.push(look(id).await);
    }
    let missing = uuid::Uuid::new_v4().to_string();
    let maker = callers[1].clone();
    for cell in cells(&server) {
        // Without `[tenants]` the id is all that the proxy asks for; `tenants.rs` has it with them.
        if cell.about == Open {
            continue;
        }
        for caller in &callers {
            let what = format!("{caller:?}: {} {}", cell.method, cell.pattern);
            let none = cell.send(&server, caller, &missing).await;
            if let Some(tenant) = caller.tenant {
                for id in &foreign {
                    let seen = cell.send(&server, caller, id).await;
                    assert!(!seen.text.contains("mark-of-foreign"), "{what}: {seen:?}");
                    if cell.about != Sandbox {
                        continue;
                    }
                    let (of_foreign, of_none) = (seen.comparable(id), none.comparable(&missing));
                    assert_eq!(of_foreign, of_none, "{what} for {tenant}");
                    let is_api = !cell.is_of_console();
                    if is_api && caller.role >= cell.least {
                        assert_eq!(seen.status, 404, "{what}: {seen:?}");
                    }
                }
            }
            // Its own: a new one, because a cell may end it.
            if cell.about == Sandbox && caller.role >= cell.least {
                let own = match caller.tenant {
                    Some(_) => maker.create(&server, "mark-of-own").await,
                    None => owner.create(&server, "mark-of-own").await,
                };
                let seen = cell.send(&server, caller, &own).await;
                let is_refused = [401, 403, 404].contains(&seen.status.as_u16());
                assert!(!is_refused, "{what}: {seen:?}");
                assert!(!seen.leads_to_login(), "{what}: {seen:?}");
            }
            // About the server: never for a tenant.
            if cell.about == Server && caller.tenant.is_some() {
                assert_eq!(none.status, 403, "{what}: {none:?}");
            }
        }
    }
    for (id, before) in foreign.iter().zip(before) {
        assert_eq!(look(id).await, before, "nothing has touched it");
    }
    server.stop().await;
}

#[tokio::test]
async fn no_route_exceeds_the_quota_of_a_tenant_or_a_key() {
    for more in [
        "[quotas.tenants.team-a]\nsandboxes = 1",
        "[quotas.keys.k]\nsandboxes = 1",
    ] {
        let (server, _folder) = server_with(true, more).await;
        let caller = Caller::new(&server, Operator, Some("team-a")).await;
        let own = caller.create(&server, "mark-of-own").await;
        let count = async || {
            let request = server.request_as(caller.secret(), Method::GET, "/v1/sandboxes");
            let (_, body) = answer(request).await;
            body["pagination"]["totalItems"].clone()
        };
        let mut refused = BTreeSet::new();
        for cell in cells(&server) {
            if cell.removes() {
                continue;
            }
            let seen = cell.send(&server, &caller, &own).await;
            let what = format!("{more}: {} {}: {seen:?}", cell.method, cell.pattern);
            assert_eq!(count().await, json!(1), "{what}");
            if seen.text.contains("has a quota of 1 for sandboxes") {
                refused.insert(cell.pattern);
            }
        }
        let creates = [
            "/console/create",
            "/console/fn/overview/test",
            "/console/fn/sandboxes/create",
            "/sandboxes",
            "/v1/sandboxes",
        ];
        assert_eq!(refused, creates.map(str::to_owned).into(), "{more}");
        server.stop().await;
    }
}
