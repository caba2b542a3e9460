//! The overview, and the sandbox that tests an installation.

use std::sync::Arc;

use axum::http::{Request, StatusCode, header};
use futures::{SinkExt, StreamExt};
use osb_app::live::{Command, Frame, Topic};
use osb_protocol::{SandboxId, identity::Role, lifecycle::SandboxState};
use osb_runtime::sim::{Faults, Options, SimRuntime};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::{Console, PATIENCE, Socket, accounts::PASSWORD};

async fn with_powers() -> (Arc<SimRuntime>, Console) {
    let runtime = Arc::new(SimRuntime::with_options(Options {
        powers: true,
        ..Options::default()
    }));
    let console = Console::open_over(Arc::clone(&runtime)).await;
    (runtime, console)
}

/// The number of a counter in a page, whose address begins so.
fn number<'a>(page: &'a str, link: &str) -> &'a str {
    let link = format!("href=\"{link}");
    let (_, rest) = page.split_once(&link).unwrap_or_else(|| panic!("{page}"));
    let (_, number) = rest.split_once("counter-number num\">").unwrap();
    number.split_once('<').unwrap().0
}

/// The text of a part of a page.
fn text_of(part: &str) -> String {
    let pieces = part.split('<').enumerate();
    let texts = pieces.map(|(at, piece)| match at {
        0 => piece,
        _ => piece.split_once('>').map_or("", |(_, text)| text),
    });
    texts.collect()
}

/// The numbers of activity and failures, with the lists to which they lead.
fn linked_numbers(page: &str) -> Vec<(usize, String)> {
    let parts = page.split("<p class=\"").skip(1);
    let counting = parts.filter(|part| {
        part.starts_with("activity-facts num\"") || part.starts_with("failure-count num\"")
    });
    let paragraphs = counting.filter_map(|part| Some(part.split_once("</p>")?.0));
    let links = paragraphs.flat_map(|part| part.split("<a href=\"").skip(1));
    let numbers = links.map(|link| {
        let (address, rest) = link.split_once('"').unwrap();
        let text = text_of(&["<", rest.split_once("</a>").unwrap().0].concat());
        let number = text.split(' ').next().unwrap().parse();
        (number.unwrap(), address.replace("&amp;", "&"))
    });
    numbers.collect()
}

async fn create_failing(console: &Console, runtime: &SimRuntime, times: u32) {
    runtime.set_faults(Faults {
        no_image: true,
        ..Faults::default()
    });
    for _ in 0..times {
        console.post("/console/create", super::FORM).await;
    }
    let failed = async {
        while console.service.count_history(100).await.unwrap() < times {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, failed).await.unwrap();
    runtime.set_faults(Faults::default());
}

#[tokio::test]
async fn the_overview_counts_and_names_what_failed() {
    let (runtime, console) = with_powers().await;
    console.sandbox("a").await;
    console.sandbox("b").await;
    let exited = console.sandbox("c").await;
    runtime.exit(&exited, 3).await;
    let is_failed = async {
        let failed = SandboxState::Failed;
        while console.service.find(&exited).unwrap().sandbox.status.state != failed {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, is_failed).await.unwrap();
    create_failing(&console, &runtime, 2).await;
    // Both live for ten minutes. A create that failed is in the history before its record is gone.
    let counted = async {
        loop {
            let page = console.get("/console").await;
            assert_eq!(page.status(), StatusCode::OK);
            if number(&page.body, "/console/sandboxes?q=ttl%3C15m") == "2" {
                return page.body;
            }
        }
    };
    let page = timeout(PATIENCE, counted).await.unwrap();
    assert_eq!(page.matches("<h1>").count(), 1);
    assert_eq!(number(&page, "/console/sandboxes?state=Running"), "2");
    assert_eq!(number(&page, "/console/sandboxes?state=Paused"), "0");
    assert_eq!(number(&page, "/console/sandboxes?state=Ended"), "2");
    for part in [
        "Ready: sandboxes can be created.",
        "simulated host",
        "The limits allow 2.00 cores",
        "12.0 GiB of the host are free",
        "Run a test sandbox",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    let facts = page.split_once("activity-facts num").unwrap().1;
    let facts = text_of(facts.split_once("</p>").unwrap().0);
    let wanted = "5 created (3 present, 2 ended) · 3 failed (1 present, 2 ended)";
    assert!(facts.contains(wanted), "{facts}");
    let (_, failures) = page.split_once("Recent failures").unwrap();
    assert!(failures.contains("cannot be pulled"), "{failures}");
    // Each number is that of its list.
    let numbers = linked_numbers(&page);
    let seen: Vec<_> = numbers.iter().map(|(number, _)| *number).collect();
    assert_eq!(seen, [3, 2, 1, 2, 2, 1], "{numbers:?}");
    for (number, link) in numbers {
        let listed = console.get(&link).await.body;
        let listed = text_of(&listed);
        let (all, some) = (format!("{number} in total"), format!("{number} of "));
        assert!(listed.contains(&all) || listed.contains(&some), "{link}");
        assert!(!listed.contains("is left out"), "{link}");
    }
}

#[tokio::test]
async fn without_the_engine_the_overview_says_why() {
    let (runtime, console) = with_powers().await;
    console.sandbox("a").await;
    runtime.go_down("the socket is gone").await;
    let mut health = console.service.registry().watch_health();
    let down = health.wait_for(|health| *health != crate::sandbox::RuntimeHealth::Up);
    drop(timeout(PATIENCE, down).await.unwrap());
    let page = console.get("/console").await.body;
    assert!(page.contains("Not ready: "), "{page}");
    assert!(page.contains("the socket is gone"), "{page}");
    assert_eq!(number(&page, "/console/sandboxes?state=Running"), "1");
    assert!(!page.contains("simulated host"), "{page}");
}

#[tokio::test]
async fn a_tenant_sees_numbers_of_its_own_and_nothing_of_the_host() {
    let (runtime, mut console) = with_powers().await;
    console.sandbox("a").await;
    create_failing(&console, &runtime, 1).await;
    console.add_user(Role::Operator, Some("red")).await;
    console.sign_in("operator", PASSWORD).await;
    let page = console.get("/console").await.body;
    for link in ["state=Running", "state=Ended", "q=ttl%3C15m"] {
        assert_eq!(number(&page, &format!("/console/sandboxes?{link}")), "0");
    }
    let facts = page.split_once("activity-facts num").unwrap().1;
    assert!(text_of(facts).contains("0 created · 0 failed"), "{page}");
    assert!(!page.contains("simulated host"), "{page}");
    assert!(!page.contains("cannot be pulled"), "{page}");
}

#[tokio::test]
async fn without_script_a_test_sandbox_leads_to_its_page() {
    let (_runtime, mut console) = with_powers().await;
    let answer = console.post("/console/test", "").await;
    let page = answer.location().to_owned();
    assert!(page.starts_with("/console/sandboxes/"), "{}", answer.body);
    let id = SandboxId::from(page.rsplit('/').next().unwrap());
    let sandbox = console.service.find(&id).unwrap().sandbox.clone();
    assert_eq!(sandbox.metadata["name"], "test-sandbox");
    let life = sandbox.expires_at.unwrap().unix_ms() - sandbox.created_at.unix_ms();
    assert_eq!(life, 60_000);
    assert!(
        console
            .get(&page)
            .await
            .body
            .contains("expires in a minute")
    );
    console.add_user(Role::ReadOnly, None).await;
    console.sign_in("read_only", PASSWORD).await;
    let refused = console.post("/console/test", "").await;
    assert_eq!(refused.status(), StatusCode::FORBIDDEN);
    let page = console.get("/console").await.body;
    assert!(page.contains("this needs the role operator"), "{page}");
}

#[tokio::test]
async fn a_script_learns_which_image_a_test_sandbox_has() {
    let (_runtime, console) = with_powers().await;
    let request = Request::post("/console/fn/overview/test")
        .header("sec-fetch-site", "same-origin")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let answer = console.send(request, "").await;
    assert_eq!(answer.status(), StatusCode::OK, "{}", answer.body);
    let test: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(test["image"], "debian:bookworm-slim", "none is on the host");
    let id = SandboxId::from(test["id"].as_str().unwrap());
    assert!(console.service.find(&id).is_some());
}

/// The running sandboxes in the next message of the topic that has numbers.
async fn running(socket: &mut Socket) -> u64 {
    loop {
        let message = timeout(PATIENCE, socket.next()).await.unwrap();
        let Some(Ok(Message::Text(text))) = message else {
            panic!("{message:?}");
        };
        let frame: Frame = serde_json::from_str(&text).unwrap();
        let (Frame::Snapshot { topic, data, .. } | Frame::Delta { topic, data, .. }) = frame else {
            continue;
        };
        let running = &data["counts"]["running"];
        if let (Topic::Overview, Some(running)) = (topic, running.as_u64()) {
            return running;
        }
    }
}

#[tokio::test]
async fn the_numbers_are_pushed_within_the_scope_of_each_tab() {
    let (_runtime, mut console) = with_powers().await;
    let subscribe = serde_json::to_string(&Command::Subscribe {
        topic: Topic::Overview,
        since: None,
    });
    let subscribe = Message::text(subscribe.unwrap());
    let mut operators = console.socket("/console/live").await;
    operators.send(subscribe.clone()).await.unwrap();
    assert_eq!(running(&mut operators).await, 0);
    console.add_user(Role::ReadOnly, Some("red")).await;
    console.sign_in("read_only", PASSWORD).await;
    let mut tenants = console.socket("/console/live").await;
    tenants.send(subscribe).await.unwrap();
    assert_eq!(running(&mut tenants).await, 0);
    console.sandbox("a").await;
    while running(&mut operators).await != 1 {}
    let red = crate::identity::Scope::of(Some("red"));
    let body = serde_json::json!({
        "image": { "uri": "debian:12" }, "entrypoint": ["sleep", "9"], "timeout": 600,
        "resourceLimits": {},
    });
    let made = console.service.within(&red).create_for_answer(body).await;
    made.unwrap().1.answered();
    // The other sandbox never counts here.
    while running(&mut tenants).await != 1 {}
    while running(&mut operators).await != 2 {}
    assert_eq!(console.state.hub.followed(), 2, "one for each scope");
}
