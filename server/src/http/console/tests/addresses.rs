//! Addresses in unusual spellings, and what needs no session.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::State,
    http::{Request, StatusCode},
};
use http_body_util::BodyExt;

use super::{
    super::{AssetRoot, ConsoleState, assets, backend::Domains, pages},
    Console, authenticator, room,
};

/// Ways to write the addresses of the list and of a page that the routes take for something else,
/// and a renderer that puts addresses into their plain form may not.
fn spellings(id: &str) -> Vec<String> {
    let list = [
        "/console/./sandboxes",
        "/console/sandboxes/",
        "/console/sandboxes//",
        "/console//sandboxes",
        "/console/%2e/sandboxes",
        "/console/%2E/sandboxes",
        "/console/x/../sandboxes",
        "/console/x/%2e%2e/sandboxes",
        "/console/x/.%2E/sandboxes",
        "/console/login/../sandboxes",
        "/console/login/%2e%2e/sandboxes",
        "/console/login/",
        "/console/%73andboxes",
        "/console/\\sandboxes",
        "/console/./sandboxes?next=/console/login",
        "/console/./create",
        "/console/create/",
        "/console/nowhere",
    ];
    let page = [
        format!("/console/sandboxes/{id}/"),
        format!("/console/sandboxes/./{id}"),
        format!("/console/./sandboxes/{id}"),
        format!("/console/sandboxes/x/../{id}"),
        format!("/console/sandboxes/%2e/{id}/terminal"),
        format!("/console/sandboxes/{id}//"),
        format!("/console/sandboxes/{id}/terminal/"),
    ];
    list.map(str::to_owned).into_iter().chain(page).collect()
}

/// The page of the login needs them, so they are not behind it. Whether a file is there depends on
/// what was built.
#[tokio::test]
async fn static_files_need_no_login() {
    let console = Console::start().await;
    let AssetRoot(root) = assets::root();
    for file in ["console.css", "no/such.file"] {
        let answer = console.get(&format!("{root}/{file}")).await;
        let there = answer.status() == StatusCode::OK && file == "console.css";
        assert!(
            there || answer.status() == StatusCode::NOT_FOUND,
            "{file}: {}",
            answer.status()
        );
    }
}

#[tokio::test]
async fn no_spelling_of_an_address_gets_around_the_login() {
    let console = Console::start().await;
    let id = console.sandbox("secret").await;
    // These are routes, of sandboxes with odd names.
    let routed = ["/console/sandboxes/.", "/console/sandboxes/.."].map(str::to_owned);
    for path in spellings(id.as_str()).into_iter().chain(routed) {
        let answer = console.get(&path).await;
        assert!(
            answer.location().starts_with("/console/login?next="),
            "{path}: {} {}",
            answer.status(),
            answer.body
        );
        assert!(
            !answer.body.contains(id.as_str()),
            "{path}: {}",
            answer.body
        );
    }
}

/// Should a route ever be outside of the session by mistake, its page still has nothing to show.
#[tokio::test]
async fn a_page_that_was_not_let_in_has_no_way_to_the_domain() {
    let console = Console::start().await;
    let id = console.sandbox("secret").await;
    let keys = Arc::new(authenticator(&console.store, None).await);
    let state = ConsoleState::new(
        Domains {
            service: console.service.clone(),
            store: Arc::clone(&console.store),
            keys,
            webhooks: None,
            installation: None,
        },
        console.tasks.clone(),
        room(&console.tasks),
        Arc::default(),
    )
    .unwrap();
    for path in [
        "/console/sandboxes".to_owned(),
        format!("/console/sandboxes/{id}"),
    ] {
        let request = Request::get(&path).body(Body::empty()).unwrap();
        let answer = pages::render(State(state.clone()), request).await;
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains("You are signed out"), "{path}: {body}");
        assert!(!body.contains("debian:12"), "{path}: {body}");
    }
}

#[tokio::test]
async fn what_is_no_page_shows_nothing_of_the_domain_even_with_a_session() {
    let console = Console::open().await;
    let id = console.sandbox("secret").await;
    for path in spellings(id.as_str()) {
        let answer = console.get(&path).await;
        // A slash too many at the end is forgiven, by way of a redirect to a page.
        let location = answer.location();
        let expected = match location {
            "" => answer.status() == StatusCode::NOT_FOUND,
            to => answer.status() == StatusCode::SEE_OTHER && to.starts_with("/console"),
        };
        assert!(expected, "{path}: {} {location}", answer.status());
        assert!(
            !answer.body.contains(id.as_str()),
            "{path}: {}",
            answer.body
        );
    }
    let tidy = console.get("/console/sandboxes/?q=a").await;
    assert_eq!(tidy.location(), "/console/sandboxes?q=a");
}
