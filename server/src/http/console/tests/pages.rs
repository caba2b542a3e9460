//! Pages, forms and server functions.

use std::{future::ready, sync::Arc};

use axum::{
    Json, Router,
    http::{Request, StatusCode, header},
};
use osb_protocol::SandboxId;
use osb_runtime::sim::{Faults, Options, SimRuntime};
use serde_json::json;
use tokio::{net::TcpListener, sync::Notify, time::timeout};

use super::{Console, FORM, PATIENCE, running};

#[tokio::test]
async fn pages_read_without_script_and_escape_what_users_wrote() {
    let console = Console::open().await;
    let empty = console.get("/console/sandboxes").await;
    assert!(empty.body.contains("No sandboxes yet"), "{}", empty.body);
    let id = console.sandbox("search").await;
    let list = console.get("/console/sandboxes").await;
    for part in [id.short(), "debian:12", "team=search", "1 in total"] {
        assert!(list.body.contains(part), "{part} in {}", list.body);
    }
    let none = console
        .get("/console/sandboxes?q=%3Cscript%3Ealert(1)%3C/script%3E")
        .await;
    assert!(none.body.contains("No matches"));
    assert!(!none.body.contains("<script>alert(1)"), "{}", none.body);
    let detail = console.get(&format!("/console/sandboxes/{id}")).await;
    for part in [
        id.as_str(),
        "Stages",
        "accepted",
        "sleep 9",
        "Extend",
        "Delete",
        "Latest events",
        // A panel without content says why.
        "Metrics are turned off, or not available on this runtime.",
    ] {
        assert!(detail.body.contains(part), "{part} in {}", detail.body);
    }
    let missing = console.get("/console/sandboxes/nope").await;
    assert!(missing.body.contains("No such sandbox"));
    assert_eq!(
        console.get("/console/nowhere").await.status(),
        StatusCode::NOT_FOUND
    );
}

#[tokio::test]
async fn the_log_is_read_without_script_and_downloaded() {
    let runtime = SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    });
    runtime.set_faults(Faults {
        output: vec!["<b>bold</b> \u{1b}[31mred\u{1b}[0m".to_owned()],
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    let id = console.sandbox("a").await;
    let page = console.get(&format!("/console/sandboxes/{id}/logs")).await;
    assert!(
        page.body.contains("&lt;b&gt;bold&lt;/b&gt;"),
        "{}",
        page.body
    );
    let red = r#"<span class="ansi-1">red"#;
    assert!(page.body.contains(red), "{}", page.body);
    let path = format!("/console/sandboxes/{id}/logs/download");
    let file = console.get(&path).await;
    assert_eq!(file.status(), StatusCode::OK);
    assert!(file.header("content-disposition").starts_with("attachment"));
    assert!(file.header("content-type").starts_with("text/plain"));
    assert!(file.body.contains("<b>bold</b>"), "{}", file.body);
    let none = console.get("/console/sandboxes/none/logs/download").await;
    assert_eq!(none.status(), StatusCode::NOT_FOUND);
    let metrics = console
        .get(&format!("/console/sandboxes/{id}/metrics?table=on"))
        .await;
    assert!(metrics.body.contains("Since start"), "{}", metrics.body);
}

/// An answer that another site began shows by its length what it repeats of the address.
#[tokio::test]
async fn pages_are_compressed_unless_another_site_asks() {
    let console = Console::open().await;
    let encoding = async |site: Option<&str>| {
        let request = Request::get("/console/sandboxes?q=guess")
            .header(header::ACCEPT, "text/html")
            .header(header::ACCEPT_ENCODING, "gzip, br");
        let request = match site {
            Some(site) => request.header("sec-fetch-site", site),
            None => request,
        };
        let answer = console.send(request, "").await;
        assert_eq!(answer.status(), StatusCode::OK);
        answer.header("content-encoding").to_owned()
    };
    for own in [None, Some("same-origin"), Some("none")] {
        assert_eq!(encoding(own).await, "br", "{own:?}");
    }
    for foreign in ["cross-site", "same-site", "unheard-of"] {
        assert_eq!(encoding(Some(foreign)).await, "", "{foreign}");
    }
}

#[tokio::test]
async fn forms_act_and_leave_their_news_on_the_next_page() {
    let console = Console::open().await;
    let made = console.post("/console/create", FORM).await;
    let page = made.location().to_owned();
    assert!(
        page.starts_with("/console/sandboxes/"),
        "{page} {}",
        made.body
    );
    let short = SandboxId::from(page.rsplit('/').next().unwrap())
        .short()
        .to_owned();
    let news = format!("{short} is being created");
    assert!(console.get(&page).await.body.contains(&news));
    assert!(!console.get(&page).await.body.contains(&news), "shown once");

    let before = console.service.registry().snapshot().0[0]
        .sandbox
        .expires_at;
    let renewed = console
        .post(&format!("{page}/renew"), "seconds=86400")
        .await;
    assert_eq!(renewed.location(), page);
    assert!(
        console.service.registry().snapshot().0[0]
            .sandbox
            .expires_at
            > before
    );

    let renewed = console.service.registry().snapshot().0[0]
        .sandbox
        .expires_at;
    console.post(&format!("{page}/renew"), "seconds=1800").await;
    let kept = console.service.registry().snapshot().0[0]
        .sandbox
        .expires_at;
    assert_eq!(kept, renewed, "a renewal extends");
    let news = console.get(&page).await.body;
    assert!(news.contains("would shorten its life"), "{news}");
    console
        .post(&format!("{page}/renew"), "seconds=1800&shorten=true")
        .await;
    let shortened = console.service.registry().snapshot().0[0]
        .sandbox
        .expires_at;
    assert!(shortened < renewed, "one that may shorten does");

    let deleted = console.post(&format!("{page}/delete"), "").await;
    assert_eq!(deleted.location(), "/console/sandboxes");
    let list = console.get("/console/sandboxes").await;
    assert!(list.body.contains("is being deleted"), "{}", list.body);
}

#[tokio::test]
async fn a_create_is_answered_on_acceptance() {
    const RELOAD: &str = r#"<meta http-equiv="refresh" content="2">"#;
    let runtime = SimRuntime::new();
    let gate = Arc::new(Notify::new());
    runtime.set_faults(Faults {
        start_gate: Some(gate.clone()),
        ..Faults::default()
    });
    let console = Console::open_over(runtime).await;
    let made = timeout(PATIENCE, console.post("/console/create", FORM)).await;
    let made = made.expect("answered while the container is starting");
    let path = made.location();
    assert!(path.starts_with("/console/sandboxes/"), "{}", made.body);
    let page = console.get(path).await.body;
    assert!(page.contains("Pending"), "{page}");
    assert!(page.contains(RELOAD), "{page}");
    gate.notify_one();
    let running = async {
        loop {
            let page = console.get(path).await.body;
            if page.contains("The sandbox is running.") {
                return page;
            }
            tokio::task::yield_now().await;
        }
    };
    let page = timeout(PATIENCE, running).await.unwrap();
    assert!(!page.contains(RELOAD), "{page}");
}

#[tokio::test]
async fn server_functions_answer_hydrated_pages() {
    let console = Console::open().await;
    let id = console.sandbox("a").await;
    let call = |path: &'static str, body: String| {
        let request = Request::post(format!("/console/fn/sandboxes/{path}"))
            .header("sec-fetch-site", "same-origin")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let console = &console;
        async move { console.send(request, &body).await }
    };
    let list = call(
        "list",
        "query[q]=debian&query[state]=&query[page]=1".to_owned(),
    )
    .await;
    assert_eq!(list.status(), StatusCode::OK, "{}", list.body);
    assert!(list.body.contains(id.as_str()), "{}", list.body);
    let check = call("check", "form[image]=x&form[ttl]=1s".to_owned()).await;
    assert!(check.body.contains("timeout"), "{}", check.body);
    let port = call("port", format!("id={id}&port=8000")).await;
    assert_eq!(port.status(), StatusCode::OK, "{}", port.body);
    assert!(port.body.contains("nowhere"), "{}", port.body);
    let long = call("renew", format!("id={id}&seconds=7200")).await;
    assert_eq!(long.status(), StatusCode::OK, "{}", long.body);
    let short = call("renew", format!("id={id}&seconds=1800")).await;
    assert_eq!(short.status(), StatusCode::CONFLICT, "{}", short.body);
    assert!(
        short.body.contains(r#""error":"shortens""#),
        "{}",
        short.body
    );
    let shorter = call("renew", format!("id={id}&seconds=1800&shorten=true")).await;
    assert_eq!(shorter.status(), StatusCode::OK, "{}", shorter.body);
    let gone = call("get", "id=nope".to_owned()).await;
    assert_eq!(gone.body, r#"{"error":"not_found"}"#);
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    let unread = call("get", "no=id".to_owned()).await;
    assert_eq!(unread.status(), StatusCode::BAD_REQUEST, "{}", unread.body);
    assert!(unread.body.contains("missing field"), "{}", unread.body);
    for unknown in ["nope", "nope/nope", "list/"] {
        let gone = call(unknown, String::new()).await;
        assert_eq!(
            gone.status(),
            StatusCode::NOT_FOUND,
            "{unknown}: {}",
            gone.body
        );
        assert_eq!(gone.body, r#"{"error":"not_found"}"#, "{unknown}");
    }
}

#[tokio::test]
async fn a_terminal_says_why_it_does_not_open() {
    let runtime = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    let console = Console::open_over(Arc::clone(&runtime)).await;
    let id = console.sandbox("a").await;
    let address = format!("/console/sandboxes/{id}/terminal");
    let resume = format!("/console/sandboxes/{id}/resume");
    let open = console.get(&address).await.body;
    for part in ["Terminal of", "Search the output", "needs JavaScript"] {
        assert!(open.contains(part), "{part} in {open}");
    }
    assert!(!open.contains("not-running"), "{open}");
    console
        .post(&format!("/console/sandboxes/{id}/pause"), "")
        .await;
    let paused = console.get(&address).await.body;
    for part in ["The sandbox is paused", &resume] {
        assert!(paused.contains(part), "{part} in {paused}");
    }
    assert!(!paused.contains("Terminal of"), "{paused}");
    console.post(&resume, "").await;
    let resumed = console.get(&address).await.body;
    assert!(resumed.contains("Terminal of"), "{resumed}");
}

#[tokio::test]
async fn the_files_of_a_sandbox_are_read_without_script() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let sandbox = running("a", listener.local_addr().unwrap().port());
    let console = Console::open_over(SimRuntime::with([sandbox])).await;
    let entry = json!({
        "path": "/srv/<b>", "type": "file", "size": 3, "owner": "root", "group": "root",
        "mode": 644, "modified_at": "2026-01-02T03:04:05Z", "created_at": "2026-01-02T03:04:05Z",
    });
    let list = Router::new().fallback(move || ready(Json(json!([entry]))));
    console.serve(listener, list);
    let page = console.get("/console/sandboxes/a/files?path=/srv").await;
    assert_eq!(page.status(), StatusCode::OK, "{}", page.body);
    for part in ["&lt;b&gt;", "rw-r--r--", "Upload"] {
        assert!(page.body.contains(part), "{part} in {}", page.body);
    }
}

#[tokio::test]
async fn checks_run_now_and_say_what_is_wrong() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let console = Console::open_over(SimRuntime::with([running("a", port)])).await;
    let answer = console.post("/console/fn/sandboxes/health", "id=a").await;
    assert!(
        answer.body.contains("execd cannot be reached"),
        "{}",
        answer.body
    );
    assert!(
        answer.body.contains("connected to the engine"),
        "{}",
        answer.body
    );
    let page = console
        .get("/console/sandboxes/a/diagnostics?checks=now")
        .await;
    assert!(
        page.body.contains("execd cannot be reached"),
        "{}",
        page.body
    );
    let page = console.get("/console/sandboxes/a/diagnostics").await;
    assert!(
        !page.body.contains("execd cannot be reached"),
        "only when it is wanted"
    );
    let none = console
        .post("/console/fn/sandboxes/health", "id=none")
        .await;
    assert!(none.body.contains("Err"), "{}", none.body);
}
