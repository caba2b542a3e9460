//! Signing in, sessions and their end.

use axum::http::StatusCode;

use super::{Console, KEY};

#[tokio::test]
async fn without_a_session_only_the_login_is_shown() {
    let console = Console::start().await;
    let page = console.get("/console/sandboxes?q=a").await;
    assert_eq!(
        page.location(),
        "/console/login?next=%2Fconsole%2Fsandboxes%3Fq%3Da"
    );
    let call = console.post("/console/fn/sandboxes/list", "").await;
    assert_eq!(call.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(call.body, r#"{"error":"signed_out"}"#);
    let login = console.get("/console/login").await;
    assert_eq!(login.status(), StatusCode::OK);
    assert!(login.body.contains("API key"), "{}", login.body);
    assert!(login.cookie().is_empty());
}

#[tokio::test]
async fn a_wrong_key_opens_nothing_and_is_slowed_down() {
    let console = Console::start().await;
    let wrong = console
        .post("/console/login", "key=wrong&next=%2Fconsole%2Fcreate")
        .await;
    assert_eq!(
        wrong.location(),
        "/console/login?failed=key&next=%2Fconsole%2Fcreate"
    );
    assert!(wrong.cookie().is_empty());
    let page = console.get(wrong.location()).await;
    assert!(
        page.body.contains("not a key of this server"),
        "{}",
        page.body
    );
    for _ in 0..9 {
        let wrong = console.post("/console/login", "key=wrong").await;
        assert!(wrong.location().contains("failed=key"));
    }
    let slow = console.post("/console/login", "key=wrong").await;
    assert!(slow.location().contains("failed=slow"));
    // Another client at this address cannot keep the operator out.
    let right = console.post("/console/login", &format!("key={KEY}")).await;
    assert_eq!(right.location(), "/console/sandboxes");
}

#[tokio::test]
async fn the_session_cookie_is_narrow_and_ends_with_the_session() {
    let console = Console::start().await;
    let cookie = console
        .post("/console/login", &format!("key={KEY}"))
        .await
        .cookie()
        .to_owned();
    for part in ["osb_console=", "HttpOnly", "SameSite=Lax", "Path=/console"] {
        assert!(cookie.contains(part), "{part} in {cookie}");
    }
    let console = Console {
        cookie: cookie.split(';').next().unwrap().into(),
        ..console
    };
    assert_eq!(
        console.get("/console/sandboxes").await.status(),
        StatusCode::OK
    );
    console.post("/console/logout", "").await;
    assert!(
        console
            .get("/console/sandboxes")
            .await
            .location()
            .contains("login")
    );
}

#[tokio::test]
async fn a_client_does_not_choose_the_id_of_its_session() {
    let mut console = Console::start().await;
    let login = format!("key={KEY}");
    let is_open = async |console: &Console| {
        let page = console.get("/console/sandboxes").await;
        page.status() == StatusCode::OK
    };
    let id = |cookie: &str| cookie.split(';').next().unwrap().to_owned();
    let chosen = "osb_console=AAAAAAAAAAAAAAAAAAAAAA".to_owned();
    console.cookie.clone_from(&chosen);
    let first = id(console.post("/console/login", &login).await.cookie());
    assert!(first.len() >= chosen.len(), "{first}");
    assert_ne!(first, chosen);
    assert!(!is_open(&console).await, "with the chosen id");
    console.cookie.clone_from(&first);
    assert!(is_open(&console).await);

    // Another sign-in has another id, and the first one opens nothing any more.
    let second = id(console.post("/console/login", &login).await.cookie());
    assert_ne!(second, first);
    assert!(!is_open(&console).await, "with the first id");
    console.cookie = second;
    assert!(is_open(&console).await);
}

#[tokio::test]
async fn only_a_logout_with_a_session_wakes_the_tabs() {
    let mut console = Console::open().await;
    let logouts = console.state.logouts.subscribe();
    let cookie = std::mem::take(&mut console.cookie);
    let unknown = "osb_console=AAAAAAAAAAAAAAAAAAAAAA".to_owned();
    for stranger in [String::new(), unknown] {
        console.cookie = stranger;
        let answer = console.post("/console/logout", "").await;
        assert_eq!(answer.location(), "/console/login");
        assert!(!logouts.has_changed().unwrap(), "{}", console.cookie);
    }
    console.cookie = cookie;
    console.post("/console/logout", "").await;
    assert!(logouts.has_changed().unwrap());
}

#[tokio::test]
async fn a_new_key_ends_the_sessions_of_the_old_one() {
    let mut console = Console::open().await;
    console.set_key(KEY).await;
    let page = console.get("/console/sandboxes").await;
    assert_eq!(page.status(), StatusCode::OK, "after a mere restart");
    console.set_key("another").await;
    let page = console.get("/console/sandboxes").await;
    assert!(
        page.location().starts_with("/console/login?"),
        "{}",
        page.body
    );
}
