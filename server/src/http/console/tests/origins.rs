//! Other origins and foreign code.

use axum::http::{Request, StatusCode};

use super::Console;

#[tokio::test]
async fn other_origins_can_neither_write_nor_listen() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let path = format!("/console/sandboxes/{id}/delete");
    for (name, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "http://evil.test"),
        ("origin", "null"),
    ] {
        let answer = console
            .send(Request::post(&path).header(name, value), "")
            .await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{name}: {value}");
    }
    assert!(console.service.get(&id).is_ok());
    for origin in ["http://evil.test", "null", "http://console.test:9"] {
        let request = Request::get("/console/live")
            .header("upgrade", "websocket")
            .header("connection", "upgrade")
            .header("origin", origin);
        assert_eq!(
            console.send(request, "").await.status(),
            StatusCode::FORBIDDEN,
            "{origin}"
        );
    }
}

#[tokio::test]
async fn every_page_forbids_foreign_code() {
    let console = Console::open().await;
    let page = console.get("/console/sandboxes").await;
    let policy = page.header("content-security-policy");
    let nonce = policy
        .split("'nonce-")
        .nth(1)
        .and_then(|it| it.split('\'').next())
        .unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    assert!(!policy.contains("script-src 'unsafe"), "{policy}");
    let scripts: Vec<_> = page.body.match_indices("<script").collect();
    assert!(!scripts.is_empty());
    for (at, _) in scripts {
        let tag = &page.body[at..at + page.body[at..].find('>').unwrap()];
        assert!(tag.contains(nonce), "{tag}");
    }
    assert!(!page.body.contains(" style=\""), "{}", page.body);
    assert_eq!(page.header("cache-control"), "no-store");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("access-control-allow-origin"), "");
    let again = console.get("/console/sandboxes").await;
    assert_ne!(again.header("content-security-policy"), policy);
}
