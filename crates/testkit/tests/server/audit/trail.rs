//! How entries are kept and shown.

use std::{sync::Arc, time::Duration};

use osb_protocol::identity::Role;
use osb_runtime::sim::SimRuntime;
use osb_server::audit::Action;
use osb_testkit::{API_KEY, TestServer, wait_until};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::{answer, entries, key};

#[tokio::test]
async fn entries_survive_a_restart_and_an_export_has_them_all() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap()
    };
    let server = start().await;
    let acts = 1_203;
    for number in 0..acts {
        let path = format!("/v1/users/=cmd|{number}");
        answer(server.request(Method::DELETE, &path)).await;
    }
    server.stop().await;
    drop(server);
    let server = start().await;
    for (query, accept) in [("?format=csv", "*/*"), ("", "text/csv")] {
        let request = server.request(Method::GET, &format!("/v1/audit{query}"));
        let response = request.header("accept", accept).send().await.unwrap();
        let kind = response.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        assert!(kind.starts_with("text/csv"), "{kind}");
        let text = response.text().await.unwrap();
        let rows: Vec<_> = text.split_terminator("\r\n").collect();
        assert_eq!(rows.len(), acts + 1, "with the names of the columns");
        assert!(
            rows[1].contains(&format!(",\"'=cmd|{}\",", acts - 1)),
            "{}",
            rows[1]
        );
        assert!(rows[0].starts_with("id,at,action,outcome,"), "{}", rows[0]);
    }
    let request = server.request(Method::GET, "/v1/audit?format=jsonl&action=user.delete");
    let text = request.send().await.unwrap().text().await.unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(lines.len(), acts);
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let path = format!("/v1/audit?limit=500{cursor}");
        let (status, page) = answer(server.request(Method::GET, &path)).await;
        assert_eq!(status, 200, "{page}");
        seen.extend(page["items"].as_array().unwrap().clone());
        // Entries that come meanwhile neither hide nor repeat others.
        answer(server.request(Method::DELETE, "/v1/users/meanwhile")).await;
        let Some(next) = page["next"].as_str() else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, lines);
    server.stop().await;
}

#[tokio::test]
async fn a_query_is_checked_and_needs_an_administrator() {
    let (server, _sim) = TestServer::sim().await.unwrap();
    let bad = "since=x&until=y&action=sandbox.kill&outcome=z&cursor=-1&limit=0&format=xml";
    let (status, body) = answer(server.request(Method::GET, &format!("/v1/audit?{bad}"))).await;
    assert_eq!(status, 422, "{body}");
    let fields = body["detail"].as_array().unwrap().iter();
    let mut fields: Vec<_> = fields.map(|it| it["loc"][1].as_str().unwrap()).collect();
    fields.sort_unstable();
    let expected = [
        "action", "cursor", "format", "limit", "outcome", "since", "until",
    ];
    assert_eq!(fields, expected, "{body}");
    for role in Role::ALL {
        let (_, secret) = key(&server, json!({"name": role, "role": role})).await;
        let (status, _) = answer(server.request_as(&secret, Method::GET, "/v1/audit")).await;
        let expected = if role == Role::ServiceAdmin { 200 } else { 403 };
        assert_eq!(status, expected, "{role}");
    }
    let (status, _) = answer(server.request_as(API_KEY, Method::GET, "/v1/audit")).await;
    assert_eq!(status, 200);
    server.stop().await;
}

#[tokio::test]
async fn nothing_is_kept_when_it_is_turned_off() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    for (more, expected) in [("[audit]\nenabled = false", 0), ("", 0), ("", 1)] {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), more).await;
        let server = server.unwrap();
        assert_eq!(entries(&server, "").await.len(), expected, "{more}");
        answer(server.request(Method::DELETE, "/v1/users/none")).await;
        server.stop().await;
    }
}

#[test]
fn every_action_can_be_found_in_the_documentation() {
    let page = include_str!("../../../../../docs/operations.md");
    for action in Action::ALL {
        let name = format!("`{}`", action.name());
        assert!(page.contains(&name), "docs/operations.md lacks {name}");
    }
}

/// Locks the database as another process would.
#[tokio::test]
async fn sqlite_a_store_that_is_locked_while_the_server_stops_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let start = async || {
        let server = TestServer::over(Arc::clone(&sim) as _, folder.path(), "").await;
        server.unwrap()
    };
    let server = start().await;
    let file = SqliteConnectOptions::new().filename(folder.path().join("store.db"));
    let mut other = file.connect().await.unwrap();
    let lock = sqlx::query("BEGIN IMMEDIATE").execute(&mut other);
    lock.await.unwrap();
    answer(server.request(Method::DELETE, "/v1/users/last")).await;
    let unlock = async {
        // Longer than two writes wait for the lock.
        tokio::time::sleep(Duration::from_millis(3_500)).await;
        let unlock = sqlx::query("ROLLBACK").execute(&mut other);
        unlock.await.unwrap();
    };
    tokio::join!(server.stop(), unlock);
    drop(server);
    let server = start().await;
    let stored = entries(&server, "action=user.delete").await;
    assert_eq!(stored.len(), 1, "{stored:?}");
    other.close().await.unwrap();
    server.stop().await;
}

/// Locks the database as another process would.
#[tokio::test]
async fn sqlite_acts_go_on_while_the_store_is_away_and_are_stored_later_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let sim = Arc::new(SimRuntime::new());
    let server = TestServer::over(sim, folder.path(), "").await.unwrap();
    let file = SqliteConnectOptions::new().filename(folder.path().join("store.db"));
    let mut other = file.connect().await.unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut other)
        .await
        .unwrap();
    for number in 0..20 {
        let path = format!("/v1/sandboxes/{number}/metadata");
        let request = server
            .request(Method::PATCH, &path)
            .json(&json!({"a": "b"}));
        assert_eq!(answer(request).await.0, 404);
    }
    assert_eq!(entries(&server, "").await, [] as [Value; 0]);
    sqlx::query("ROLLBACK").execute(&mut other).await.unwrap();
    let look = || entries(&server, "");
    let all = wait_until("the entries", look, |all: &Vec<Value>| all.len() == 20).await;
    let ids: Vec<_> = all
        .iter()
        .map(|it| it["object"]["id"].as_str().unwrap())
        .collect();
    let expected: Vec<_> = (0..20).map(|number| number.to_string()).collect();
    assert_eq!(ids, expected);
    other.close().await.unwrap();
    server.stop().await;
}
