//! The page about the audit trail.

use axum::http::StatusCode;
use osb_protocol::identity::Role;

use super::{Console, FORM, accounts::PASSWORD};

const PAGE: &str = "/console/events";

/// Rows of the table in a page.
fn rows(page: &str) -> usize {
    page.matches("class=\"e-at\"").count().saturating_sub(1)
}

impl Console {
    /// The page with a filter, once everything so far is in the trail.
    async fn events(&self, query: &str) -> String {
        self.service.audit_trail().finish().await;
        let page = self.get(&format!("{PAGE}{query}")).await;
        assert_eq!(page.status(), StatusCode::OK, "{}", page.body);
        page.body
    }
}

#[tokio::test]
async fn the_trail_is_shown_filtered_and_leads_to_sandboxes() {
    let console = Console::open().await;
    let made = console.post("/console/create", FORM).await;
    let sandbox = made.location().to_owned();
    let id = sandbox.rsplit('/').next().unwrap().to_owned();
    console.post("/console/login", "key=wrong").await;
    console.post("/console/sandboxes/no%2Fne/delete", "").await;
    let page = console.events("").await;
    assert_eq!(page.matches("<h1>").count(), 1);
    assert_eq!(rows(&page), 4, "{page}");
    for part in [
        "<h1>Events &amp; audit</h1>",
        &format!("href=\"{sandbox}\""),
        "session.sign_in_failed",
        "Denied 401",
        "Failed 404",
        "server.api_key",
        "debian:12",
        "Everything that was done to this sandbox",
        "/console/events/download?format=csv",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let found = console.events(&format!("?sandbox={id}")).await;
    assert_eq!(rows(&found), 1, "{found}");
    assert_eq!(rows(&console.events("?action=sandbox.delete").await), 1);
    assert_eq!(rows(&console.events("?outcome=denied").await), 1);
    assert_eq!(
        rows(&console.events("?actor=server.api_key&last=1h").await),
        3
    );
    assert_eq!(rows(&console.events("?since=2020-01-01T00:00").await), 4);
    let none = console.events("?until=2020-01-01T00%3A00").await;
    assert!(rows(&none) == 0 && none.contains("No matches"), "{none}");
    // The time of the form stays in it.
    assert!(none.contains("value=\"2020-01-01T00:00\""), "{none}");
}

#[tokio::test]
async fn what_is_wrong_with_a_filter_is_said_beside_its_field() {
    let console = Console::open().await;
    let page = console
        .events("?action=sandbox.fly&outcome=odd&last=2y&since=noon&cursor=x")
        .await;
    for part in [
        "This must be one of sandbox.create",
        "This must be one of succeeded, denied, failed.",
        "This must be one of 15m, 1h, 24h, 7d.",
        "This must be a time (RFC 3339).",
        "sandbox.fly",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    assert_eq!(rows(&page), 0);
    let file = console.get("/console/events/download?last=2y").await;
    assert_eq!(file.status(), StatusCode::UNPROCESSABLE_ENTITY);
    assert!(file.body.starts_with("last: must be"), "{}", file.body);
}

#[tokio::test]
async fn pages_follow_each_other_and_a_file_has_all_of_them() {
    let console = Console::open().await;
    for _ in 0..60 {
        console.post("/console/sandboxes/none/pause", "").await;
    }
    let first = console.events("?action=sandbox.pause").await;
    assert_eq!(rows(&first), 50);
    let (_, older) = first
        .split_once("href=\"/console/events?action=sandbox.pause&amp;cursor=")
        .unwrap_or_else(|| panic!("{first}"));
    let cursor = older.split('"').next().unwrap();
    let second = console
        .events(&format!("?action=sandbox.pause&cursor={cursor}"))
        .await;
    assert_eq!(rows(&second), 10);
    assert!(
        second.contains("Newest") && !second.contains("Older"),
        "{second}"
    );
    let file = "/console/events/download?action=sandbox.pause&format=";
    let csv = console.get(&format!("{file}csv")).await;
    assert_eq!(
        csv.header("content-disposition"),
        "attachment; filename=\"audit.csv\""
    );
    assert_eq!(csv.body.lines().count(), 61, "{}", csv.body);
    let lines = console.get(&format!("{file}jsonl")).await;
    assert_eq!(lines.body.lines().count(), 60);
}

#[tokio::test]
async fn other_roles_learn_why_they_see_no_entries() {
    let mut console = Console::start().await;
    console.add_user(Role::Operator, None).await;
    console.sign_in("operator", PASSWORD).await;
    console.post("/console/create", FORM).await;
    let page = console.events("").await;
    let why = "Your role is operator: the audit trail is for the role service_admin.";
    assert!(page.contains(why), "{page}");
    assert!(!page.contains("sandbox.create"), "{page}");
    let file = console.get("/console/events/download?format=csv").await;
    assert_eq!(file.status(), StatusCode::FORBIDDEN);
    assert!(!file.body.contains("sandbox.create"), "{}", file.body);
}

#[tokio::test]
async fn what_clients_send_stays_a_text() {
    let console = Console::open().await;
    let id = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    console
        .post(&format!("/console/sandboxes/{id}/pause"), "")
        .await;
    let page = console.events("").await;
    assert!(!page.contains("<script>alert(1)"), "{page}");
    let page = console.events("?actor=%3Cb%3E%22x").await;
    assert!(!page.contains("<b>\"x"), "{page}");
}
